from __future__ import annotations

from typing import Any

import pytest
import redis
import redis.asyncio

from django_setnx_lock import LockBusy, LockError
from django_setnx_lock.core import RedisLock


def test_a_free_lock_is_acquired_and_released(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a")

    assert lock.acquire() is True
    assert lock.locked()
    assert lock.owned()
    lock.release()

    assert not lock.locked()
    assert not lock.owned()


def test_a_lock_that_is_held_is_not_acquired(redis_client: redis.Redis) -> None:
    RedisLock(redis_client, "lock:a").acquire()

    assert RedisLock(redis_client, "lock:a", blocking=False).acquire() is False
    assert RedisLock(redis_client, "lock:a").acquire(blocking=False) is False
    assert RedisLock(redis_client, "lock:a").acquire(blocking_timeout=0) is False


def test_locks_of_different_names_do_not_exclude_one_another(redis_client: redis.Redis) -> None:
    RedisLock(redis_client, "lock:a").acquire()

    assert RedisLock(redis_client, "lock:b").acquire(blocking=False)


def test_there_is_always_a_lease(redis_client: redis.Redis) -> None:
    RedisLock(redis_client, "lock:a", timeout=None).acquire()

    assert 29_000 < redis_client.pttl("lock:a") <= 30_000


def test_what_stands_at_the_name_is_the_token_alone(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a")
    lock.acquire()

    value = redis_client.get("lock:a")

    assert lock.token is not None
    assert value == lock.token.encode()


@pytest.mark.parametrize(
    "timeout",
    [0, -1, 0.0, float("nan"), float("inf"), True, "5", 10**400],
    ids=lambda t: repr(t)[:9],
)
def test_a_lease_that_is_no_positive_number_is_refused_at_once(timeout: Any) -> None:
    with pytest.raises(ValueError, match="timeout") as caught:
        RedisLock(None, "lock:a", timeout)

    assert not isinstance(caught.value, LockError)


def test_a_name_that_is_no_text_is_refused_at_once() -> None:
    name: Any = b"lock:a"
    with pytest.raises(TypeError, match="is a str"):
        RedisLock(None, name)


def test_each_holder_has_a_larger_fence(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a")
    fences = []
    for _ in range(20):
        with lock as held:
            fences.append(held.fence)

    assert fences == sorted(set(fences))


def test_a_fence_grows_across_a_lease_that_ran_out(redis_client: redis.Redis) -> None:
    first = RedisLock(redis_client, "lock:a").take()
    redis_client.delete("lock:a")

    second = RedisLock(redis_client, "lock:a").take()

    assert second.fence > first.fence


def test_a_lock_not_held_cannot_be_released(redis_client: redis.Redis) -> None:
    with pytest.raises(LockError, match="cannot release the lock 'a': it is not held here"):
        RedisLock(redis_client, "lock:a", key="a").release()


@pytest.mark.parametrize("what", ["release", "check", "reacquire"])
def test_a_lock_that_was_released_is_not_held(redis_client: redis.Redis, what: str) -> None:
    lock = RedisLock(redis_client, "lock:a")
    lock.acquire()
    lock.release()

    with pytest.raises(LockError, match="it is not held here"):
        getattr(lock, what)()


def test_what_is_not_held_has_no_time_left_and_is_not_lost(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a")

    assert lock.remaining() == 0.0
    assert not lock.lost
    assert lock.held is None


def test_a_held_lock_is_extended_checked_and_reacquired(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a", timeout=10)
    lock.acquire()

    assert lock.extend(5) is True
    assert 11 < lock.remaining() <= 15
    assert lock.extend(20, replace_ttl=True) is True
    assert 16 < lock.remaining() <= 20
    assert lock.reacquire() is True
    assert 16 < lock.remaining() <= 20
    lock.check()
    assert not lock.lost


def test_a_lock_is_not_reentrant_here(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a")
    lock.acquire()

    assert lock.acquire(blocking=False) is False


@pytest.mark.parametrize("options", [{"blocking": False}, {"blocking_timeout": 0}], ids=str)
def test_take_waits_as_the_lock_was_told_to(
    redis_client: redis.Redis, options: dict[str, Any]
) -> None:
    RedisLock(redis_client, "lock:a").acquire()

    with pytest.raises(LockBusy):
        RedisLock(redis_client, "lock:a", **options).take()


def test_a_client_of_asyncio_is_none_for_calls_that_block() -> None:
    with pytest.raises(TypeError, match="use async with"):
        RedisLock(redis.asyncio.Redis(), "lock:a").take()
