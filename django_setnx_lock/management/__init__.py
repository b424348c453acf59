"""Management commands, and the base class of commands that run under a lock."""

from __future__ import annotations

from django_setnx_lock.management.locked_command import LockedCommand

__all__ = ["LockedCommand"]
