from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest
import redis

from django_setnx_lock import LockError
from django_setnx_lock.core import LockHandle, RedisLock
from tests.core.helpers import FakeTime, in_thread


def test_with_thread_local_another_thread_sees_nothing(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a", blocking=False)
    lock.acquire()

    assert in_thread(lambda: (lock.held, lock.owned(), lock.fence)) == (None, False, None)
    assert in_thread(lock.acquire) is False
    with pytest.raises(LockError, match="not held here"):
        in_thread(lock.release)
    assert lock.owned()


def test_without_thread_local_another_thread_may_release(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a", thread_local=False)
    lock.acquire()

    assert in_thread(lock.owned)
    in_thread(lock.release)

    assert lock.held is None
    assert not lock.locked()


def test_two_threads_that_release_at_once_do_not_trip_each_other(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = RedisLock(redis_client, "lock:a", thread_local=False)
    lock.acquire()
    both = threading.Barrier(2, timeout=10)
    release = LockHandle.release

    def together(held: LockHandle) -> None:
        both.wait()
        release(held)

    monkeypatch.setattr(LockHandle, "release", together)
    with ThreadPoolExecutor(2) as pool:
        results = [pool.submit(lock.release) for _ in range(2)]
        errors = [type(result.exception(10)) for result in results]

    assert set(errors) <= {type(None), LockError}


def test_a_lock_whose_leases_are_left_to_run_out_forgets_them(
    redis_client: redis.Redis, fake_time: FakeTime
) -> None:
    lock = RedisLock(redis_client, "lock:a")
    seen = []
    for _ in range(20):
        assert lock.acquire(blocking=False)
        seen.append(weakref.ref(cast(LockHandle, lock.held)))
        redis_client.delete("lock:a")
        fake_time.now += 31

    gc.collect()
    assert [held() for held in seen] == [None] * 19 + [lock.held]


def test_a_clean_release_after_an_earlier_loss_leaves_nothing_lost(
    redis_client: redis.Redis,
) -> None:
    lock = RedisLock(redis_client, "lock:a")
    lock.acquire()
    redis_client.delete("lock:a")
    assert not lock.owned()

    with lock:
        pass

    assert not lock.lost
    assert lock.held is None
