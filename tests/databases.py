"""Databases beside those of DATABASES, for tests that start servers of their own."""

from __future__ import annotations

from typing import Any

from django.db import connections


def add(alias: str, given: dict[str, Any]) -> None:
    """Have Django know one more database, ``given`` as in DATABASES."""
    whole = connections.configure_settings({"default": {}, alias: given})
    connections.settings[alias] = whole[alias]


def remove(alias: str) -> None:
    """Have it forget that again."""
    connections[alias].close()
    del connections.settings[alias]
    del connections[alias]
