"""What is held is renewed through all that may happen meanwhile, and by one thread or task.

The local clock goes on when a test says so: what is due by then is renewed at once.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockLost, LockUnavailable, signals
from tests.faults.proxy import Proxy
from tests.servers import ONCE
from tests.support.children import child
from tests.support.drivers import Face, is_of_a_test
from tests.support.kinds import ALL, EXCLUSIVE, ONE_SERVER, REDLOCK, SEVERAL
from tests.support.rows import on
from tests.support.world import DUE

if TYPE_CHECKING:
    from tests.support.world import World

LEASE = 30
LOGGER = "django_setnx_lock"
# What renews has such a name.
COMMON = [EXCLUSIVE, SEVERAL]


def renewed(a: World, name: str = "", **options: Any) -> Face:
    return a.lock(name, **{"timeout": LEASE, "renew": True, **options})


@on()
async def test_a_lock_is_renewed_for_as_long_as_it_is_held(a: World) -> None:
    async with renewed(a).block() as held:
        for _ in range(5):
            await a.renewed(held, after=DUE)
            assert held.remaining() > LEASE - DUE
        await held.check()
        assert await a.rival().acquire(blocking=False) is False


@on(ONE_SERVER, real=True)
async def test_a_renewal_that_fails_is_tried_again_and_told_once(
    a: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)

    def said(what: str) -> list[str]:
        return [text for text in caplog.messages if what in text]

    with Proxy(a.server.port) as proxy:
        a.asks_at(proxy.client(retry=ONCE))
        async with renewed(a).block() as held:
            proxy.refuse()
            a.pass_time(DUE)
            await a.eventually(lambda: said("cannot renew"))
            assert not held.lost
            proxy.accept()
            await a.renewed(held)
            await a.eventually(lambda: said("is renewed again"))

    names = len(a.kind.names)
    assert len(said("cannot renew")) == len(said("is renewed again")) == names
    assert a.kind.contested in caplog.text
    assert "token" not in caplog.text


@on(ONE_SERVER, real=True)
async def test_a_connection_that_was_closed_meanwhile_is_no_trouble(
    a: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    async with renewed(a).block() as held:
        await a.renewed(held, after=DUE)
        a.direct.client_kill_filter(_type="normal", skipme=True)
        # A loop hears of it when it looks next.
        await a.sleep(0.02)
        await a.renewed(held, after=DUE)
    assert caplog.messages == []


@on(ONE_SERVER, real=True)
async def test_a_server_that_forgot_the_scripts_is_given_them_by_the_renewal(a: World) -> None:
    async with renewed(a).block() as held, renewed(a, "lock:z").block() as other:
        a.direct.script_flush()
        await a.renewed(held, other, after=DUE)
        await held.check()


@on([kind for kind in ALL if kind is not REDLOCK])
async def test_a_renewal_that_is_refused_keeps_no_other_from_being_renewed(a: World) -> None:
    held = await renewed(a, "lock:y").take(0)
    a.direct.delete("lock:y")
    a.direct.rpush("lock:y", "data")
    async with renewed(a, "lock:x").block() as before, renewed(a, "lock:z").block() as behind:
        await a.renewed(before, behind, after=DUE)
    with pytest.raises(LockLost):
        await held.check()
    assert a.direct.lrange("lock:y", 0, -1) == ["data"]
    a.direct.delete("lock:y")


@on()
async def test_listeners_are_told_of_a_renewal_that_was_late(a: World) -> None:
    told: list[dict[str, Any]] = []

    def late(**about: Any) -> None:
        told.append(about)

    signals.lock_renewed_late.connect(late)
    try:
        async with renewed(a).block() as held:
            await a.renewed(held, after=DUE)
            assert told == []
            # As when the process stood still.
            await a.renewed(held, after=25)
            await a.eventually(lambda: told)
    finally:
        signals.lock_renewed_late.disconnect(late)
    assert {one["key"] for one in told} <= set(a.kind.names)
    assert all(10 < one["late"] < 20 for one in told)


@on(real=True)
async def test_a_lock_is_lost_at_the_end_of_its_lease_though_no_server_answers(a: World) -> None:
    told: list[Any] = []
    held = await renewed(a, on_lost=told.append).take(0)
    for server in a.servers:
        server.pause()  # type: ignore[attr-defined]  # real
    try:
        a.pass_time(DUE)
        assert not held.lost
        a.pass_time(LEASE - DUE)
        assert held.lost
        await a.eventually(lambda: told)
    finally:
        for server in a.servers:
            server.resume()  # type: ignore[attr-defined]  # real
    with pytest.raises(LockLost):
        await held.check()
    assert told == [held.raw]


@on()
async def test_what_was_stood_still_over_is_lost_and_not_renewed(a: World) -> None:
    async def work() -> None:
        async with renewed(a).block() as held:
            a.pass_time(LEASE + 1)
            assert held.lost
            # It stands in Redis for a while, which no longer means that it is ours.
            assert not a.is_free()
            await a.sleep(0)

    with pytest.raises(LockLost):
        await work()

    assert a.is_free()


@on()
async def test_no_lease_is_longer_than_max_hold(a: World) -> None:
    async with a.lock(timeout=LEASE, max_hold=5).block() as held:
        assert held.remaining() <= 5
        assert a.direct.pttl(a.kind.contested) <= (6_000 if a.kind.name == "timestamp" else 5_000)


@on(ONE_SERVER, real=True)
async def test_a_release_that_could_not_be_sent_is_not_followed_by_renewals(a: World) -> None:
    with Proxy(a.server.port) as proxy:
        a.asks_at(proxy.client(retry=ONCE))
        held = await renewed(a).take(0)
        beside = EXCLUSIVE.make([a.server.client()], "lock:z", renew=True, timeout=LEASE)
        async with Face(beside, a.driver).block() as other:
            proxy.refuse()
            with pytest.raises(LockUnavailable):
                await held.release()
            proxy.accept()
            before = a.direct.pttl(a.kind.contested)
            await a.renewed(other, after=DUE)
            assert a.direct.pttl(a.kind.contested) <= before
        await held.release()
    assert a.is_free()


@on()
async def test_what_was_handed_over_is_renewed_though_its_thread_or_task_has_ended(
    a: World,
) -> None:
    handles: list[Any] = []

    async def work(hands_over: bool) -> None:
        name = "" if hands_over else "lock:z"
        handles.append(await renewed(a, name).take(0))
        if hands_over:
            handles[-1].raw.handover()

    for hands_over in (True, False):
        await a.spawn(work(hands_over)).result()
    kept, left = handles
    gc.collect()

    await a.renewed(kept, after=DUE)

    assert left.remaining() < LEASE - DUE
    a.pass_time(LEASE - DUE)
    assert left.lost
    await kept.release()


@on(COMMON, real=True)
async def test_hundreds_of_locks_take_few_round_trips(a: World) -> None:
    with Proxy(a.server.port) as proxy:
        a.asks_at(proxy.client())
        handles = [await renewed(a, f"lock:{number}").take(0) for number in range(300)]
        await a.renewed(*handles, after=DUE)
        before = proxy.round_trips
        await a.renewed(*handles, after=DUE)
        trips = proxy.round_trips - before
        for held in handles:
            await held.release()
    assert trips <= 10


@on(ONE_SERVER, drivers=["blocking"], real=True)
async def test_the_thread_ends_after_the_last_lock_and_no_lock_is_missed(a: World) -> None:
    def threads() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if "renewal" in one.name]

    # Those of other tests.
    a.pass_time(60)
    await a.eventually(lambda: not threads())

    for _ in range(3):
        async with renewed(a).block() as held:
            await a.renewed(held, after=DUE)
            assert len(threads()) == 1
            assert threads()[0].daemon
        a.pass_time(60)
        await a.eventually(lambda: not threads())


@on(ONE_SERVER, drivers=["asyncio"], real=True)
async def test_the_task_ends_after_the_last_lock_and_no_thread_is_begun(a: World) -> None:
    before = set(threading.enumerate())

    def tasks() -> list[asyncio.Task[Any]]:
        found = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        return [task for task in found if "renewal" in task.get_name()]

    for _ in range(3):
        async with renewed(a).block() as held:
            await a.renewed(held, after=DUE)
            assert len(tasks()) == 1
        a.pass_time(60)
        await a.eventually(lambda: not tasks())
    others = [one.name for one in set(threading.enumerate()) - before]
    assert [name for name in others if name.startswith("setnx-lock-renew")] == []


@on(ONE_SERVER, drivers=["asyncio"], real=True)
async def test_a_renewal_that_is_cancelled_with_all_tasks_begins_again(a: World) -> None:
    async with renewed(a).block() as held:
        for task in asyncio.all_tasks():
            if not is_of_a_test(task):
                task.cancel()
        await a.sleep(0.01)
        await a.renewed(held, after=DUE)


@on([EXCLUSIVE], drivers=["blocking"], real=True)
async def test_a_loop_that_ends_leaves_no_connection_and_tells_of_what_is_held(
    a: World, caplog: pytest.LogCaptureFixture
) -> None:
    a.asks_at(a.server.client(client_name="looper"))
    left, done, waits = renewed(a).raw, renewed(a, "lock:b").raw, renewed(a).raw
    handles: list[Any] = []

    async def rows() -> Any:
        async with done:
            yield 1

    async def work() -> None:
        handles.append(await left.atake(0))
        handles.append(asyncio.create_task(waits.aacquire()))
        # Closed by the loop at its end.
        generator = rows()
        handles.append(generator)
        await generator.__anext__()

    asyncio.run(work())
    gc.collect()

    assert not a.direct.exists("lock:b")
    assert a.info().waiting == 0
    # By the loop's end, or by that of its tasks.
    assert re.search("(in which|took) the lock 'lock:a' .*has ended", caplog.text)
    await a.eventually(lambda: "looper" not in [one["name"] for one in a.direct.client_list()])
    handles[0].release()


@on(ONE_SERVER, drivers=["blocking"], real=True)
async def test_a_lock_is_held_though_no_thread_can_be_had(a: World) -> None:
    # In a process that has no thread yet which renews.
    def work(say: Any) -> None:
        start = threading.Thread.start

        def refused(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        threading.Thread.start = refused  # type: ignore[assignment, method-assign]  # in a child
        lock = a.kind.make([server.client() for server in a.servers], renew=True, timeout=3)
        held = lock.take(0)
        threading.Thread.start = start  # type: ignore[method-assign]  # the same
        held.check()
        # The next lock has one started, for both.
        other = a.kind.make([a.server.client()], "lock:z", renew=True).take(0)
        say([held.lost, other.lost])

    with child(work) as process:
        assert process.hear() == [False, False]
