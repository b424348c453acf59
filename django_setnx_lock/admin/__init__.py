"""The admin pages of the locks, and model admins whose forms and actions work under locks."""

from __future__ import annotations

from .actions import locked_action
from .model_admin import LockedAdminMixin
from .pages import LockAdmin

__all__ = ["LockAdmin", "LockedAdminMixin", "locked_action"]
