"""What the tests of locks over several keys share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_setnx_lock.core.line import Command, Line
from django_setnx_lock.core.many.base import MultiBase
from django_setnx_lock.core.many.lock import MultiLock
from tests.core.helpers import INDEX, PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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


def around_many(
    monkeypatch: pytest.MonkeyPatch,
    do: Callable[[Callable[[], list[Any]], Sequence[Command]], list[Any]],
) -> None:
    """Have ``do(send, commands)`` called whenever several are sent at once; ``send()`` does it."""
    ask_all = Line.ask_all

    def asked(line: Line, commands: Sequence[Command]) -> list[Any]:
        return do(lambda: ask_all(line, commands), commands)

    monkeypatch.setattr(Line, "ask_all", asked)


def fail_once(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, *, is_sent: bool = True
) -> None:
    """Have ``error`` raised once, in the place of the replies to several that are sent at once.

    ``is_sent``: whether they are carried out all the same.
    """
    errors = [error]

    def cut(send: Callable[[], list[Any]], _: Sequence[Command]) -> list[Any]:
        if errors and not is_sent:
            raise errors.pop()
        replies = send()
        if errors:
            raise errors.pop()
        return replies

    around_many(monkeypatch, cut)
