"""Who waits for a lock gets it in turn, in time, or leaves nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockBusy, LockDeadlock, LockUnavailable, signals
from tests.processes import Stopwatch
from tests.servers import ONCE
from tests.support.drivers import Face
from tests.support.kinds import (
    ALL,
    CLUSTER,
    EXCLUSIVE,
    HOSTED,
    ONE_SERVER,
    PERMITS,
    QUEUED,
    READERS,
    SEVERAL,
)
from tests.support.locks import INDEX
from tests.support.rows import on

if TYPE_CHECKING:
    from tests.servers import RealServer
    from tests.support.world import World


# A waiter that nobody wakes sleeps for longer, but for one behind a group: 5 s.
WOKEN = 4.5


async def entered(lock: Face, order: list[Any], name: Any) -> None:
    async with lock.block():
        order.append(name)


@on()
async def test_a_waiter_has_it_when_it_is_let_go(a: World) -> None:
    held = await a.rival().take(0)
    job = a.spawn(a.lock().take(20))
    await a.waiting(1)
    assert not job.done()

    await held.release()

    mine = await job.result()
    await mine.check()
    await mine.release()


@on(QUEUED)
async def test_who_sleeps_is_woken_by_a_release(a: World) -> None:
    held = await a.rival(timeout=60).take(0)
    job = a.spawn(a.lock().take(20))
    await a.waiting(1)
    # The first sleep may be a short one; of the second only a release makes an end so soon.
    await a.sleep(0.5)

    await held.release()

    await a.eventually(job.done, seconds=WOKEN)
    await (await job.result()).release()


@on()
async def test_who_waits_leaves_the_random_numbers_of_the_program_alone(a: World) -> None:
    held = await a.rival().take(0)
    before = random.getstate()

    assert not await a.lock().acquire(blocking_timeout=0.05)

    assert random.getstate() == before
    await held.release()


@on(QUEUED)
async def test_a_lock_that_vanished_goes_to_who_waits_for_it(a: World) -> None:
    _held = await a.rival(timeout=60).take(0)
    job = a.spawn(a.lock().take(20))
    await a.waiting(1)
    a.direct.delete(a.kind.contested)

    assert await a.rival().acquire(blocking=False) is False

    await a.eventually(job.done, seconds=WOKEN)
    mine = await job.result()
    await mine.check()
    await mine.release()


@on(QUEUED)
async def test_who_came_first_has_it_first(a: World) -> None:
    order: list[int] = []
    held = await a.rival().take(0)
    jobs = []
    for number in range(6):
        # Of any two that follow each other one has to be in alone; who wants several keys waits at
        # the first one that is taken.
        is_ours = number == 1 if a.kind is SEVERAL else number % 2
        lock = a.lock() if is_ours else a.rival()
        jobs.append(a.spawn(entered(lock, order, number)))
        await a.waiting(number + 1)

    await held.release()

    for job in jobs:
        await job.result()
    assert order == list(range(6))


@on(QUEUED)
async def test_nobody_overtakes_who_waits(a: World) -> None:
    order: list[str] = []
    held = await a.rival().take(0)
    jobs = [a.spawn(entered(a.lock(), order, "first"))]
    await a.waiting(1)

    async def newcomer() -> None:
        while not await a.rival().acquire(blocking=False):
            await a.sleep(0)
        order.append("newcomer")

    jobs.append(a.spawn(newcomer()))
    await a.sleep(0.02)
    await held.release()

    for job in jobs:
        await job.result()
    assert order == ["first", "newcomer"]


@on([READERS])
async def test_a_reader_waits_behind_a_writer_that_came_before(a: World) -> None:
    order: list[str] = []
    async with a.lock().block():
        jobs = [a.spawn(entered(a.rival(), order, "writer"))]
        await a.waiting(1)
        jobs.append(a.spawn(entered(a.lock(), order, "reader")))
        await a.waiting(2)
        assert await a.lock().acquire(blocking=False) is False
    for job in jobs:
        await job.result()
    assert order == ["writer", "reader"]


@on([READERS])
async def test_who_gives_up_lets_in_those_behind_who_may_share_the_lock(a: World) -> None:
    async with a.lock(timeout=60).block():
        writer = a.spawn(a.rival().acquire(blocking_timeout=1))
        await a.waiting(1)
        reader = a.spawn(a.lock().take(20))
        await a.waiting(2)
        assert await writer.result() is False
        await a.eventually(reader.done, seconds=WOKEN)
    await (await reader.result()).release()


@on([EXCLUSIVE])
async def test_who_gives_up_has_another_ask_when_a_lease_ends_of_which_it_alone_was_told(
    a: World,
) -> None:
    held = await a.rival(timeout=60).take(0)
    # It does not let the lock go.
    brief = a.spawn(a.lock(timeout=1.5).take(20))
    await a.waiting(1)
    waits = a.spawn(a.lock().take(20))
    await a.waiting(2)
    last = a.spawn(a.lock().acquire(blocking_timeout=1.2))
    await a.waiting(3)
    # The first sleep of each is a short one.
    await a.sleep(0.5)

    await held.release()

    assert await last.result() is False
    await a.eventually(waits.done, seconds=WOKEN)
    await brief.result()
    await (await waits.result()).release()


@on([READERS])
async def test_readers_who_waited_are_in_together(a: World) -> None:
    writer = await a.rival().take(0)
    jobs = []
    for count in range(3):
        jobs.append(a.spawn(a.lock().take(20)))
        await a.waiting(count + 1)

    await writer.release()

    held = [await job.result() for job in jobs]
    for one in held:
        await one.check()
    for one in held:
        await one.release()


@on([READERS])
async def test_a_writer_has_it_when_the_leases_of_those_who_are_left_end(a: World) -> None:
    long = await a.lock(timeout=60).take(0)
    _short = await a.lock(timeout=1.5).take(0)
    writer = a.spawn(a.rival().take(20))
    await a.waiting(1)
    # The first sleep may be a short one.
    await a.sleep(0.5)

    await long.release()

    # On a busy machine the writer may have it by now.
    value, left = str(a.direct.get(a.kind.contested)), a.direct.pttl(a.kind.contested)
    assert left <= 1500 or not value.startswith("readers:")
    await a.eventually(writer.done, seconds=WOKEN)
    await (await writer.result()).release()


@on([PERMITS])
async def test_a_permit_that_is_returned_goes_to_who_waits_for_it(a: World) -> None:
    async with a.lock(limit=2, timeout=60).block():
        held = await a.lock(limit=2, timeout=60).take(0)
        job = a.spawn(a.lock(limit=2).take(20))
        await a.waiting(1)
        await a.sleep(0.5)

        await held.release()

        await a.eventually(job.done, seconds=WOKEN)
        await (await job.result()).release()


@on([PERMITS])
async def test_a_permit_whose_lease_is_over_is_free(a: World) -> None:
    async with a.lock(limit=2, timeout=60).block():
        lost = await a.lock(limit=2, timeout=a.kind.brief).take(0)
        mine = await a.lock(limit=2).take(20)
        assert lost.lost
        await mine.release()


@on()
@pytest.mark.parametrize("seconds", [0, 0.15])
async def test_nobody_waits_for_longer_than_told(a: World, seconds: float) -> None:
    async with a.rival().block():
        with Stopwatch() as watch, pytest.raises(LockBusy) as busy:
            await a.lock().take(seconds)

        assert busy.value.key == a.kind.contested
        assert watch.passed >= seconds
        assert watch.seconds < seconds + 2
        assert await a.lock(blocking_timeout=seconds).acquire() is False


@on()
async def test_who_gives_up_is_not_waited_for(a: World) -> None:
    held = await a.rival().take(0)
    assert await a.lock().acquire(blocking_timeout=0.02) is False
    assert a.info().waiting == 0

    await held.release()

    assert await a.rival().acquire(blocking=False) is True


@on()
async def test_without_a_limit_one_waits_until_it_is_had(a: World) -> None:
    held = await a.rival().take(0)
    job = a.spawn(a.lock(blocking_timeout=0.01).take(None))
    await a.waiting(1)
    await a.sleep(0.05)
    assert not job.done()

    await held.release()

    await (await job.result()).release()


@on(drivers=["asyncio"])
async def test_a_task_that_is_cancelled_as_it_waits_is_not_waited_for(a: World) -> None:
    held = await a.rival().take(0)
    job: Any = a.spawn(a.lock().take(20))
    await a.waiting(1)

    job.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job.task

    assert a.info().waiting == 0
    await held.release()
    assert await a.rival().acquire(blocking=False) is True


@on(QUEUED, drivers=["asyncio"])
async def test_a_task_that_is_cancelled_as_it_is_woken_does_not_keep_the_next(a: World) -> None:
    order: list[str] = []
    for _ in range(3):
        held = await a.rival().take(0)
        job: Any = a.spawn(a.rival().take(20))
        await a.waiting(1)
        behind = a.spawn(entered(a.lock(), order, "behind"))
        await a.waiting(2)
        releasing = asyncio.ensure_future(held.release())
        await asyncio.sleep(0)
        job.task.cancel()
        await releasing
        with contextlib.suppress(asyncio.CancelledError):
            await (await job.task).release()
        await behind.result()
    assert order == 3 * ["behind"]


@on([EXCLUSIVE, SEVERAL], real=True)
async def test_a_waiter_asks_for_nothing_while_nothing_happens(a: World) -> None:
    async with a.rival(timeout=30).block():
        job = a.spawn(a.lock().acquire(blocking_timeout=20))
        await a.waiting(1)
        # The first sleep is a short one, and ends late on a busy machine.
        asked = 2
        for _ in range(10):
            before = requests(a)
            await a.sleep(0.4)
            asked = min(asked, requests(a) - before)
            if asked <= 1:
                break
    assert await job.result() is True
    assert asked <= 1


def requests(a: World) -> int:
    stats: Any = a.direct.info("commandstats")
    names = ("eval", "evalsha", "set", "blpop", "brpop")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in names)


@on([kind for kind in QUEUED if kind is not CLUSTER], drivers=["asyncio"], real=True)
async def test_the_tasks_of_a_loop_sleep_on_two_connections_at_most(a: World) -> None:
    def beside(name: str) -> Face:
        return Face(EXCLUSIVE.make(a.clients, f"lock:{name}", index=INDEX), a.driver)

    held = [await a.rival().take(0), *[await beside(name).take(0) for name in "xyz"]]
    jobs: list[Any] = [a.spawn(a.lock(index=INDEX).take(20))]
    await a.waiting(1)
    jobs += [a.spawn(entered(beside(name), [], name)) for name in 3 * "xyz"]
    await a.eventually(lambda: sum(a.info(f"lock:{name}").waiting for name in "xyz") == 9)
    await a.eventually(a.sleepers)
    assert a.sleepers() <= 2

    # One that is cancelled leaves the others asleep, and all are woken.
    jobs[0].task.cancel()
    await asyncio.wait([jobs[0].task])
    for one in held:
        await one.release()
    for job in jobs[1:]:
        await job.result()
    await a.eventually(lambda: a.sleepers() == 0)


@on(QUEUED, real=True)
async def test_a_wait_goes_on_when_its_connections_break(a: World) -> None:
    held = await a.rival().take(0)
    job = a.spawn(a.lock().take(20))
    await a.waiting(1)
    for _ in range(2):
        await a.sleep(0.05)
        a.direct.client_kill_filter(_type="normal", skipme=True)
        await a.sleep(0.25)
        assert not job.done()

    await held.release()

    # It listens again.
    await a.eventually(job.done, seconds=WOKEN)
    await (await job.result()).release()


@on(ONE_SERVER, real=True)
async def test_on_a_server_that_hangs_a_caller_is_back_in_time(a: World) -> None:
    server: RealServer = a.server
    a.asks_at(server.client(socket_timeout=0.4, retry=ONCE))
    lock = a.lock(blocking_timeout=0)
    held = await lock.take()
    await held.release()
    server.pause()
    try:
        with Stopwatch() as watch, pytest.raises(LockUnavailable) as unavailable:
            await lock.take(0)
    finally:
        server.resume()

    assert unavailable.value.cause == "timeout"
    # Twice the socket's timeout, and what a busy machine takes.
    assert watch.seconds < 0.8 + 2
    # What the server was asked for before it hung is undone.
    await a.eventually(a.is_free)


@on(ONE_SERVER, real=True)
async def test_on_a_server_that_hangs_a_release_is_back_in_time(a: World) -> None:
    server: RealServer = a.server
    a.asks_at(server.client(socket_timeout=0.8, retry=ONCE))
    held = await a.lock().take(0)
    server.pause()
    try:
        with Stopwatch() as watch, pytest.raises(LockUnavailable):
            await held.release()
    finally:
        server.resume()

    assert watch.seconds < 1.6 + 2
    # It can be called again; the server may have heard the first one, too.
    await held.release()
    assert a.is_free()


@on([EXCLUSIVE], drivers=["asyncio"], real=True)
async def test_a_release_that_is_cancelled_waits_for_no_server_that_hangs(a: World) -> None:
    server: RealServer = a.server
    a.asks_at(server.client(socket_timeout=0.4, retry=ONCE))
    held = await a.lock().take(0)
    server.pause()
    resume = threading.Timer(6, server.resume)
    resume.start()
    try:
        with Stopwatch() as watch:
            release = asyncio.create_task(held.raw.arelease())
            await asyncio.sleep(0.1)
            release.cancel()
            with pytest.raises(asyncio.CancelledError):
                await release
    finally:
        resume.cancel()
        server.resume()

    assert watch.seconds < 4


@on([EXCLUSIVE], drivers=["blocking"], real=True)
async def test_the_retries_of_a_client_do_not_multiply_its_timeout(a: World) -> None:
    a.asks_at(a.server.client(socket_timeout=0.5, retry=Retry(NoBackoff(), 9)))
    held = await a.lock().take(0)
    a.server.pause()
    try:
        with Stopwatch() as watch, pytest.raises(LockUnavailable):
            await held.release()
        assert watch.seconds < 4.5
    finally:
        a.server.resume()


@on([kind for kind in ALL if kind is not SEVERAL])
async def test_listeners_are_told_of_a_wait_and_of_its_end(a: World) -> None:
    told: list[tuple[str, str]] = []

    def waits(key: str, holder: Any, **_: Any) -> None:
        told.append(("waits", holder.label))

    def has_waited(key: str, error: Any, waited: float, **_: Any) -> None:
        told.append(("has waited", type(error).__name__))

    signals.lock_waiting.connect(waits)
    signals.lock_waited.connect(has_waited)
    try:
        async with a.rival(label="view pay").block():
            assert await a.lock().acquire(blocking_timeout=0.02) is False
            job = a.spawn(a.lock().acquire(blocking_timeout=20))
            await a.eventually(lambda: len(told) == 3)
        assert await job.result() is True
    finally:
        signals.lock_waiting.disconnect(waits)
        signals.lock_waited.disconnect(has_waited)

    assert told == [
        ("waits", "view pay"),
        ("has waited", "LockBusy"),
        ("waits", "view pay"),
        ("has waited", "NoneType"),
    ]


@on([EXCLUSIVE, PERMITS, SEVERAL])
async def test_a_waiter_is_shown_to_operators(a: World) -> None:
    async with a.rival().block():
        job = a.spawn(a.lock(label="cron").acquire(blocking_timeout=20))
        await a.waiting(1)
        info = a.info()
    assert await job.result()
    (waiter,) = info.waiters
    assert waiter.holder is not None
    assert waiter.holder.label == "cron"


@on([HOSTED])
async def test_a_waiter_of_a_hosted_lock_has_a_place(a: World) -> None:
    async with a.rival().block():
        job = a.spawn(a.lock().acquire(blocking_timeout=0.5))
        try:
            await a.eventually(lambda: a.info().waiting == 1, seconds=0.3)
        finally:
            await job.result()


@on([EXCLUSIVE])
async def test_of_two_who_wait_for_each_other_one_is_refused(a: World) -> None:
    options = {"deadlock_timeout": 0.1, "index": "{lock:}:index", "renew": True}
    started: list[str] = []
    refused: list[LockDeadlock] = []

    async def work(mine: str, other: str) -> None:
        async with a.lock(mine, **options).block():
            started.append(mine)
            await a.eventually(lambda: len(started) == 2)
            try:
                async with a.lock(other, **options).block():
                    pass
            except LockDeadlock as deadlock:
                refused.append(deadlock)

    jobs = [a.spawn(work("lock:a", "lock:z")), a.spawn(work("lock:z", "lock:a"))]
    for job in jobs:
        await job.result()

    (deadlock,) = refused
    assert len(deadlock.cycle) == 2


@on(ONE_SERVER)
async def test_a_long_wait_is_told_of_in_the_log_once(
    a: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "django_setnx_lock"):
        async with a.rival(label="view pay").block():
            job = a.spawn(a.lock(wait_warning=0.05).acquire(blocking_timeout=20))
            await a.eventually(lambda: "view pay" in caplog.text)
            await a.sleep(0.1)
        assert await job.result() is True
    assert caplog.text.count("has waited") == 1


@on([SEVERAL])
async def test_what_was_lost_as_the_others_were_waited_for_is_taken_anew(a: World) -> None:
    rival = await a.rival(timeout=30).take(0)
    job = a.spawn(a.lock().take(20))
    await a.waiting(1)
    # The first of the keys is held by then.
    await a.eventually(lambda: a.direct.exists("lock:a"))
    a.direct.delete("lock:a")
    await rival.release()

    held = await job.result()

    await held.check()
    assert a.direct.exists(*a.kind.names) == 3
    await held.release()
