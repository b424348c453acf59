"""A read/write lock that its holder takes again: to read within, and to go on reading."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import LockBusy, LockError
from django_setnx_lock.core import RedisLock, RWLock
from django_setnx_lock.core.locks import parent_process
from tests.core.helpers import ask, value_of

if TYPE_CHECKING:
    from typing import Any

    import redis


def lock_of(client: redis.Redis, **options: Any) -> RWLock:
    return RWLock(client, "lock:a", reentrant=True, renew=True, **options)


def others_may_read(client: redis.Redis) -> bool:
    try:
        RedisLock(client, "lock:a", shared=True).take(0).release()
    except LockBusy:
        return False
    return True


def test_whoever_writes_may_read_within(redis_client: redis.Redis) -> None:
    both = lock_of(redis_client)

    with both.write() as writing, both.read() as reading:
        assert reading.fence == writing.fence
        assert not others_may_read(redis_client)

    assert value_of(redis_client) is None


def test_whoever_reads_may_read_again_though_a_writer_waits(redis_client: redis.Redis) -> None:
    both = lock_of(redis_client)
    with both.read():
        ask(RedisLock(redis_client, "lock:a").attempt(), waits=True)

        with both.read() as again:
            again.check()


def test_whoever_reads_and_would_write_is_told_that_he_would_wait_for_himself(
    redis_client: redis.Redis,
) -> None:
    both = lock_of(redis_client)
    with (
        both.read(),
        pytest.raises(LockError, match="would wait for itself"),
    ):
        both.write().take()

    with both.write():
        pass


def test_whoever_lets_the_writing_go_and_reads_on_holds_it_alone(redis_client: redis.Redis) -> None:
    both = lock_of(redis_client)
    writing, reading = both.write().take(), both.read().take()

    writing.release()

    assert not others_may_read(redis_client)
    reading.check()
    reading.extend(10)
    reading.release()
    assert value_of(redis_client) is None


def test_one_that_takes_another_permit_gets_another_one(redis_client: redis.Redis) -> None:
    permit = RedisLock(redis_client, "lock:a", limit=2)

    with permit as first, permit as second:
        assert first.token != second.token
        with pytest.raises(LockBusy):
            permit.take(0)


def test_a_process_that_was_started_by_a_reader_may_read_and_not_write(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = lock_of(redis_client)
    with both.read() as outer:
        place = ("here", "lock:a")
        entry = parent_process._Entry("here", "lock:a", outer.token, outer.fence, 30.0)
        monkeypatch.setattr(parent_process, "_spot_of", lambda _target: place)
        monkeypatch.setattr(parent_process, "_entries", {place: entry})
        monkeypatch.setattr(parent_process, "_followed", {})

        with ThreadPoolExecutor(1) as pool:
            within = pool.submit(lambda: both.read().take(0)).result(10)
            refused = pool.submit(lambda: both.write().take(0))

            assert isinstance(refused.exception(10), LockError)
            assert within.token == outer.token
