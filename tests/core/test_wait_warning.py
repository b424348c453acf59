"""The warning in the log about a wait that takes too long."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockBusy
from django_setnx_lock.core import RedisLock, Redlock
from tests.core.aio.helpers import run, until
from tests.core.helpers import FakeTime, queue_of
from tests.core.many.helpers import many
from tests.processes import eventually
from tests.servers import FakeServer

if TYPE_CHECKING:
    from tests.servers import RealServer


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if (record.name, record.levelno) == ("django_setnx_lock.lock", logging.WARNING)
    ]


def refused(lock: Any, seconds: float) -> None:
    with pytest.raises(LockBusy):
        lock.take(seconds)


def test_a_long_wait_is_warned_of_once_with_the_holder(
    redis_client: redis.Redis, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    held = RedisLock(redis_client, "lock:a", 60, label="view pay").take()

    refused(RedisLock(redis_client, "lock:a", key="a", wait_warning=5), 40)

    (said,) = warnings(caplog)
    assert said.startswith("has waited 5.0 s for the lock 'a', held by ")
    assert "(view pay); the lease has " in said
    assert held.token not in said


@pytest.mark.parametrize(("after", "limit"), [(5, 4.9), (5, 5), (None, 40)])
def test_a_wait_that_is_not_too_long_is_not_warned_of(
    redis_client: redis.Redis,
    fake_time: FakeTime,
    caplog: pytest.LogCaptureFixture,
    after: float | None,
    limit: float,
) -> None:
    RedisLock(redis_client, "lock:a", 60).take()

    refused(RedisLock(redis_client, "lock:a", wait_warning=after), limit)

    assert warnings(caplog) == []


def test_a_wait_behind_a_foreign_holder_is_warned_of_once(
    redis_client: redis.Redis, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    redis_client.set("lock:a", "of somebody else")

    refused(RedisLock(redis_client, "lock:a", wait_warning=5), 8)

    assert warnings(caplog) == [
        "has waited 5.0 s for the lock 'lock:a', held by somebody else; the lease never expires"
    ]


def test_each_wait_is_warned_of(
    redis_client: redis.Redis, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    RedisLock(redis_client, "lock:a", 60).take()
    waiting = RedisLock(redis_client, "lock:a", wait_warning=5)

    refused(waiting, 6)
    refused(waiting, 6)

    assert len(warnings(caplog)) == 2


@pytest.mark.parametrize(
    ("holding", "wanting"),
    [({"shared": True}, {}), ({"limit": 1}, {"limit": 1})],
    ids=["readers", "permits"],
)
@pytest.mark.usefixtures("fake_time")
def test_the_warning_and_the_error_behind_those_who_share_tell_the_same_end(
    redis_client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
    holding: dict[str, Any],
    wanting: dict[str, Any],
) -> None:
    RedisLock(redis_client, "lock:a", 600, **holding).take()

    with pytest.raises(LockBusy) as caught:
        RedisLock(redis_client, "lock:a", wait_warning=12, **wanting).take(24)

    (said,) = warnings(caplog)
    _, _, left = said.partition("the lease has ")
    # The fake server's time goes on by itself.
    assert float(left.removesuffix(" s left")) == pytest.approx(caught.value.remaining, abs=5)
    assert caught.value.remaining == pytest.approx(600, abs=5)


@pytest.mark.usefixtures("fake_connections")
def test_a_task_is_warned_of_too(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    RedisLock(redis_client, "lock:a", label="view pay").take()

    async def work() -> None:
        lock = RedisLock(redis_client, "lock:a", wait_warning=0.1)
        task = asyncio.ensure_future(lock.atake(20))
        await until(lambda: warnings(caplog))
        task.cancel()
        await asyncio.wait([task])

    run(work())

    (said,) = warnings(caplog)
    assert "for the lock 'lock:a', held by " in said
    assert "(view pay)" in said


def test_a_wait_for_several_keys_is_warned_of_once_with_the_one_that_is_busy_then(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = (RedisLock(redis_client, f"lock:{key}", 60, label=key).take() for key in "ab")

    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(refused, many(redis_client, "ab", wait_warning=0.5), 1)
        eventually(lambda: queue_of(redis_client, "lock:a"))
        first.release()
        taken.result(20)

    (said,) = warnings(caplog)
    assert said.startswith("has waited 0.5 s for the lock 'b', held by ")
    assert "(b)" in said


def test_a_wait_for_a_redlock_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    clients = [FakeServer().client() for _ in range(3)]
    Redlock(clients, "lock:a", master_timeout=9, label="view pay").take()

    refused(Redlock(clients, "lock:a", master_timeout=9, wait_warning=0.2), 0.6)

    (said,) = warnings(caplog)
    assert "(view pay)" in said


def test_the_warning_names_the_holder_of_now(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    holder = RedisLock(redis_client, "lock:a", label="the first").take()
    second = RedisLock(redis_client, "lock:a", label="the second", thread_local=False)
    third = RedisLock(redis_client, "lock:a", wait_warning=0.5)

    with ThreadPoolExecutor(2) as pool:
        next_one = pool.submit(second.take, 20)
        eventually(lambda: len(queue_of(redis_client)) == 1)
        last = pool.submit(refused, third, 1)
        eventually(lambda: len(queue_of(redis_client)) == 2)
        holder.release()
        next_one.result(20)
        last.result(20)

    (said,) = warnings(caplog)
    assert "(the second)" in said


def test_those_that_wait_keep_their_order_over_a_warning(
    real_server: RealServer, caplog: pytest.LogCaptureFixture
) -> None:
    client = real_server.client()
    holder = RedisLock(client, "lock:a").take()

    def wait(after: float | None) -> int:
        with RedisLock(client, "lock:a", renew=True, wait_warning=after).take(20) as held:
            return held.fence

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(wait, 0.2)
        eventually(lambda: len(queue_of(client)) == 1)
        second = pool.submit(wait, None)
        eventually(lambda: len(queue_of(client)) == 2)
        eventually(lambda: warnings(caplog))
        holder.release()
        fences = [first.result(20), second.result(20)]

    assert fences == sorted(fences)


def test_a_lock_that_is_let_go_as_the_warning_comes_is_had_at_once(real_server: RealServer) -> None:
    client = real_server.client()
    took: list[float] = []

    for step in range(24):
        waiting = RedisLock(client, "lock:a", wait_warning=0.08)
        holder = RedisLock(client, "lock:a", thread_local=False).take()
        with ThreadPoolExecutor(1) as pool:
            taken = pool.submit(taken_at, waiting)
            time.sleep(0.07 + step * 0.001)
            let_go = time.monotonic()
            holder.release()
            took.append(taken.result(20) - let_go)

    # One that slept on beside the free lock would wait until the lease of 30 s ends.
    assert max(took) < 4


def taken_at(lock: RedisLock) -> float:
    with lock.take(20):
        return time.monotonic()


def calls(client: redis.Redis) -> dict[str, int]:
    """Return how often the server was asked what a waiting caller asks, since it was reset."""
    stats: dict[str, Any] = client.info("commandstats")
    return {name: stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "blpop")}


def calls_of_a_wait(client: redis.Redis, after: float | None) -> dict[str, int]:
    client.config_resetstat()
    refused(RedisLock(client, "lock:a", wait_warning=after), 0.5)
    return calls(client)


def test_a_warning_costs_one_request(real_server: RealServer) -> None:
    client = real_server.client()
    RedisLock(client, "lock:a").take()
    without = calls_of_a_wait(client, None)

    found = calls_of_a_wait(client, 0.2)

    assert found["evalsha"] == without["evalsha"] + 1


def test_a_wait_that_is_shorter_costs_nothing_more(real_server: RealServer) -> None:
    client = real_server.client()
    RedisLock(client, "lock:a").take()
    without = calls_of_a_wait(client, None)

    assert calls_of_a_wait(client, 20) == without


@pytest.mark.parametrize("after", [0, -1, True, "5", float("nan")], ids=repr)
def test_a_time_that_is_none_is_refused(after: Any) -> None:
    with pytest.raises(ValueError, match="wait_warning"):
        RedisLock(None, "lock:a", wait_warning=after)
