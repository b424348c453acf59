"""``lock.local.token``: by which one caller says that it holds what another one took."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.lock
import redis.lock
from django.core.exceptions import SynchronousOnlyOperation

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnsupported
from django_setnx_lock.core import RedisLock, Redlock
from tests.core.helpers import in_thread
from tests.core.redis_py import NAME, both
from tests.processes import eventually
from tests.servers import FakeServer, RealServer


@both
@pytest.mark.parametrize("token", ["worker-7", b"worker-7"], ids=repr)
def test_what_another_caller_took_is_released_by_its_token(
    library: Any, redis_client: redis.Redis, token: Any
) -> None:
    library(redis_client, NAME, timeout=20).acquire(token="worker-7")
    lock = library(redis_client, NAME, timeout=20)
    # As redis-py encodes what it is to keep.
    lock.local.token = token if library is RedisLock else b"worker-7"

    assert lock.local.token == b"worker-7"
    assert lock.owned() is True
    assert lock.extend(20) is True
    assert redis_client.pttl(NAME) > 30_000
    assert lock.extend(5, replace_ttl=True) is True
    assert lock.reacquire() is True
    lock.release()

    assert lock.local.token is None
    assert not redis_client.exists(NAME)


@both
def test_a_token_that_holds_nothing_is_no_token_after_the_release(
    library: Any, redis_client: redis.Redis
) -> None:
    library(redis_client, NAME, timeout=20).acquire()
    lock = library(redis_client, NAME, timeout=20)
    lock.local.token = b"another"

    assert lock.owned() is False
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        lock.extend(5)
    assert lock.local.token == b"another"
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        lock.release()

    assert lock.local.token is None
    assert redis_client.exists(NAME)


@both
def test_a_thread_sees_the_token_of_another_one_only_if_it_is_meant_to(
    library: Any, redis_client: redis.Redis
) -> None:
    apart = library(redis_client, "lock:apart", timeout=20)
    together = library(redis_client, "lock:together", timeout=20, thread_local=False)
    for lock in (apart, together):
        lock.acquire(token="worker-7")

    assert in_thread(lambda: getattr(apart.local, "token", None)) is None
    assert in_thread(lambda: together.local.token) == b"worker-7"
    for lock in (apart, together):
        lock.local.token = b"worker-8"
    assert in_thread(lambda: getattr(apart.local, "token", None)) is None
    assert in_thread(lambda: together.local.token) == b"worker-8"


@both
def test_a_token_may_be_forgotten(library: Any, redis_client: redis.Redis) -> None:
    lock = library(redis_client, NAME, timeout=20)
    lock.acquire()
    lock.local.token = None

    with pytest.raises(LockError if library is RedisLock else redis.exceptions.LockError):
        lock.release()

    assert lock.owned() is False
    assert redis_client.exists(NAME)


@pytest.mark.parametrize(
    ("giver", "taker"),
    [(redis.lock.Lock, RedisLock), (RedisLock, redis.lock.Lock)],
    ids=["redis-py to ours", "ours to redis-py"],
)
def test_a_lock_is_handed_from_one_library_to_the_other(
    giver: Any, taker: Any, redis_client: redis.Redis
) -> None:
    given, taken = giver(redis_client, NAME, timeout=20), taker(redis_client, NAME, timeout=20)
    given.acquire()

    taken.local.token = given.local.token
    assert taken.owned() is True
    taken.release()

    assert not redis_client.exists(NAME)
    assert given.owned() is False


def test_what_stands_in_redis_is_known_once_it_was_asked(redis_client: redis.Redis) -> None:
    with RedisLock(redis_client, NAME, timeout=20) as held:
        lock = RedisLock(redis_client, NAME, timeout=30)
        lock.local.token = held.local.token

        before = (lock.fence, lock.remaining())
        lock.check()

        assert before == (None, 0.0)
        assert lock.fence == held.fence
        assert 16 < lock.remaining() <= 20


def test_of_what_another_token_holds_nothing_is_told(redis_client: redis.Redis) -> None:
    RedisLock(redis_client, NAME, timeout=20).acquire()
    losses: list[object] = []
    lock = RedisLock(redis_client, NAME, timeout=20, on_lost=losses.append)
    lock.local.token = "another"

    with pytest.raises(LockLost):
        lock.check()

    assert (lock.fence, lock.remaining(), losses) == (None, 0.0, [])


def test_what_redis_py_took_has_a_fence_below_all_of_ours(redis_client: redis.Redis) -> None:
    with RedisLock(redis_client, NAME):
        # Its fence is still there afterwards, and is not that of the next holder.
        pass
    redis.lock.Lock(redis_client, NAME).acquire(token="worker-7")
    lock = RedisLock(redis_client, NAME, timeout=20)
    lock.local.token = "worker-7"

    lock.check()

    assert lock.fence == 0
    # It never expires there.
    assert 16 < lock.remaining() <= 20


def test_a_lock_that_is_to_be_renewed_is_from_then_on(real_server: RealServer) -> None:
    client = real_server.client()
    RedisLock(client, NAME, timeout=20).acquire(token="worker-7")
    lock = RedisLock(client, NAME, timeout=6, renew=True)
    lock.local.token = "worker-7"
    client.pexpire(NAME, 5_000)

    assert lock.owned() is True

    eventually(lambda: client.pttl(NAME) > 5_000)
    lock.release()


def test_to_acquire_takes_the_place_of_what_was_assigned(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, NAME, timeout=20)
    lock.local.token = "another"

    assert lock.acquire() is True

    assert lock.local.token == redis_client.get(NAME)
    lock.release()
    assert lock.local.token is None


def test_its_own_token_changes_nothing(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, NAME, timeout=20)
    lock.acquire()
    held = lock.held

    lock.local.token = lock.local.token

    assert lock.held is held
    assert lock.held is not None


def test_a_block_is_left_as_it_was_entered_whatever_was_assigned(
    redis_client: redis.Redis,
) -> None:
    lock = RedisLock(redis_client, NAME, timeout=20)
    with lock as held:
        assert held.local.token == redis_client.get(NAME)
        lock.local.token = None

    assert held.local.token is None
    assert not redis_client.exists(NAME)


def test_to_assign_asks_nobody() -> None:
    server = FakeServer()
    server.connected = False
    lock = RedisLock(server.client(), NAME, timeout=20)

    lock.local.token = "worker-7"

    assert lock.token == "worker-7"


@pytest.mark.parametrize(
    ("token", "error"), [("", ValueError), (b"\xff", ValueError), (7, TypeError)], ids=repr
)
def test_what_is_no_token_is_refused(token: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="a token"):
        RedisLock(None, NAME).local.token = token


@pytest.mark.parametrize("kind", [{"protocol": "timestamp"}, {"polling": True}], ids=str)
def test_a_kind_that_has_no_token_at_its_name_is_refused(kind: Any) -> None:
    with pytest.raises(LockUnsupported, match="by a token of another"):
        RedisLock(None, NAME, **kind).local.token = "worker-7"


def test_a_lock_on_several_masters_is_refused() -> None:
    clients = [redis.Redis(host=f"r{number}.invalid") for number in range(3)]

    with pytest.raises(LockUnsupported, match="by a token of another"):
        Redlock(clients, NAME, timeout=20).local.token = "worker-7"


def test_it_tells_of_a_loss_and_keeps_others_out(redis_client: redis.Redis) -> None:
    RedisLock(redis_client, NAME, timeout=20).acquire(token="worker-7")
    lock = RedisLock(redis_client, NAME, timeout=20)
    lock.local.token = "worker-7"
    lock.check()

    with pytest.raises(LockBusy):
        RedisLock(redis_client, NAME).take(0)
    redis_client.delete(NAME)
    with pytest.raises(LockLost):
        lock.check()


def test_threads_that_share_it_may_ask_at_once(real_server: RealServer) -> None:
    client = real_server.client()
    RedisLock(client, NAME, timeout=20).acquire(token="worker-7")
    lock = RedisLock(client, NAME, timeout=20, thread_local=False)
    lock.local.token = "worker-7"
    start = threading.Barrier(4, timeout=10)

    def ask() -> bool:
        start.wait()
        return lock.owned()

    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(ask())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    lock.release()

    assert found == [True] * 4
    assert not client.exists(NAME)


@pytest.mark.parametrize("library", [redis.asyncio.lock.Lock, RedisLock], ids=["redis-py", "ours"])
def test_a_task_releases_by_a_token_too(library: Any, real_server: RealServer) -> None:
    client = real_server.client()
    RedisLock(client, NAME, timeout=20).acquire()

    async def work() -> None:
        async with redis.asyncio.Redis(port=real_server.port) as own:
            lock = own.lock(NAME, timeout=20, lock_class=library)
            lock.local.token = client.get(NAME)

            assert await lock.owned() is True
            assert await lock.extend(5) is True
            assert await lock.reacquire() is True
            await lock.release()
            assert lock.local.token is None

            lock.local.token = b"another"
            assert await lock.owned() is False
            with pytest.raises(redis.exceptions.LockNotOwnedError):
                await lock.release()
            assert lock.local.token is None

    asyncio.run(work())

    assert not client.exists(NAME)


def test_a_block_that_would_not_be_awaited_is_refused(real_server: RealServer) -> None:
    async def work() -> None:
        async with redis.asyncio.Redis(port=real_server.port) as client:
            # As redis-py types what its asyncio client makes.
            held: Any = await RedisLock(client, NAME).atake()
            with pytest.raises(SynchronousOnlyOperation, match="async with"):
                held.check()
            with pytest.raises(TypeError, match="use async with"), held:
                pytest.fail("it was entered")
            assert await held.owned() is True
            await held.release()
            assert await held.locked() is False

    asyncio.run(work())
