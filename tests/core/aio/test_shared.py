"""In asyncio, too, readers and holders of permits hold a lock together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import LockBusy, LockError
from django_setnx_lock.core import RedisLock, RWLock
from tests.core.aio.helpers import run, until
from tests.core.helpers import queue_of, value_of

if TYPE_CHECKING:
    import redis


def test_readers_hold_it_together_and_a_writer_waits_for_them(redis_client: redis.Redis) -> None:
    both = RWLock(redis_client, "lock:a")
    order: list[str] = []

    async def write() -> None:
        async with both.write():
            order.append("written")

    async def work() -> None:
        async with both.read(), both.read():
            writing = asyncio.ensure_future(write())
            await until(lambda: queue_of(redis_client))
            order.append("read")
        await writing

    run(work())

    assert order == ["read", "written"]


def test_no_more_than_the_limit_have_a_permit(redis_client: redis.Redis) -> None:
    async def work() -> None:
        async with (
            RedisLock(redis_client, "lock:a", limit=2),
            RedisLock(redis_client, "lock:a", limit=2),
        ):
            with pytest.raises(LockBusy):
                await RedisLock(redis_client, "lock:a", limit=2).atake(0)

    run(work())

    assert value_of(redis_client) is None


def test_whoever_lets_the_writing_go_and_reads_on_holds_it_alone(redis_client: redis.Redis) -> None:
    both = RWLock(redis_client, "lock:a", reentrant=True, renew=True)

    async def work() -> bool:
        writing, reading = await both.write().atake(), await both.read().atake()
        await writing.arelease()
        with pytest.raises(LockBusy):
            await RedisLock(redis_client, "lock:a", shared=True).atake(0)
        owned = await reading.aowned()
        await reading.arelease()
        return owned

    assert run(work())
    assert value_of(redis_client) is None


def test_whoever_reads_and_would_write_is_told(redis_client: redis.Redis) -> None:
    both = RWLock(redis_client, "lock:a", reentrant=True)

    async def work() -> None:
        async with both.read():
            with pytest.raises(LockError, match="would wait for itself"):
                await both.write().atake()

    run(work())


def test_one_that_is_cancelled_while_it_waits_leaves_the_queue(redis_client: redis.Redis) -> None:
    async def work() -> None:
        async with RedisLock(redis_client, "lock:a"):
            waiting = asyncio.ensure_future(RedisLock(redis_client, "lock:a", shared=True).atake())
            await until(lambda: queue_of(redis_client))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    run(work())

    assert queue_of(redis_client) == []
