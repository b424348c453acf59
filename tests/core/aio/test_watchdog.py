"""One task of each event loop renews its locks, and ends with it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import LockLost
from django_setnx_lock.core import Inspector, RedisLock, StopRequest
from django_setnx_lock.core.renewal import loop_watchdog as aio_watchdog
from django_setnx_lock.core.renewal import watchdog
from tests.core.aio.helpers import is_renewed, run, until
from tests.core.helpers import ask, queue_of, value_of
from tests.faults.controls import take_out
from tests.processes import each_fork

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import redis

    from django_setnx_lock.core import LockHandle
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer


@pytest.fixture
def redis_client(real_server: RealServer) -> redis.Redis:
    """Give a client of one server: what takes its time here does so whatever the server."""
    return real_server.client()


def tasks_of_watchdogs() -> list[asyncio.Task[None]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "setnx-lock-watchdog"]


async def taken(client: redis.Redis, count: int, timeout: float) -> list[LockHandle]:
    return [
        await RedisLock(client, f"lock:{number}", timeout, renew=True).atake(0)
        for number in range(count)
    ]


def test_a_lock_is_renewed_until_it_is_released(redis_client: redis.Redis) -> None:
    async def work() -> None:
        async with RedisLock(redis_client, "lock:a", 3, renew=True) as held:
            await is_renewed(held)
            await is_renewed(held)
            await held.acheck()

    run(work())

    assert not redis_client.exists("lock:a")


def test_a_connection_that_was_closed_while_it_was_idle_is_no_trouble(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> LockHandle:
        (held,) = await taken(redis_client, 1, timeout=3)
        await is_renewed(held)
        redis_client.client_kill_filter(_type="normal", skipme=True)
        await is_renewed(held)
        return held

    with caplog.at_level(logging.INFO, "django_setnx_lock.renewal"):
        held = run(work())

    assert not held.lost
    assert not [text for text in caplog.messages if "cannot renew" in text]


def test_without_renewal_it_would_be_lost(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aio_watchdog.LoopWatchdog, "watch", lambda self, held: None)

    with pytest.raises(AssertionError):
        run(sleep_and_look(redis_client))


async def sleep_and_look(client: redis.Redis) -> None:
    held = await RedisLock(client, "lock:a", 1, renew=True).atake()
    await asyncio.sleep(1.2)
    assert not held.lost


def test_a_thousand_locks_take_one_task_and_few_round_trips(
    real_server: RealServer, proxy: Proxy
) -> None:
    client = proxy.client()

    async def work() -> tuple[int, int]:
        held = await taken(client, 1000, timeout=6)
        ends = [one.lease.end for one in held]
        before = proxy.round_trips
        await until(lambda: all(one.lease.end > end for one, end in zip(held, ends, strict=True)))
        assert not any(one.lost for one in held)
        return proxy.round_trips - before, len(tasks_of_watchdogs())

    trips, tasks = run(work())

    assert trips <= 40
    assert tasks == 1


def test_the_task_ends_when_nothing_is_held_any_more(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aio_watchdog, "LINGER", 0.05)
    monkeypatch.setattr(aio_watchdog, "LONGEST_SLEEP", 0.02)

    async def work() -> None:
        async with RedisLock(redis_client, "lock:a", renew=True):
            assert len(tasks_of_watchdogs()) == 1
        await until(lambda: not tasks_of_watchdogs())
        # And begins again.
        async with RedisLock(redis_client, "lock:a", renew=True):
            await until(tasks_of_watchdogs)

    run(work())


def test_a_blip_is_no_loss(real_server: RealServer, proxy: Proxy) -> None:
    client = proxy.client()

    async def work() -> None:
        async with RedisLock(client, "lock:a", 4, renew=True) as held:
            proxy.refuse()
            await until(lambda: held.lease.trouble)
            proxy.accept()
            await is_renewed(held)

    run(work())


def test_a_lock_whose_task_has_ended_is_renewed_no_longer(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> tuple[bool, bool]:
        one = await asyncio.create_task(left(redis_client))
        other = await asyncio.create_task(handed_over(redis_client))
        await is_renewed(other)
        await until(lambda: one.lost)
        return one.lost, other.lost

    with caplog.at_level(logging.WARNING):
        lost, handed_over_lost = run(work())

    assert (lost, handed_over_lost) == (True, False)
    assert "the task that took the lock 'lock:a' has ended" in caplog.text


async def left(client: redis.Redis) -> LockHandle:
    return await RedisLock(client, "lock:a", 1, renew=True).atake()


async def handed_over(client: redis.Redis) -> LockHandle:
    held = await RedisLock(client, "lock:b", 3, renew=True).atake()
    held.handover()
    return held


def test_a_task_that_is_cancelled_with_all_others_begins_again(redis_client: redis.Redis) -> None:
    async def work() -> None:
        async with RedisLock(redis_client, "lock:a", 3, renew=True) as held:
            for task in tasks_of_watchdogs():
                task.cancel()
            await is_renewed(held)

    run(work())


def test_a_lock_that_outlives_its_loop_is_told_of(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        held = run(RedisLock(redis_client, "lock:a", renew=True).atake())

    assert "the event loop in which the lock 'lock:a' was taken has ended" in caplog.text
    held.release()


def test_a_loop_that_has_ended_leaves_no_connection(real_server: RealServer) -> None:
    client = real_server.client(client_name="looper")

    async def work() -> None:
        await asyncio.gather(*(RedisLock(client, f"lock:{n}").aacquire() for n in range(5)))
        asyncio.get_running_loop().create_task(RedisLock(client, "lock:0").aacquire())
        await until(lambda: queue_of(client, "lock:0"))

    run(work())
    gc.collect()

    others = [one for one in client.client_list() if one["name"] == "looper"]
    assert len(others) == 1
    assert queue_of(client, "lock:0") == []


def test_a_generator_that_a_loop_closes_at_its_end_lets_its_lock_go(
    real_server: RealServer,
) -> None:
    client = real_server.client(client_name="looper")

    async def rows() -> AsyncIterator[int]:
        async with RedisLock(client, "lock:a", renew=True):
            yield 1

    async def work() -> None:
        async with RedisLock(client, "lock:b"):
            generators.append(rows())
            await generators[0].__anext__()

    generators: list[AsyncIterator[int]] = []
    run(work())
    gc.collect()

    assert not client.exists("lock:a", "lock:b")
    assert len([one for one in client.client_list() if one["name"] == "looper"]) == 1


def test_what_is_owed_at_the_end_of_a_loop_is_looked_after(
    real_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = real_server.client()
    # The lock is left to the one that died, until somebody looks.
    take_out(monkeypatch, "RELEASE", "local CLAIM = 1000 ", "local CLAIM = 60000 ")
    died, behind = RedisLock(client, "lock:a").attempt(), RedisLock(client, "lock:a").attempt()

    async def work() -> None:
        async with RedisLock(client, "lock:a"):
            await asyncio.to_thread(ask, died, waits=True)
            await asyncio.to_thread(ask, behind, waits=True)

    run(work())

    assert value_of(client) == f"baton:{behind.token}"


def test_a_loss_is_noticed_at_the_next_renewal(redis_client: redis.Redis) -> None:
    async def work() -> None:
        async with RedisLock(redis_client, "lock:a", 3, renew=True, on_lost=lost.append):
            await asyncio.to_thread(force)
            await asyncio.sleep(15)

    def force() -> None:
        seen = inspector.get("lock:a")
        inspector.force_release("lock:a", seen.fingerprint, by="ops", reason="stale")

    lost: list[LockHandle] = []
    inspector = Inspector(redis_client, "lock:")
    with pytest.raises(LockLost, match="force-released by ops: stale"):
        run(work())

    assert len(lost) == 1


@each_fork
def test_a_forked_child_owns_nothing(redis_client: redis.Redis, fork: Callable[[], int]) -> None:
    async def work() -> int:
        async with RedisLock(redis_client, "lock:a", 3, renew=True) as held:
            end = held.lease.end
            pid = fork()
            if pid == 0:
                os._exit(
                    0
                    if not held.is_here and aio_watchdog.all_watchdogs() == [watchdog.WATCHDOG]
                    else 1
                )
            _, status = os.waitpid(pid, 0)  # noqa: ASYNC222 - it ends at once
            # The parent's connections are its own still.
            await until(lambda: held.lease.end > end)
            await held.acheck()
        return status

    assert run(work()) == 0


def test_no_thread_is_started(real_server: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog.Watchdog, "_start", lambda self: pytest.fail("a thread"))
    client = real_server.client()

    async def work() -> None:
        lock = RedisLock(client, "lock:a", renew=True)
        async with lock:
            waiting = asyncio.create_task(RedisLock(client, "lock:a").atake())
            await until(lambda: queue_of(client))
        await (await waiting).arelease()

    run(work())


def test_a_task_hears_at_the_next_renewal_that_it_is_asked_to_stop(
    redis_client: redis.Redis,
) -> None:
    async def work() -> StopRequest | None:
        heard = asyncio.Event()
        async with RedisLock(redis_client, "lock:a", 1.5, renew=True) as held:
            held.on_trouble = heard.set
            await asyncio.to_thread(ask_to_stop)
            await asyncio.wait_for(heard.wait(), 10)
            return held.stop_requested

    def ask_to_stop() -> None:
        seen = inspector.get("lock:a")
        inspector.ask_to_stop("lock:a", seen.fingerprint, by="ops", reason="deploy")

    inspector = Inspector(redis_client, "lock:")

    assert str(run(work())) == "ops asks to stop: deploy"
