"""The documented place of ``kinds.register()``, for connection classes of one's own."""

from __future__ import annotations

from .connections import connection as kinds

__all__ = ["kinds"]
