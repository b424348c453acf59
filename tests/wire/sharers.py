"""Callers who hold one lock together, each asking when the test says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django_setnx_lock.core.protocol import replies
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.wire.queueing import caller

if TYPE_CHECKING:
    from django_setnx_lock.core.locks.attempt import AcquireAttempt

LIMIT = 2


def reader(client: Any, lease: float = 30) -> AcquireAttempt:
    """Return an attempt to read at ``lock:a`` that has asked for nothing yet."""
    return caller(client, lease, shared=True)


def taker(client: Any, lease: float = 30, limit: int = LIMIT) -> AcquireAttempt:
    """Return an attempt at one of ``limit`` permits that has asked for nothing yet."""
    return caller(client, lease, limit=limit)


def shares_of(client: Any, name: str = "lock:a") -> list[str | None]:
    """Return the tokens of those who hold it together, and those it was left to as ``baton:``."""
    return [replies.text(token) for token in client.zrange(lock_keys(name).shares, 0, -1)]


def let_run_out(client: Any, token: str, name: str = "lock:a") -> None:
    """Have the share of ``token`` be over by now."""
    client.zadd(lock_keys(name).shares, {token: 1})
