"""A read/write lock that its holder takes again: to read within, and to go on reading."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnavailable
from django_setnx_lock.core import RedisLock, RWLock
from django_setnx_lock.core.connections import execute
from django_setnx_lock.core.locks import parent_process
from django_setnx_lock.core.protocol import scripts
from tests.core.helpers import ask, value_of
from tests.core.sharers import shares_of
from tests.faults.controls import take_out

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


def test_whoever_lets_the_writing_go_reads_on_with_others(redis_client: redis.Redis) -> None:
    both = lock_of(redis_client)
    writing, reading = both.write().take(), both.read().take()

    writing.release()

    assert others_may_read(redis_client)
    assert shares_of(redis_client) == [reading.token]
    reading.check()
    reading.extend(10)
    with pytest.raises(LockBusy):
        RedisLock(redis_client, "lock:a").take(0)
    reading.release()
    assert value_of(redis_client) is None


def test_readers_that_wait_are_let_in_then(redis_client: redis.Redis) -> None:
    both = lock_of(redis_client)
    writing, reading = both.write().take(), both.read().take()
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(both.read().take, 20) for _ in range(2)]
        while redis_client.zcard("{lock:a}:waiters") < 2:
            pass

        writing.release()

        others = [one.result(10) for one in waiting]
    for one in (*others, reading):
        one.release()


def test_the_writing_goes_on_as_long_as_another_of_the_same_writes(
    redis_client: redis.Redis,
) -> None:
    both = lock_of(redis_client)
    outer, inner, reading = both.write().take(), both.write().take(), both.read().take()

    outer.release()
    first = others_may_read(redis_client)
    inner.release()

    assert not first
    assert others_may_read(redis_client)
    reading.release()


def test_who_reads_on_is_renewed(redis_client: redis.Redis) -> None:
    both = lock_of(redis_client, timeout=30)
    writing, reading = both.write().take(), both.read().take()
    writing.release()
    before = reading.lease.end

    reading.lease.due = 0
    reading.watchdog.watch(reading.grant)

    while reading.lease.end <= before:
        assert not reading.lost
    reading.release()


def test_what_lets_readers_in_may_arrive_twice(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def twice(io: Any, client: Any, request: Any, key: str, **options: Any) -> Any:
        if request.script.name == "shared_downgrade":
            await call(io, client, request, key)
        return await call(io, client, request, key, **options)

    call = execute.call
    both = lock_of(redis_client)
    writing, reading = both.write().take(), both.read().take()
    monkeypatch.setattr(execute, "call", twice)

    writing.release()

    reading.check()
    assert shares_of(redis_client) == [reading.token]
    reading.release()


def cut_off(monkeypatch: pytest.MonkeyPatch, name: str, *, after: bool = False) -> list[int]:
    """Have what runs the script ``name`` fail, ``after`` it was carried out or before."""

    async def failing(io: Any, client: Any, request: Any, key: str, **options: Any) -> Any:
        if request.script.name == name and not failures:
            failures.append(1)
            if after:
                await call(io, client, request, key)
            raise LockUnavailable("cut off", key=key)
        return await call(io, client, request, key, **options)

    call, failures = execute.call, list[int]()
    monkeypatch.setattr(execute, "call", failing)
    return failures


@pytest.mark.parametrize("after", [True, False])
def test_whether_or_not_it_has_arrived_the_reader_keeps_what_he_has(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    both = lock_of(redis_client)
    writing, reading = both.write().take(), both.read().take()
    cut_off(monkeypatch, "shared_downgrade", after=after)

    with pytest.raises(LockUnavailable):
        writing.release()

    reading.check()
    reading.reacquire()
    assert others_may_read(redis_client) == after
    writing.release()
    assert others_may_read(redis_client)
    reading.release()
    assert value_of(redis_client) is None


def test_a_lost_lock_is_not_read_on(redis_client: redis.Redis) -> None:
    both = lock_of(redis_client)
    writing, reading = both.write().take(), both.read().take()
    redis_client.delete("lock:a")

    with pytest.raises(LockLost):
        writing.release()

    assert reading.lost


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


def test_without_what_lets_them_in_others_would_wait_on(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch, "SHARED_DOWNGRADE", "if value ~= token then", "if true then")
    both = lock_of(redis_client)
    writing, _reading = both.write().take(), both.read().take()

    with pytest.raises(LockLost):
        writing.release()

    assert scripts.SHARED_DOWNGRADE.name == "shared_downgrade"
    assert not others_may_read(redis_client)
