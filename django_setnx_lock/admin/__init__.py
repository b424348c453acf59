"""The admin pages of the locks, and actions of your own model admins that run under locks."""

from __future__ import annotations

from .actions import locked_action
from .pages import LockAdmin
from .release import ReleaseLocksMixin

__all__ = ["LockAdmin", "ReleaseLocksMixin", "locked_action"]
