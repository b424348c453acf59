"""What the tests of the lock in asyncio share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from django_setnx_lock.core import RedisLock, clock
from tests.core.helpers import queue_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

T = TypeVar("T")
# Nothing here takes long, but for a machine that does something else.
DEADLINE = 20.0


def run(work: Coroutine[Any, Any, T], seconds: float = DEADLINE) -> T:
    """Return what ``work`` returns, or raise what it raises, in a loop of its own."""

    async def bounded() -> T:
        return await asyncio.wait_for(work, seconds)

    return asyncio.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    """Return as soon as ``condition()`` is true."""
    while not condition():  # noqa: ASYNC110 - what happens elsewhere sets no event
        await asyncio.sleep(0.001)


async def is_renewed(held: Any) -> None:
    """Return when the lease of ``held`` begins anew, by itself; a short one may end before."""
    # In this order a pause between two readings never looks like a renewal.
    end = held.remaining() + clock.now()
    await until(lambda: clock.now() + held.remaining() > end + 0.01)


async def line_up(client: Any, count: int, take: Callable[[int], Awaitable[T]]) -> list[T]:
    """Return what ``take(0)``, ``take(1)``, … give, who queue for a lock in this order."""
    held = await RedisLock(client, "lock:a").atake(0)
    tasks = []
    for number in range(count):
        tasks.append(asyncio.ensure_future(take(number)))
        await until(lambda: len(queue_of(client)) == len(tasks))
    await held.arelease()
    return await asyncio.gather(*tasks)
