"""Waiters on real servers: woken in order, without asking meanwhile, and in time."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockBusy
from django_setnx_lock.core import RedisLock
from tests.processes import eventually, figure, may_be_late
from tests.support.locks import holder, listeners, queue_of
from tests.wire.helpers import ask
from tests.wire.queueing import caller, claim

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RealServer

REAL = pytest.mark.real


@contextlib.contextmanager
def waiting(client: redis.Redis, count: int) -> Iterator[list[Any]]:
    """Have ``count`` threads queue up for ``lock:a``, and join them at the end.

    Gives the list that each adds its number to, and the time, when it has the lock.
    """
    had: list[Any] = []

    def wait(number: int) -> None:
        with RedisLock(client, "lock:a"):
            had.append((number, time.monotonic()))

    with ThreadPoolExecutor(count) as pool:
        results = []
        for number in range(count):
            results.append(pool.submit(wait, number))
            eventually(lambda: len(queue_of(client)) > number)  # noqa: B023 - asked at once
        yield had
        for result in results:
            result.result(30)


@REAL
def test_waiters_have_the_lock_in_the_order_in_which_they_came(server: RealServer) -> None:
    client = server.client()
    held = holder(client)

    with waiting(client, 12) as had:
        eventually(lambda: listeners(server) == 12)
        held.release()

    assert [number for number, _ in had] == list(range(12))


@may_be_late(1)
@REAL
def test_a_waiter_is_woken_by_the_release(server: RealServer, late: float) -> None:
    client = server.client()
    held = holder(client)

    with waiting(client, 1) as had:
        eventually(lambda: listeners(server))
        released = time.monotonic()
        held.release()

    took = had[0][1] - released
    figure(f"from the release to the next holder: {took * 1000:.2f} ms")
    assert took < late


def requests_in_a_second(client: redis.Redis) -> int:
    """Return how many requests of waiters the server meets in a second."""
    client.config_resetstat()
    time.sleep(1)
    stats: dict[str, Any] = client.info("commandstats")
    asked = {name.removeprefix("cmdstat_"): one["calls"] for name, one in stats.items()}
    return sum(asked.get(name, 0) for name in ("evalsha", "eval", "blpop"))


@REAL
def test_waiters_ask_nothing_while_somebody_of_ours_holds_the_lock(server: RealServer) -> None:
    client = server.client()
    held = holder(client, 30)

    with waiting(client, 10):
        eventually(lambda: listeners(server) == 10)
        sent = requests_in_a_second(client)
        held.release()

    figure(f"10 waiters behind a lease of 30 s: {sent} requests in 1 s")
    assert sent <= 2


@may_be_late(1)
@REAL
def test_a_waiter_behind_a_foreign_holder_asks_now_and_then(
    server: RealServer, late: float
) -> None:
    client = server.client()
    theirs = client.lock("lock:a", timeout=30)
    theirs.acquire()

    with waiting(client, 1) as had:
        sent = requests_in_a_second(client)
        released = time.monotonic()
        theirs.release()

    took = had[0][1] - released
    figure(f"behind redis-py's lock: {sent} requests in 1 s, followed after {took * 1000:.0f} ms")
    # A question, and most times a sleep, each 50 to 100 ms in the end.
    assert 2 <= sent <= 60
    assert took < late


@REAL
def test_a_lock_of_redis_py_cannot_have_what_was_left_to_a_waiter(server: RealServer) -> None:
    client = server.client()
    held, waiter = holder(client), caller(client)
    ask(waiter, waits=True)
    held.release()

    assert client.lock("lock:a", timeout=30).acquire(blocking=False) is False

    assert claim(waiter).owned()


@may_be_late(0.1)
@REAL
@pytest.mark.parametrize("whose", ["ours", "foreign", "without end"])
def test_a_wait_ends_when_the_callers_time_is_over(
    server: RealServer, whose: str, late: float
) -> None:
    client = server.client()
    if whose == "ours":
        holder(client)
    else:
        client.set("lock:a", "somebody", px=30_000 if whose == "foreign" else None)
    lock = RedisLock(client, "lock:a")
    with pytest.raises(LockBusy):
        lock.take(0)

    started = time.monotonic()
    with pytest.raises(LockBusy):
        lock.take(0.35)
    took = time.monotonic() - started

    figure(f"blocking_timeout=0.35 behind a lock, {whose}: {took * 1000:.1f} ms")
    assert 0.35 <= took < 0.35 + late
    assert queue_of(client) == []


@REAL
def test_with_a_pool_of_two_connections_fifty_waiters_delay_no_release(server: RealServer) -> None:
    # A third connection is refused.
    client = server.client(max_connections=2)
    watch = server.client()
    took: list[float] = []

    def wait() -> None:
        lock = RedisLock(client, "lock:a")
        lock.acquire()
        for step in (lock.reacquire, lock.release):
            started = time.monotonic()
            step()
            took.append(time.monotonic() - started)

    with ThreadPoolExecutor(50) as threads:
        held = holder(client)
        results = [threads.submit(wait) for _ in range(50)]
        eventually(lambda: len(queue_of(watch)) == 50)
        started = time.monotonic()
        held.release()
        first = time.monotonic() - started
        for result in results:
            result.result(30)

    took.sort()
    figure(
        f"50 waiting threads, pool of 2: the release took {first * 1000:.1f} ms; "
        f"renewals and releases p50 {took[50] * 1000:.1f} ms, p99 {took[98] * 1000:.1f} ms"
    )
    assert first < 2
    assert took[98] < 2
