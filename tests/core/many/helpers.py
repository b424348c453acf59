"""What the tests of locks over several keys share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_setnx_lock.core.many.base import MultiBase
from django_setnx_lock.core.many.lock import MultiLock
from tests.core.helpers import INDEX, PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest


def many(client: Any, keys: Iterable[str], **options: Any) -> MultiLock:
    """Make the lock over ``keys``, such as ``"ab"``, listed in the index as the app's are."""
    names = [f"{PREFIX}{key}" for key in keys]
    return MultiLock(client, names, keys=keys, index=INDEX, **options)


def held_names(client: Any, keys: Iterable[str] = "abcd") -> str:
    """Return which of ``keys`` somebody holds."""
    return "".join(key for key in keys if client.exists(f"{PREFIX}{key}"))


def as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have locks taken in the order in which they are given: what sorting is for."""
    monkeypatch.setattr(MultiBase, "_in_order", property(lambda self: list(self._locks)))
