"""Locks as the app makes them, and what of them stands in Redis by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy
from django_setnx_lock.core import MultiLock, RedisLock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_setnx_lock.core import LockHandle
    from tests.servers import RealServer

PREFIX = "lock:"
INDEX = "{lock:}:index"


def listed(client: Any, key: str, prefix: str = PREFIX, **options: Any) -> RedisLock:
    """Make the lock that a caller calls ``key``, listed in the index as the app's are."""
    index = f"{{{prefix}}}:index"
    return RedisLock(client, f"{prefix}{key}", key=key, index=index, **options)


def many(client: Any, keys: Iterable[str], **options: Any) -> MultiLock:
    """Make the lock over ``keys``, such as ``"ab"``, listed in the index as the app's are."""
    names = [f"{PREFIX}{key}" for key in keys]
    return MultiLock(client, names, keys=keys, index=INDEX, **options)


def timed(client: Any, unit: str = "ms", timeout: float = 10, **options: Any) -> RedisLock:
    """Make the lock ``a`` whose value is a time, listed in the index."""
    options = {"index": INDEX, "key": "a", **options}
    return RedisLock(client, "lock:a", timeout, protocol=f"timestamp-{unit}", **options)


def meet(client: Any, key: str) -> None:
    """Run into somebody's lock, and so list it."""
    with pytest.raises(LockBusy):
        listed(client, key).take(0)


def text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


def command(client: Any, *words: str | int) -> Any:
    """Send a command that redis-py has no typed method for."""
    return client.execute_command(*words)


def held_names(client: Any, keys: Iterable[str] = "abcd") -> str:
    """Return which of ``keys`` somebody holds."""
    return "".join(key for key in keys if client.exists(f"{PREFIX}{key}"))


def queue_of(client: Any, name: str = "lock:a") -> list[str | None]:
    """Return the tokens of those who wait, the first in the queue first."""
    return [text(token) for token in client.zrange(f"{{{name}}}:waiters", 0, -1)]


def value_of(client: Any, name: str = "lock:a") -> str | None:
    return text(client.get(name))


def server_ms(client: Any) -> int:
    """Return the server's time in milliseconds."""
    seconds, micros = command(client, "TIME")
    return int(seconds) * 1000 + int(micros) // 1000


def listeners(server: RealServer) -> int:
    """Return how many sleep there, waiting to be woken."""
    clients: Any = server.client().client_list()
    return sum("b" in one["flags"] for one in clients)


def holder(client: Any, lease: float = 30, **options: Any) -> LockHandle:
    """Take ``lock:a``."""
    return RedisLock(client, "lock:a", lease, **options).take(0)


def leave_to_who_waits(client: Any, name: str, token: str) -> None:
    """Leave a lock for a minute to a waiter who has not asked since, as a release does."""
    client.set(name, token, px=60_000)
    client.set(f"{{{name}}}:meta", f"1 {token} {{}}", px=60_000)
    alive = server_ms(client) + 60_000
    client.hset(f"{{{name}}}:waiting", token, f"{alive} {alive} 1 3 box {{}}")
