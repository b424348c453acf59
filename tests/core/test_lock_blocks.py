from __future__ import annotations

import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from django_setnx_lock import LockBusy, LockError, LockLost
from django_setnx_lock.core import LockHandle, RedisLock
from tests.core.helpers import in_thread


def test_a_with_block_gives_the_handle_and_releases_at_its_end(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a")

    with lock as held:
        assert isinstance(held, LockHandle)
        assert held is lock.held
        assert lock.fence == held.fence
        assert lock.locked()

    assert held.released
    assert {lock.held, lock.fence, lock.token} == {None}
    assert not lock.locked()


def test_a_with_block_of_a_busy_lock_is_not_entered(redis_client: redis.Redis) -> None:
    RedisLock(redis_client, "lock:a", label="view pay").acquire()

    with (
        pytest.raises(LockBusy) as caught,
        RedisLock(redis_client, "lock:a", blocking=False, key="a"),
    ):
        pytest.fail("entered")

    assert caught.value.key == "a"
    assert caught.value.holder is not None
    assert caught.value.holder.label == "view pay"
    assert caught.value.remaining == pytest.approx(30, abs=1)


def test_leaving_a_block_whose_lock_was_lost_raises(redis_client: redis.Redis) -> None:
    with pytest.raises(LockLost), RedisLock(redis_client, "lock:a"):
        redis_client.delete("lock:a")


def test_leaving_a_block_can_log_what_went_wrong_instead(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, logger="django_setnx_lock"),
        RedisLock(redis_client, "lock:a", raise_on_release_error=False),
    ):
        redis_client.delete("lock:a")

    assert "no longer ours" in caplog.text


def test_the_error_of_a_body_is_never_hidden(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a")

    def body() -> None:
        with lock:
            redis_client.delete("lock:a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        body()

    if sys.version_info >= (3, 11):
        assert ["no longer ours" in note for note in caught.value.__notes__] == [True]


def test_a_body_that_fails_still_releases(redis_client: redis.Redis) -> None:
    with pytest.raises(ZeroDivisionError), RedisLock(redis_client, "lock:a"):
        raise ZeroDivisionError

    assert not redis_client.exists("lock:a")


def test_a_body_may_release_before_its_end(redis_client: redis.Redis) -> None:
    with RedisLock(redis_client, "lock:a") as held:
        held.release()
        RedisLock(redis_client, "lock:a").acquire()

    assert redis_client.exists("lock:a")


def test_leaving_a_block_in_another_thread_is_a_clear_error(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a")
    lock.__enter__()

    with pytest.raises(LockError):
        in_thread(lambda: lock.__exit__(None, None, None))

    assert lock.owned()


def test_a_block_that_outlived_its_lease_does_not_release_the_next_threads(
    redis_client: redis.Redis,
) -> None:
    lock = RedisLock(redis_client, "lock:a", thread_local=False)
    entered, leave = threading.Event(), threading.Event()

    def next_holder() -> bool:
        with lock as held:
            entered.set()
            leave.wait(10)
            return held.owned()

    with ThreadPoolExecutor(1) as pool:
        lock.__enter__()
        redis_client.delete("lock:a")
        result = pool.submit(next_holder)
        entered.wait(10)
        with pytest.raises(LockLost):
            lock.__exit__(None, None, None)
        leave.set()

        assert result.result(10)
