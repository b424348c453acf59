from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio
from django.core.exceptions import SynchronousOnlyOperation

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnavailable, LockUnsupported
from django_setnx_lock.core import Inspector, RedisLock
from tests.core.aio.helpers import line_up, run, until
from tests.core.helpers import queue_of
from tests.processes import may_be_late

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import FakeServer, RealServer


def test_a_block_holds_the_lock(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a")

    async def work() -> tuple[Any, ...]:
        async with lock as held:
            inside = (redis_client.get("lock:a"), await lock.alocked(), await lock.aowned())
            await held.acheck()
        return (*inside, held.token.encode(), held.released, await lock.alocked())

    value, *inside, token, released, locked = run(work())

    assert value == token
    assert inside == [True, True]
    assert (released, locked) == (True, False)


def test_what_was_acquired_is_extended_reacquired_and_released(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a", timeout=10)

    async def work() -> list[float]:
        left = []
        assert await lock.aacquire() is True
        assert await lock.aextend(5) is True
        left.append(lock.remaining())
        assert await lock.aextend(20, replace_ttl=True) is True
        left.append(lock.remaining())
        assert await lock.areacquire() is True
        left.append(lock.remaining())
        await lock.acheck()
        await lock.arelease()
        return left

    longer, longest, whole = run(work())

    assert 14 < longer <= 15
    assert 19 < longest <= 20
    assert 19 < whole <= 20
    assert not redis_client.exists("lock:a")


def test_a_lock_that_is_held_is_not_acquired(redis_client: redis.Redis) -> None:
    RedisLock(redis_client, "lock:a").acquire()

    async def work() -> bool:
        with pytest.raises(LockBusy, match="is held by"):
            await RedisLock(redis_client, "lock:a").atake(0)
        return await RedisLock(redis_client, "lock:a").aacquire(blocking=False)

    assert run(work()) is False


def test_a_lock_held_in_asyncio_excludes_other_threads(redis_client: redis.Redis) -> None:
    async def work() -> bool:
        async with RedisLock(redis_client, "lock:a"):
            return await asyncio.to_thread(RedisLock(redis_client, "lock:a").acquire, None, False)

    assert run(work()) is False


def test_a_token_of_ones_own_stands_at_the_name(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a")

    async def work() -> bytes | None:
        await lock.aacquire(token="worker-7")
        value = redis_client.get("lock:a")
        await lock.arelease()
        return value  # type: ignore[return-value]  # of a synchronous client

    assert run(work()) == b"worker-7"
    assert not redis_client.exists("lock:a")


@may_be_late(0.1)
def test_a_wait_ends_in_time(redis_client: redis.Redis, late: float) -> None:
    RedisLock(redis_client, "lock:a").acquire()

    async def work() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await RedisLock(redis_client, "lock:a").aacquire(blocking_timeout=0.3) is False
        return loop.time() - began

    assert 0.29 < run(work()) < 0.3 + late
    assert queue_of(redis_client) == []


def test_a_holder_whose_lease_ends_is_followed(redis_client: redis.Redis) -> None:
    RedisLock(redis_client, "lock:a", timeout=0.2).acquire()

    async def work() -> bool:
        return await RedisLock(redis_client, "lock:a").aacquire(blocking_timeout=5)

    assert run(work()) is True


def test_tasks_have_the_lock_in_the_order_in_which_they_came(redis_client: redis.Redis) -> None:
    came: list[int] = []

    async def take(number: int) -> None:
        async with RedisLock(redis_client, "lock:a"):
            came.append(number)

    run(line_up(redis_client, 5, take))

    assert came == [0, 1, 2, 3, 4]


def test_tasks_and_threads_wait_in_one_queue(real_server: RealServer) -> None:
    client = real_server.client()
    came: list[int] = []

    def take_in_thread(number: int) -> None:
        with RedisLock(client, "lock:a"):
            came.append(number)

    async def take(number: int) -> None:
        if number % 2:
            await asyncio.to_thread(take_in_thread, number)
            return
        async with RedisLock(client, "lock:a"):
            came.append(number)

    run(line_up(client, 6, take))

    assert came == [0, 1, 2, 3, 4, 5]


def test_it_excludes_redis_pys_own_lock_and_is_excluded(real_server: RealServer) -> None:
    async def work() -> tuple[bool, bool]:
        async with redis.asyncio.Redis(port=real_server.port) as other:
            theirs = other.lock("lock:a", timeout=10)
            ours = RedisLock(other, "lock:a")
            async with ours:
                they_had_it = await theirs.acquire(blocking=False)
            async with theirs:
                return they_had_it, await ours.aacquire(blocking_timeout=0.1)

    assert run(work()) == (False, False)


def test_a_lock_that_redis_py_lets_go_is_had_soon(real_server: RealServer) -> None:
    client = real_server.client()

    async def work() -> bool:
        async with redis.asyncio.Redis(port=real_server.port) as other:
            theirs = other.lock("lock:a", timeout=10)
            await theirs.acquire()
            waiting = asyncio.ensure_future(RedisLock(client, "lock:a").aacquire())
            await until(lambda: queue_of(client))
            await theirs.release()
            return await asyncio.wait_for(waiting, 2)

    assert run(work()) is True


@pytest.mark.usefixtures("patient")
def test_two_hundred_tasks_wait_with_a_pool_of_two(real_server: RealServer) -> None:
    client = real_server.client(max_connections=2)
    inside: list[int] = []
    most: list[int] = []

    async def take(number: int) -> None:
        async with RedisLock(client, "lock:a"):
            inside.append(number)
            await asyncio.sleep(0)
            most.append(len(inside))
            inside.remove(number)

    async def work() -> None:
        await asyncio.gather(*map(take, range(200)))

    # A loop that stands still for more than the claim of who is next costs a slice of 25 s.
    run(work(), seconds=50)

    assert most == [1] * 200


def test_one_lock_object_serves_many_tasks(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a")

    async def take(number: int) -> int:
        async with lock as held:
            await asyncio.sleep(0)
            assert lock.held is held
        after: Any = lock.held
        assert after is None
        return held.fence

    async def work() -> list[int]:
        return await asyncio.gather(*map(take, range(5)))

    fences = run(work())

    assert len(set(fences)) == 5


def test_two_loops_in_two_threads_exclude_one_another(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a")
    inside: list[int] = []
    overlaps: list[int] = []

    async def work() -> None:
        for _ in range(10):
            async with lock:
                inside.append(1)
                await asyncio.sleep(0)
                overlaps.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=run, args=[work()]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert overlaps == [1] * 20


def test_an_error_of_redis_is_a_lock_that_is_unavailable(fake_server: FakeServer) -> None:
    client = fake_server.client()
    fake_server.connected = False

    async def work() -> None:
        with pytest.raises(LockUnavailable) as caught:
            await RedisLock(client, "lock:a").aacquire()
        assert caught.value.cause == "unreachable"
        with pytest.raises(LockUnavailable):
            await RedisLock(client, "lock:a").alocked()

    run(work())


def test_a_lost_connection_is_made_again(real_server: RealServer) -> None:
    client = real_server.client()

    async def work() -> None:
        lock = RedisLock(client, "lock:a")
        await lock.aacquire()
        client.client_kill_filter(_type="normal", skipme=True)
        client.script_flush()
        await lock.arelease()

    run(work())

    assert not client.exists("lock:a")


def test_what_is_released_twice_is_an_error(redis_client: redis.Redis) -> None:
    async def work() -> None:
        held = await RedisLock(redis_client, "lock:a").atake()
        await held.arelease()
        with pytest.raises(LockError, match="was released already"):
            await held.arelease()
        with pytest.raises(LockError, match="it is not held here"):
            await RedisLock(redis_client, "lock:a").arelease()

    run(work())


def test_a_lock_that_is_no_longer_ours_is_lost(redis_client: redis.Redis) -> None:
    async def work() -> None:
        lock = RedisLock(redis_client, "lock:a")
        await lock.aacquire()
        redis_client.delete("lock:a")
        assert await lock.aowned() is False
        with pytest.raises(LockLost):
            await lock.arelease()

    run(work())


def test_a_handle_goes_from_asyncio_to_a_thread_and_back(redis_client: redis.Redis) -> None:
    async def work() -> None:
        held = await RedisLock(redis_client, "lock:a", renew=True).atake()
        await asyncio.to_thread(held.check)
        await asyncio.to_thread(held.release)
        other = await asyncio.to_thread(RedisLock(redis_client, "lock:a", renew=True).take)
        await other.acheck()
        await other.arelease()

    run(work())

    assert not redis_client.exists("lock:a")


def test_a_client_of_redis_asyncio_will_do(real_server: RealServer) -> None:
    async def work() -> bool:
        async with redis.asyncio.Redis(port=real_server.port) as client:
            lock = RedisLock(client, "lock:a", renew=True)
            async with lock as held:
                with pytest.raises(SynchronousOnlyOperation, match="async with"):
                    held.check()
                return await lock.aowned()

    assert run(work()) is True


def test_a_client_of_redis_asyncio_will_not_do_where_nothing_is_awaited(
    real_server: RealServer,
) -> None:
    lock = RedisLock(redis.asyncio.Redis(port=real_server.port), "lock:a")

    with pytest.raises(TypeError, match="use async with"):
        lock.take()


@pytest.mark.parametrize("call", ["take", "acquire", "locked", "__enter__"])
def test_calls_that_block_are_refused_in_an_event_loop(
    redis_client: redis.Redis, call: str
) -> None:
    lock = RedisLock(redis_client, "lock:a")

    async def work() -> None:
        with pytest.raises(Exception, match="use the method with the prefix a"):
            getattr(lock, call)()

    run(work())

    assert not redis_client.exists("lock:a")


@pytest.mark.parametrize("call", ["release", "check", "reacquire", "owned", "locked"])
def test_what_is_refused_in_an_event_loop_leaves_the_handle_as_it_was(
    redis_client: redis.Redis, call: str
) -> None:
    async def work() -> bool:
        async with RedisLock(redis_client, "lock:a", renew=True) as held:
            with pytest.raises(Exception, match="use the method with the prefix a"):
                getattr(held, call)()
            return held.watchdog.forget(held.grant)

    assert run(work()) is True


@pytest.mark.parametrize("call", ["check", "reacquire", "release"])
def test_what_is_held_through_a_lock_object_is_not_asked_for_in_an_event_loop(
    redis_client: redis.Redis, call: str
) -> None:
    async def work() -> None:
        lock = RedisLock(redis_client, "lock:a")
        async with lock:
            with pytest.raises(Exception, match="use the method with the prefix a"):
                getattr(lock, call)()

    run(work())


@pytest.mark.parametrize(
    "look",
    [
        lambda inspector: inspector.get("lock:a"),
        lambda inspector: inspector.get_each(["lock:a"]),
        lambda inspector: inspector.find(),
        lambda inspector: inspector.force_release("lock:a", ""),
    ],
    ids=["get", "get_each", "find", "force_release"],
)
def test_nobody_looks_at_locks_in_an_event_loop(
    redis_client: redis.Redis, look: Callable[[Inspector], object]
) -> None:
    async def work() -> None:
        with pytest.raises(Exception, match="waits for Redis"):
            look(Inspector(redis_client, "lock:"))

    run(work())


def test_a_client_without_a_pool_is_refused() -> None:
    async def work() -> None:
        with pytest.raises(LockUnsupported, match="a client of one server"):
            await RedisLock(object(), "lock:a").atake()

    run(work())
