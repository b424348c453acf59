"""A lock that is let go before its ``min_hold`` is over: nobody gets it before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockError, LockLost, signals
from django_setnx_lock.core import Outcome, State
from tests.support.kinds import EXCLUSIVE, SEVERAL
from tests.support.rows import on

if TYPE_CHECKING:
    from tests.support.world import World

BOTH = (EXCLUSIVE, SEVERAL)
# It is kept for as long as the test looks at it.
LONG = 60


async def kept(a: World, **options: Any) -> None:
    """Take the lock and let it go at once."""
    await (await a.lock(**{"min_hold": LONG, **options}).take(0)).release()


@on(BOTH)
@pytest.mark.parametrize(("lease", "min_hold"), [(5, 3600), (3600, 50)])
async def test_what_is_left_is_the_rest_of_min_hold_whatever_the_lease_was(
    a: World, lease: float, min_hold: float
) -> None:
    await kept(a, timeout=lease, min_hold=min_hold)
    for name in a.kind.names:
        assert (min_hold - 20) * 1000 < a.direct.pttl(name) <= min_hold * 1000
    for seconds in (0, 0.02):
        with pytest.raises(LockBusy) as busy:
            await a.lock().take(seconds)
        assert busy.value.remaining is not None
        assert min_hold - 20 < busy.value.remaining <= min_hold
    assert a.info().waiting == 0


@on(BOTH)
async def test_to_its_holder_it_is_released_and_told_so_once(a: World) -> None:
    told: list[str] = []

    def released(key: str, **_: Any) -> None:
        told.append(key)

    signals.lock_released.connect(released)
    try:
        held = await a.lock(min_hold=LONG, reentrant=True, renew=True).take(0)
        await held.release()
    finally:
        signals.lock_released.disconnect(released)
    assert (held.released, held.lost, held.remaining()) == (True, False, 0)
    assert sorted(told) == sorted(a.kind.names)
    for use in (held.release, held.check, held.reacquire):
        with pytest.raises(LockError, match="released"):
            await use()
    assert await a.lock(reentrant=True).acquire(blocking=False) is False


@on([EXCLUSIVE])
async def test_a_chosen_token_is_kept_out_too(a: World) -> None:
    lock = a.lock(min_hold=LONG)
    await lock.acquire(token="worker-7")
    await lock.release()
    assert await lock.acquire(blocking=False, token="worker-7") is False


@on(BOTH)
async def test_a_body_that_fails_has_used_its_time(a: World) -> None:
    with pytest.raises(ZeroDivisionError):
        async with a.lock(min_hold=LONG).block():
            raise ZeroDivisionError
    assert await a.rival().acquire(blocking=False) is False


@on(BOTH, drivers=["asyncio"])
async def test_a_task_that_is_cancelled_has_used_its_time_if_it_was_inside(a: World) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with a.lock(min_hold=LONG).block():
            inside.set()
            await asyncio.Event().wait()

    held = await a.rival().take(0)
    waiting: Any = a.spawn(work())
    await a.waiting(1)
    waiting.task.cancel()
    await asyncio.wait([waiting.task])
    await held.release()
    # It was not.
    assert await a.rival().acquire(blocking=False) is True
    await asyncio.to_thread(a.direct.delete, *a.kind.names)

    job: Any = a.spawn(work())
    await inside.wait()
    job.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job.task
    assert await a.rival().acquire(blocking=False) is False


@on([EXCLUSIVE])
async def test_a_lock_that_was_lost_is_not_kept(a: World) -> None:
    held = await a.lock(min_hold=LONG).take(0)
    a.direct.delete("lock:a")
    with pytest.raises(LockLost):
        await held.release()
    assert a.is_free()


@on([EXCLUSIVE])
async def test_the_last_handle_keeps_it_for_as_long_as_the_first_one_said(a: World) -> None:
    async with a.lock(reentrant=True).block(), a.lock(reentrant=True, min_hold=LONG).block():
        pass
    assert a.is_free()
    outer = await a.lock(reentrant=True, min_hold=LONG).take(0)
    inner = await a.lock(reentrant=True).take(0)
    await outer.release()
    await inner.check()
    await inner.release()
    assert await a.lock().acquire(blocking=False) is False


@on([EXCLUSIVE])
async def test_those_who_wait_hear_of_the_earlier_end_and_come_in_order(a: World) -> None:
    # Without that they would wait for the lease, which is longer than the test waits.
    held = await a.lock(timeout=120, min_hold=0.5).take(0)
    came: list[int] = []

    async def work(number: int) -> None:
        async with a.lock(blocking_timeout=60).block():
            came.append(number)

    jobs = []
    for number in range(3):
        jobs.append(a.spawn(work(number)))
        await a.waiting(number + 1)
    await held.release()
    for job in jobs:
        await job.result()
    assert came == [0, 1, 2]


@on([EXCLUSIVE])
async def test_operators_see_that_it_is_kept_and_by_whom_and_free_it(a: World) -> None:
    lock = a.lock(min_hold=LONG, label="nightly")
    held = await lock.take(0)
    at_work = a.info().fingerprint
    await held.release()

    info = a.info()
    assert info.state is State.KEPT
    assert info.fence == held.fence
    assert info.holder is not None
    assert info.holder.label == "nightly"
    # What was seen was a holder at work.
    freed = a.ask(lambda inspector: inspector.force_release("lock:a", at_work))
    assert freed is Outcome.CHANGED_HANDS
    assert await a.lock().acquire(blocking=False) is False

    job = a.spawn(a.lock().take(20))
    await a.waiting(1)
    assert a.force() is Outcome.RELEASED
    await (await job.result()).release()


@on(BOTH, drivers=["blocking"])
async def test_more_than_max_hold_is_refused(a: World) -> None:
    with pytest.raises(ValueError, match=r"min_hold, 6(.0)?, must not be more than max_hold, 5"):
        a.lock(min_hold=6, max_hold=5)
    a.lock(min_hold=5, max_hold=5)
