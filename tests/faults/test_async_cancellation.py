"""A task that is cancelled at any await leaves neither a lock nor a waiter in Redis."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import types
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy
from django_setnx_lock.core import RedisLock
from tests.faults.awaits import Awaits
from tests.processes import until
from tests.support import seams
from tests.support.locks import queue_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator

    import redis

    from tests.servers import RealServer

    Story = Callable[[redis.Redis, Awaits], Coroutine[Any, Any, None]]

KEYS = ("lock:a", "{lock:a}:waiters", "{lock:a}:alive", "{lock:a}:waiting")
# Nothing here takes long, but for a machine that does something else.
DEADLINE = 20


async def cancelled(work: Awaitable[Any]) -> bool:
    """Return whether ``work`` ends in a CancelledError, and in nothing else."""
    try:
        await work
    except asyncio.CancelledError:
        return True
    return False


async def run(awaits: Awaits, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` in a task of its own; a cancellation is never swallowed."""

    async def stepped() -> None:
        await awaits.run(work)

    was_cancelled = await cancelled(asyncio.create_task(stepped()))
    assert was_cancelled is awaits.has_cancelled


async def a_free_lock(client: redis.Redis, awaits: Awaits) -> None:
    async def work() -> None:
        async with RedisLock(client, "lock:a"):
            pass

    await run(awaits, work())


async def a_lock_that_is_renewed(client: redis.Redis, awaits: Awaits) -> None:
    async def work() -> None:
        lock = RedisLock(client, "lock:a", renew=True)
        if await lock.aacquire():
            try:
                await lock.aextend(5, replace_ttl=True)
            finally:
                await lock.arelease()

    await run(awaits, work())


async def a_token_of_ones_own(client: redis.Redis, awaits: Awaits) -> None:
    async def work() -> None:
        lock = RedisLock(client, "lock:a")
        await lock.aacquire(token=uuid.uuid4().hex)
        await lock.arelease()

    await run(awaits, work())


async def in_vain(client: redis.Redis, awaits: Awaits) -> None:
    held = await RedisLock(client, "lock:a").atake(0)

    async def work() -> None:
        with contextlib.suppress(LockBusy):
            await RedisLock(client, "lock:a").atake(0.02)

    await run(awaits, work())
    assert queue_of(client) == []
    await held.arelease()


async def left_the_lock(client: redis.Redis, awaits: Awaits) -> None:
    """A task waits until it is left the lock; another waits behind it."""
    held = await RedisLock(client, "lock:a").atake(0)

    async def work() -> None:
        async with RedisLock(client, "lock:a"):
            pass

    mine = asyncio.create_task(run(awaits, work()))
    await until(lambda: mine.done() or queue_of(client))
    behind = asyncio.create_task(RedisLock(client, "lock:a").atake(DEADLINE))
    await until(lambda: mine.done() or len(queue_of(client)) == 2)
    await held.arelease()
    await mine
    await (await behind).arelease()


STORIES = [a_free_lock, a_lock_that_is_renewed, a_token_of_ones_own, in_vain, left_the_lock]


def tell(server: RealServer, story: Story, **how: Any) -> int:
    """Tell the story to its end, and then cancelled at every await; return how many there are."""
    client = server.client()
    at = 0
    while True:
        awaits = Awaits(at, **how)
        asyncio.run(asyncio.wait_for(story(client, awaits), DEADLINE))
        assert not client.exists(*KEYS), f"cancelled at await {at}"
        if not awaits.came_so_far:
            return at - 1
        at += 1


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_task_that_is_cancelled_anywhere_leaves_nothing(
    real_server: RealServer, story: Story, late: bool
) -> None:
    # It connects, takes the lock and lets it go, at the least.
    assert tell(real_server, story, late=late) >= 3


@pytest.mark.parametrize("story", STORIES)
def test_a_task_that_is_cancelled_as_it_cleans_up_leaves_nothing(
    real_server: RealServer, story: Story
) -> None:
    assert tell(real_server, story, again=2) >= 3


def test_a_coroutine_that_is_closed_as_it_waits_leaves_nothing(real_server: RealServer) -> None:
    client = real_server.client()

    @types.coroutine
    def close_when_it_waits(work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, None]:
        value = None
        while not queue_of(client):
            value = yield work.send(value)
        work.close()

    async def story() -> None:
        held = await RedisLock(client, "lock:a").atake(0)
        await close_when_it_waits(RedisLock(client, "lock:a").atake())
        await asyncio.wait_for(until(lambda: not queue_of(client)), 2)
        await held.arelease()

    asyncio.run(story())

    assert not client.exists(*KEYS)


@pytest.mark.parametrize("waits", [True, False])
def test_ctrl_c_leaves_nothing(real_server: RealServer, waits: bool) -> None:
    client = real_server.client()
    held = RedisLock(client, "lock:a" if waits else "lock:b").take()

    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with RedisLock(client, "lock:c", renew=True):
            loop.call_later(0.05, signal.raise_signal, signal.SIGINT)
            async with RedisLock(client, "lock:a", renew=True):
                await asyncio.sleep(DEADLINE)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(work())

    assert queue_of(client) == []
    held.release()
    assert not client.exists("lock:a", "lock:c")


@pytest.mark.matrix
@pytest.mark.parametrize("story", STORIES)
def test_without_the_clean_up_it_would(
    real_server: RealServer, monkeypatch: pytest.MonkeyPatch, story: Story
) -> None:
    seams.clean_nothing_up(monkeypatch)

    with pytest.raises((AssertionError, TimeoutError, asyncio.TimeoutError, LockBusy)):
        tell(real_server, story, late=True)
