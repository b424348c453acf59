"""Which server Sentinels name as the primary, so that connections to another one are not used.

Nothing closes the connections to a primary that another server has taken the place of: until it is
made a replica, after some ten seconds, it grants locks to all that are still connected.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from concurrent.futures import wait
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, ref

from .. import clock
from .connection import take_note
from .primitives import Background

# How often the Sentinels are asked at most, and how long a caller waits for their answer. Where
# none comes, what they said before counts.
EVERY, WITHIN = 1.0, 0.1


class Primary:
    """Lets ``pool`` ask its Sentinels for the address of the primary, and remember it.

    The pool does that itself whenever it connects, and closes its own idle connections to others.
    """

    def __init__(self, pool: Any) -> None:
        self._pool = ref(pool)
        self._asked_at = -math.inf
        # Whether they were quick to answer the last time, so that a caller may wait for them.
        self.are_quick = True
        self.asking = Background(self._ask, "setnx-lock-sentinel")
        # The same for the pool of a client of asyncio.
        self.task: asyncio.Task[None] | None = None

    def is_due(self) -> bool:
        """Whether to ask them now. Then it is not due for a second, nor before they answered."""
        now, task = clock.now(), self.task
        is_under_way = task is not None and not task.done() and not task.get_loop().is_closed()
        if now - self._asked_at < EVERY or is_under_way or self.asking.is_under_way:
            return False
        self._asked_at = now
        return True

    async def ask(self) -> None:
        """Ask them now. Raises what redis-py raises."""
        pool = self._pool()
        if pool is not None:
            began, self.are_quick = clock.now(), False
            address = pool.get_master_address()
            if inspect.isawaitable(address):
                await address
            self.are_quick = clock.now() - began < WITHIN

    def _ask(self) -> None:
        # By a pool that awaits nothing.
        with suppress(StopIteration):
            self.ask().send(None)


_known: WeakKeyDictionary[Any, Primary] = WeakKeyDictionary()


def primary_of(client: Any) -> Primary | None:
    """Return what is known of the primary of ``client``; None where no Sentinel names it."""
    pool: Any = getattr(client, "connection_pool", None)
    if getattr(pool, "sentinel_manager", None) is None or not pool.is_master:
        return None
    return _known.get(pool) or _known.setdefault(pool, Primary(pool))


def follow(client: Any) -> None:
    """Let the Sentinels of ``client``, if it has any, name its primary: once a second at most."""
    primary = primary_of(client)
    if primary is not None and primary.is_due():
        seconds = WITHIN if primary.are_quick else 0
        wait([primary.asking.begin()], seconds)


async def follow_in_loop(client: Any) -> None:
    """Do as :func:`follow` in asyncio, by a task where the pool of the client is of asyncio."""
    primary = primary_of(client)
    if primary is None or not primary.is_due():
        return
    seconds = WITHIN if primary.are_quick else 0
    if inspect.iscoroutinefunction(client.connection_pool.get_master_address):
        primary.task = asyncio.get_running_loop().create_task(primary.ask())
        primary.task.add_done_callback(take_note)
        await asyncio.wait({primary.task}, timeout=seconds)
        return
    asking = asyncio.wrap_future(primary.asking.begin())
    try:
        await asyncio.wait({asking}, timeout=seconds)
    finally:
        # Or it would be told of the end by the thread, even when its loop is closed by then.
        asking.cancel()


def leads_elsewhere(client: Any, connection: Any) -> bool:
    """Return whether ``connection`` is to a server that is known to be the primary no longer."""
    if primary_of(client) is None:
        return False
    named, address = client.connection_pool.master_address, connection.address
    return named is not None and address is not None and named != address
