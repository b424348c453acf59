"""What the tests of locks over several keys share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_setnx_lock.core import MultiLock
from django_setnx_lock.core.connections.backends import run
from django_setnx_lock.core.connections.connection import Command, Connection
from django_setnx_lock.core.locks import batch
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
    monkeypatch.setattr(batch, "sorted", lambda locks, key: [*locks], raising=False)


def around_many(
    monkeypatch: pytest.MonkeyPatch,
    do: Callable[[Callable[[], list[Any]], Sequence[Command]], list[Any]],
) -> None:
    """Have ``do(send, commands)`` called whenever several are sent at once; ``send()`` does it."""
    ask = Connection.ask

    async def asked(
        connection: Connection,
        commands: Sequence[Command],
        expected: int = 1,
        until: float | None = None,
        again: Sequence[Command] | None = None,
    ) -> list[Any]:
        if expected == 1:
            return await ask(connection, commands, expected, until, again)
        return do(lambda: run(ask(connection, commands, expected)), commands)

    monkeypatch.setattr(Connection, "ask", asked)


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
