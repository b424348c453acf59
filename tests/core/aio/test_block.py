"""A task whose lock is lost is cancelled, and told why."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockLost
from django_setnx_lock.core import RedisLock
from tests.core.aio.helpers import run

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from django_setnx_lock.core import LockHandle

counted = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="cancellations are counted from Python 3.11 on"
)
LONG = 15
# One that ends soon, but not while it is being taken on a busy machine.
LEASE = 1.0


def test_a_lock_that_was_removed_cancels_the_block(redis_client: redis.Redis) -> None:
    async def work() -> None:
        with pytest.raises(LockLost, match="no longer ours") as caught:  # noqa: PT012 - a block is what is tested
            async with RedisLock(redis_client, "lock:a", timeout=3, renew=True):
                redis_client.delete("lock:a")
                await asyncio.sleep(LONG)
        assert isinstance(caught.value.__context__, asyncio.CancelledError)
        # The task goes on.
        await asyncio.sleep(0)
        assert not is_cancelled()

    run(work())


@pytest.mark.parametrize("options", [{"renew": False}, {"renew": True, "max_hold": 1}], ids=str)
def test_a_lease_that_is_over_cancels_the_block(
    redis_client: redis.Redis, options: dict[str, Any]
) -> None:
    async def work() -> None:
        with pytest.raises(LockLost):
            async with RedisLock(redis_client, "lock:a", timeout=LEASE, **options):
                await asyncio.sleep(LONG)

    run(work())


def test_a_lease_that_was_extended_cancels_the_block_when_that_is_over(
    redis_client: redis.Redis,
) -> None:
    async def work() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(LockLost):  # noqa: PT012 - as above
            async with RedisLock(redis_client, "lock:a", timeout=LEASE) as held:
                await held.aextend(2 * LEASE, replace_ttl=True)
                await asyncio.sleep(LONG)
        return loop.time() - began

    assert run(work()) > 1.95 * LEASE


def test_a_block_that_ends_in_time_is_not_cancelled(redis_client: redis.Redis) -> None:
    async def work() -> None:
        async with RedisLock(redis_client, "lock:a", timeout=LEASE):
            pass
        await asyncio.sleep(LEASE + 0.1)

    run(work())


def test_a_block_that_catches_its_cancellation_hears_of_it_at_its_end(
    redis_client: redis.Redis,
) -> None:
    caught: list[BaseException] = []

    async def work() -> None:
        with pytest.raises(LockLost):  # noqa: PT012 - as above
            async with RedisLock(redis_client, "lock:a", timeout=LEASE):
                try:
                    await asyncio.sleep(LONG)
                except asyncio.CancelledError as error:
                    caught.append(error)
                # It is cancelled once.
                await asyncio.sleep(0.1)
        assert not is_cancelled()

    run(work())

    assert len(caught) == 1


def test_an_exception_of_the_block_is_not_hidden(redis_client: redis.Redis) -> None:
    async def work() -> None:
        with pytest.raises(ValueError, match="mine") as caught:  # noqa: PT012 - a block is what is tested
            async with RedisLock(redis_client, "lock:a", timeout=LEASE):
                try:
                    await asyncio.sleep(LONG)
                finally:
                    raise ValueError("mine")
        if sys.version_info >= (3, 11):
            assert "ran out" in caught.value.__notes__[0]
        assert not is_cancelled()

    run(work())


def test_a_block_that_finds_out_itself_is_not_cancelled_besides(redis_client: redis.Redis) -> None:
    async def work() -> None:
        with pytest.raises(LockLost):  # noqa: PT012 - as above
            async with RedisLock(redis_client, "lock:a") as held:
                redis_client.delete("lock:a")
                with pytest.raises(LockLost):
                    await held.acheck()
                await asyncio.sleep(0.01)

    run(work())


def test_a_block_is_cancelled_however_it_is_to_log_what_a_release_raises(
    redis_client: redis.Redis,
) -> None:
    async def work() -> None:
        with pytest.raises(LockLost):
            async with RedisLock(
                redis_client, "lock:a", timeout=LEASE, raise_on_release_error=False
            ):
                await asyncio.sleep(LONG)

    run(work())


def test_a_cancellation_from_outside_stays_one(redis_client: redis.Redis) -> None:
    async def work() -> None:
        entered = asyncio.Event()

        async def body() -> None:
            async with RedisLock(redis_client, "lock:a"):
                entered.set()
                await asyncio.sleep(LONG)

        task = asyncio.create_task(body())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work())
    assert not redis_client.exists("lock:a")


@counted
def test_a_cancellation_from_outside_that_meets_the_loss_stays_one(
    redis_client: redis.Redis,
) -> None:
    def lose_and_cancel(held: LockHandle, task: asyncio.Task[Any]) -> None:
        # Before the task goes on.
        held.grant.lose(LockLost("gone", key="a"))
        task.cancel()

    async def work() -> None:
        async def body() -> None:
            async with RedisLock(redis_client, "lock:a") as held:
                task: Any = asyncio.current_task()
                asyncio.get_running_loop().call_soon(lose_and_cancel, held, task)
                await asyncio.sleep(LONG)

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(body())

    run(work())


@counted
def test_a_time_limit_around_the_block_is_told_from_the_loss(redis_client: redis.Redis) -> None:
    async def work() -> None:
        with pytest.raises(TimeoutError):
            async with timeout(1), RedisLock(redis_client, "lock:a", timeout=30):
                await asyncio.sleep(LONG)
        with pytest.raises(LockLost):
            async with timeout(LONG), RedisLock(redis_client, "lock:a", timeout=LEASE):
                await asyncio.sleep(LONG)
        with pytest.raises(LockLost):
            async with RedisLock(redis_client, "lock:b", timeout=LEASE), timeout(LONG):
                await asyncio.sleep(LONG)

    run(work())


def timeout(seconds: float) -> Any:
    # Type checkers read it as Python 3.10.
    make: Callable[[float], Any] = getattr(asyncio, "timeout")  # noqa: B009 - as above
    return make(seconds)


def is_cancelled() -> bool:
    task: Any = asyncio.current_task()
    return sys.version_info >= (3, 11) and bool(task.cancelling())
