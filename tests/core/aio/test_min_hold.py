"""In asyncio, too, a lock that is let go too soon is got by nobody before its ``min_hold``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core import RedisLock, clock
from tests.core.aio.helpers import run, until
from tests.core.helpers import queue_of

if TYPE_CHECKING:
    import redis

    from tests.servers import RealServer


def test_a_block_that_is_left_too_soon_keeps_it(redis_client: redis.Redis) -> None:
    async def work() -> tuple[bool, bool]:
        async with RedisLock(redis_client, "lock:a", min_hold=20) as held:
            pass
        return held.released, await RedisLock(redis_client, "lock:a").aacquire(blocking=False)

    assert run(work()) == (True, False)


def test_so_does_a_task_that_is_cancelled_in_its_block(redis_client: redis.Redis) -> None:
    async def work() -> bool:
        inside = asyncio.Event()

        async def body() -> None:
            async with RedisLock(redis_client, "lock:a", min_hold=20):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(body())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await RedisLock(redis_client, "lock:a").aacquire(blocking=False)

    assert run(work()) is False


def test_a_task_that_is_cancelled_while_it_waits_keeps_nothing(redis_client: redis.Redis) -> None:
    async def work() -> bool:
        held = await RedisLock(redis_client, "lock:a").atake(0)
        waiting = asyncio.ensure_future(RedisLock(redis_client, "lock:a", min_hold=20).atake())
        await until(lambda: queue_of(redis_client))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await held.arelease()
        return await RedisLock(redis_client, "lock:a").aacquire(blocking=False)

    assert run(work()) is True


def test_a_task_that_waits_has_it_as_soon_as_the_time_is_over(real_server: RealServer) -> None:
    client = real_server.client()

    async def work() -> float:
        began = clock.now()
        held = await RedisLock(client, "lock:a", min_hold=0.4).atake(0)
        waiting = asyncio.ensure_future(RedisLock(client, "lock:a").atake(10))
        await until(lambda: queue_of(client))
        await held.arelease()
        await waiting
        return clock.now() - began

    assert 0.39 < run(work()) < 0.55
