"""Which server Sentinels name as the primary, so that connections to another one are not used.

Nothing closes the connections to a primary that another server has taken the place of: until it is
made a replica, after some ten seconds, it grants locks to all that are still connected.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

from . import clock
from .background import Background

# How often the Sentinels are asked at most, and how long a caller waits for their answer. Where
# none comes, what they said before counts.
EVERY, WITHIN = 1.0, 0.1


class _Line(Protocol):
    @property
    def address(self) -> tuple[str, int] | None: ...


class Primary:
    """Has ``pool`` ask its Sentinels for the address of the primary, and remember it.

    The pool does that itself whenever it connects, and closes its own idle connections to others.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = ref(pool)
        self._asked = -math.inf
        # Whether they were quick to answer the last time, so that a caller may wait for them.
        self.are_quick = True
        self.asking = Background(self._ask, "setnx-lock-sentinel")
        # The same for the pool of a client of asyncio.
        self.task: asyncio.Task[None] | None = None

    def is_due(self) -> bool:
        """Whether to ask them now. Then it is not due for a second, nor before they answered."""
        now = clock.now()
        if now - self._asked < EVERY or self.asking.is_under_way or self._is_task_under_way():
            return False
        self._asked = now
        return True

    def _is_task_under_way(self) -> bool:
        task = self.task
        return task is not None and not task.done() and not task.get_loop().is_closed()

    def _ask(self) -> None:
        pool = self._pool()
        if pool is not None:
            with self._timed():
                pool.get_master_address()

    async def ask(self) -> None:
        """Ask by the pool of a client of asyncio. Raises what redis-py raises."""
        pool = self._pool()
        if pool is not None:
            with self._timed():
                await pool.get_master_address()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began, self.are_quick = clock.now(), False
        yield
        self.are_quick = clock.now() - began < WITHIN


_known: WeakKeyDictionary[Any, Primary] = WeakKeyDictionary()


def primary_of(client: Any) -> Primary | None:
    """What is known of the primary of ``client``; None where no Sentinel names it."""
    pool = getattr(client, "connection_pool", None)
    if pool is None or getattr(pool, "sentinel_manager", None) is None or not pool.is_master:
        return None
    primary = _known.get(pool)
    if primary is None:
        primary = _known.setdefault(pool, Primary(pool))
    return primary


def follow(client: Any) -> None:
    """Have the Sentinels of ``client``, if it has any, name its primary: once a second at most."""
    primary = primary_of(client)
    if primary is not None and primary.is_due():
        waits = primary.are_quick
        asking = primary.asking.begin()
        if waits:
            wait([asking], WITHIN)


def leads_elsewhere(client: Any, line: _Line) -> bool:
    """Whether ``line`` is connected to a server that is the primary no longer, as far as known."""
    if primary_of(client) is None:
        return False
    named, address = client.connection_pool.master_address, line.address
    return named is not None and address is not None and named != address
