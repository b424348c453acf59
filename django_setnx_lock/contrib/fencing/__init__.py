"""Writes of the ORM that the database refuses once somebody later in the lock has written."""

from __future__ import annotations

from ...core.errors import StaleFence
from .fences import FenceField, guard
from .models import FencedManager, FencedModel, FencedQuerySet

__all__ = [
    "FenceField",
    "FencedManager",
    "FencedModel",
    "FencedQuerySet",
    "StaleFence",
    "guard",
]
