"""Callers who wait for a lock, in threads of their own, and are known to be in its queue."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from django_setnx_lock.core import Inspector
from tests.processes import eventually

if TYPE_CHECKING:
    from django_setnx_lock.core import LockHandle, RedisLock

DEADLINE = 20


def waiting(client: Any, name: str = "lock:a") -> int:
    """Return how many wait for ``name``."""
    return Inspector(client, "lock:", use_index=False).get(name).waiting or 0


class Waiter:
    """Whoever waits for ``lock`` in a thread; queued when this returns."""

    def __init__(self, lock: RedisLock, client: Any) -> None:
        """``client``: what to look with."""
        before = waiting(client, lock.name)
        self._pool = ThreadPoolExecutor(1)
        self._taking = self._pool.submit(lock.take, DEADLINE)
        self._pool.shutdown(wait=False)
        eventually(lambda: self._taking.done() or waiting(client, lock.name) > before)

    def held(self) -> LockHandle:
        """Return the lock, when it has it; or raise what taking it has raised."""
        return self._taking.result(DEADLINE)
