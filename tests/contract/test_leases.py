"""There is always a lease: it is renewed, extended, never cut, and ends with its owner."""

from __future__ import annotations

import gc
import re
import threading
from typing import Any

import pytest

from django_setnx_lock import LockError
from tests.support.drivers import Face
from tests.support.kinds import EXCLUSIVE, READERS, REDLOCK, SEVERAL, SINGLE, TIMESTAMP
from tests.support.renewals import end_of
from tests.support.rows import on
from tests.support.world import DUE, World


@on()
async def test_what_was_let_go_is_renewed_no_longer(a: World) -> None:
    async with a.lock(timeout=30, renew=True).block() as held:
        pass
    assert a.is_free()
    assert held.remaining() == 0
    async with (
        a.rival(timeout=30).block() as other,
        a.lock("lock:z", timeout=30, renew=True).block() as one,
    ):
        await a.renewed(one, after=DUE)
        assert held.remaining() == 0
        await other.check()


@on()
async def test_without_renew_a_lease_ends(a: World) -> None:
    held = await a.lock(timeout=a.kind.brief).take(20)
    assert held.remaining() <= a.kind.brief

    await a.eventually(lambda: held.lost)
    await a.eventually(a.is_free)

    assert held.remaining() == 0


@on()
async def test_a_lease_is_renewed_for_max_hold_at_most(a: World) -> None:
    lock = a.lock(timeout=a.kind.brief, renew=True, max_hold=a.kind.brief * 1.5)
    held = await lock.take(20)

    await a.eventually(lambda: held.lost)
    await a.eventually(a.is_free)


@on()
async def test_a_lease_that_is_extended_has_so_much_more(a: World) -> None:
    lock = a.lock(timeout=10)
    assert await lock.acquire(blocking=False)

    assert await lock.extend(20) is True

    assert 28 < lock.remaining() <= 30.5
    await lock.check()
    for name in a.kind.names:
        assert 28_000 < a.direct.pttl(name) <= 31_500
    await lock.release()


@on()
async def test_a_lease_can_be_given_a_least_and_is_never_shortened(a: World) -> None:
    async with a.lock(timeout=10).block() as held:
        await held.extend(50, replace_ttl=True)
        assert 45 < held.remaining() <= 50
        await held.extend(5, replace_ttl=True)
        assert 45 < held.remaining() <= 50
        assert a.direct.pttl(a.kind.contested) > 45_000


@on()
async def test_a_lease_that_is_reacquired_is_whole_again_and_never_shorter(a: World) -> None:
    held = await a.lock(timeout=10).take(0)
    await held.extend(20)

    assert await held.reacquire() is True

    assert held.remaining() > 28
    await held.release()
    held = await a.lock(timeout=10).take(0)
    await a.sleep(0.05)
    before = end_of(held)
    assert await held.reacquire() is True
    # However long the answer took.
    assert end_of(held) > before
    await held.release()


@on([EXCLUSIVE, READERS, TIMESTAMP, SEVERAL])
async def test_a_renewal_cuts_nothing_of_what_was_extended(a: World) -> None:
    async with a.lock(timeout=30, renew=True).block() as held:
        await held.extend(60)
        async with a.lock("lock:z", timeout=30, renew=True).block() as other:
            await a.renewed(other, after=DUE)
        await held.reacquire()
        assert held.remaining() > 70
        assert a.direct.pttl(a.kind.contested) > 80_000


@on()
async def test_a_lease_is_extended_by_a_number_of_seconds(a: World) -> None:
    async with a.lock().block() as held:
        for seconds in (0, -1, float("nan"), float("inf"), True, "5", None):
            with pytest.raises(ValueError, match="additional_time"):
                await held.extend(seconds)
        assert held.remaining() > 5


@on()
async def test_a_lease_counts_from_before_the_request(a: World) -> None:
    async with a.lock(timeout=10).block() as held:
        at_the_server = min(a.direct.pttl(name) for name in a.kind.names) / 1000
        assert 5 < held.remaining() <= at_the_server + 0.002


@on()
async def test_a_handle_that_nobody_refers_to_is_renewed_no_longer(a: World) -> None:
    # In a function of its own: a frame would refer to it.
    async def forget() -> None:
        await a.lock(timeout=a.kind.brief, renew=True).take(20)

    await forget()
    gc.collect()

    await a.eventually(a.is_free)


@on()
async def test_what_a_thread_or_task_held_as_it_ended_is_renewed_no_longer(
    a: World, caplog: pytest.LogCaptureFixture
) -> None:
    lock = a.lock(timeout=2, renew=True)

    async def work() -> None:
        assert await lock.acquire(blocking_timeout=20)

    job = a.spawn(work())
    await job.result()
    del job
    gc.collect()

    await a.eventually(a.is_free)
    # Where a busy machine is late, the lease has run out before that is seen.
    why = rf"that took (it|the lock '{a.kind.contested}') has ended"
    await a.eventually(lambda: re.search(why, caplog.text))
    with pytest.raises(LockError):
        await lock.release()


@on([REDLOCK, *SINGLE, SEVERAL], drivers=["blocking"])
async def test_one_thread_renews_all_of_them(a: World) -> None:
    locks = [a.lock(f"lock:{number}", timeout=30, renew=True) for number in range(20)]
    before = threading.active_count()
    handles = [await lock.take(0) for lock in locks]
    await a.renewed(*handles, after=DUE)
    # A master is connected to by threads that end.
    await a.eventually(lambda: threading.active_count() <= before + 1)
    for held in handles:
        await held.release()


@on(drivers=["asyncio"])
async def test_tasks_and_threads_are_renewed_beside_each_other(a: World) -> None:
    held = await a.lock(timeout=30, renew=True).take(0)
    beside: list[Any] = []
    other = a.lock("lock:z", timeout=30, renew=True).raw
    a.ask(lambda _: beside.append(other.take(0)))
    await a.renewed(held, Face(beside[0], a.driver), after=DUE)
    await held.release()
    a.ask(lambda _: beside[0].release())
