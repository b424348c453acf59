"""Databases beside those of DATABASES, and what the tests of transactions see of them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_setnx_lock import lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

SECOND = "second"


def state(key: str) -> str:
    return "locked" if lock(key).locked() else "open"


def journal(monkeypatch: pytest.MonkeyPatch, key: str = "a") -> list[str]:
    """Tell of each end of a transaction: what, in which database, and of the lock ``key`` then."""
    seen: list[str] = []

    def told(name: str) -> Any:
        original = getattr(BaseDatabaseWrapper, f"_{name}")

        def tell(self: BaseDatabaseWrapper) -> None:
            seen.append(f"{name} {self.alias} {state(key)}")
            original(self)

        return tell

    for name in ("commit", "rollback"):
        monkeypatch.setattr(BaseDatabaseWrapper, f"_{name}", told(name))
    return seen


@contextlib.contextmanager
def second_database(path: Path) -> Iterator[str]:
    """Have a second database, without tables, for as long as this lasts."""
    settings = {**connections.settings["default"], "NAME": str(path / "second.sqlite3")}
    connections.settings[SECOND] = settings
    try:
        # The tests' own databases are opened elsewhere, and no others.
        connections[SECOND].connect()
        yield SECOND
    finally:
        connections[SECOND].close()
        del connections[SECOND]
        del connections.settings[SECOND]


def add(alias: str, given: dict[str, Any]) -> None:
    """Have Django know one more database, ``given`` as in DATABASES."""
    whole = connections.configure_settings({"default": {}, alias: given})
    connections.settings[alias] = whole[alias]


def remove(alias: str) -> None:
    """Have it forget that again."""
    connections[alias].close()
    del connections.settings[alias]
    del connections[alias]
