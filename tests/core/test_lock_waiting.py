from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockError
from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.connections.backends import Backend
from django_setnx_lock.core.locks import mailbox
from django_setnx_lock.core.locks.attempt import AcquireAttempt
from django_setnx_lock.core.locks.mailbox import Mailbox
from tests.core.helpers import FakeTime, queue_of
from tests.processes import eventually, may_be_late


@pytest.mark.parametrize("blocking_timeout", [-1, float("nan"), True, "5"], ids=repr)
def test_a_wait_that_is_no_number_is_refused_at_once(blocking_timeout: Any) -> None:
    with pytest.raises(ValueError, match="blocking_timeout"):
        RedisLock(None, "lock:a", blocking_timeout=blocking_timeout)


def test_a_wait_that_is_no_number_is_refused_when_acquiring(redis_client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="blocking_timeout") as caught:
        RedisLock(redis_client, "lock:a").acquire(blocking_timeout=-1)

    assert not isinstance(caught.value, LockError)
    assert not redis_client.exists("lock:a")


def test_waiting_ends_when_the_holder_releases(redis_client: redis.Redis) -> None:
    holder = RedisLock(redis_client, "lock:a").take()
    waiting = RedisLock(redis_client, "lock:a", thread_local=False)

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(waiting.acquire, blocking_timeout=30)
        eventually(lambda: queue_of(redis_client))
        holder.release()

        assert result.result(10) is True
    assert waiting.owned()


@may_be_late(0.15)
def test_waiting_ends_when_the_lease_does(redis_client: redis.Redis, late: float) -> None:
    RedisLock(redis_client, "lock:a", timeout=0.2).acquire()

    started = time.monotonic()
    held = RedisLock(redis_client, "lock:a").take(5)

    assert held.owned()
    assert 0.15 < time.monotonic() - started < 0.2 + late


@pytest.mark.parametrize("limit", [0.05, 0.3, 1, 10])
def test_a_wait_lasts_as_long_as_asked(
    redis_client: redis.Redis, fake_time: FakeTime, limit: float
) -> None:
    RedisLock(redis_client, "lock:a").acquire()
    started = fake_time.now

    assert RedisLock(redis_client, "lock:a").acquire(blocking_timeout=limit) is False

    assert fake_time.now - started == pytest.approx(limit, abs=1e-6)


def test_a_wait_is_as_long_as_asked_although_each_answer_takes_its_time(
    redis_client: redis.Redis, fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    RedisLock(redis_client, "lock:a").acquire()
    started = fake_time.now
    ask = AcquireAttempt.ask

    async def slow(turn: AcquireAttempt, io: Backend, **options: Any) -> Any:
        fake_time.now += 0.045
        return await ask(turn, io, **options)

    monkeypatch.setattr(AcquireAttempt, "ask", slow)
    assert RedisLock(redis_client, "lock:a").acquire(blocking_timeout=0.25) is False

    assert fake_time.now - started < 0.25 + 0.1


def test_without_waiting_redis_is_asked_once(
    redis_client: redis.Redis, fake_time: FakeTime
) -> None:
    RedisLock(redis_client, "lock:a").acquire()

    RedisLock(redis_client, "lock:a").acquire(blocking=False)

    assert not fake_time.slept


def test_a_wait_without_limit_goes_on(
    redis_client: redis.Redis, fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = RedisLock(redis_client, "lock:a", timeout=10_000).take()

    async def release_some_time(mailbox: Mailbox, token: str, seconds: float) -> None:
        fake_time.sleep(seconds)
        if len(fake_time.slept) == 100:
            holder.release()

    monkeypatch.setattr(Mailbox, "sleep", release_some_time)

    assert RedisLock(redis_client, "lock:a").take(None).owned()
    assert len(fake_time.slept) == 100
    assert sum(fake_time.slept) > 90 * mailbox.SLICE_MS / 1000


def test_a_waiter_that_is_interrupted_leaves_the_queue(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    RedisLock(redis_client, "lock:a").acquire()

    async def interrupt(mailbox: Mailbox, token: str, seconds: float) -> None:
        assert queue_of(redis_client) == [token]
        raise KeyboardInterrupt

    monkeypatch.setattr(Mailbox, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        RedisLock(redis_client, "lock:a").acquire(blocking_timeout=10)

    assert queue_of(redis_client) == []


def test_a_foreign_lock_without_a_lease_is_waited_for_and_never_broken(
    redis_client: redis.Redis, fake_time: FakeTime
) -> None:
    redis_client.set("lock:a", "somebody")

    with pytest.raises(LockBusy, match="somebody else; the lease never expires") as caught:
        RedisLock(redis_client, "lock:a").take(60)

    assert caught.value.remaining is None
    assert redis_client.get("lock:a") == b"somebody"
