"""A task that is cancelled at any await leaves neither a lock nor a waiter in Redis."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockError
from tests.faults.awaits import Awaits
from tests.support.kinds import ONE_SERVER, QUEUED
from tests.support.rows import on

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.world import World

    Story = Callable[[World, Awaits], Coroutine[Any, Any, None]]

# Before the answer that is awaited, or when it has come; and once more in the clean-up.
WAYS = [{}, {"late": True}, {"again": 2}]
ways = pytest.mark.parametrize("how", WAYS, ids=["before", "after", "in the clean-up"])


async def cancelled(awaits: Awaits, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` in a task of its own; a cancellation is never swallowed."""

    async def stepped() -> None:
        await awaits.run(work)

    task = asyncio.create_task(stepped())
    was_cancelled = False
    try:
        await task
    except asyncio.CancelledError:
        was_cancelled = True
    assert was_cancelled is awaits.has_cancelled


async def tell(a: World, story: Story, how: dict[str, Any]) -> None:
    """Tell the story to its end, and then cancelled at every await."""
    at = 0
    while True:
        awaits = Awaits(at, **how)
        await story(a, awaits)
        await a.eventually(a.is_free, seconds=2)
        assert a.info().waiting == 0, f"cancelled at await {at}"
        if not awaits.came_so_far:
            break
        at += 1
    # It asks for the lock, and lets it go.
    assert at > 2


@ways
@on(ONE_SERVER, drivers=["asyncio"], real=True)
async def test_a_block_that_is_cancelled_anywhere_leaves_nothing(
    a: World, how: dict[str, Any]
) -> None:
    async def story(a: World, awaits: Awaits) -> None:
        async def work() -> None:
            async with a.lock().block():
                pass

        await cancelled(awaits, work())

    await tell(a, story, how)


@ways
@on(ONE_SERVER, drivers=["asyncio"], real=True)
async def test_operations_that_are_cancelled_anywhere_leave_a_lock_that_can_be_released(
    a: World, how: dict[str, Any]
) -> None:
    async def story(a: World, awaits: Awaits) -> None:
        held = await a.lock(renew=True).take(0)

        async def work() -> None:
            await held.check()
            await held.extend(5)
            await held.reacquire()

        await cancelled(awaits, work())
        assert not held.lost
        await held.check()
        await held.release()

    await tell(a, story, how)


@ways
@on(ONE_SERVER, drivers=["asyncio"], real=True)
async def test_a_release_that_is_cancelled_anywhere_is_done(a: World, how: dict[str, Any]) -> None:
    async def story(a: World, awaits: Awaits) -> None:
        held = await a.lock().take(0)
        work = held.release()

        async def release() -> None:
            await work

        await cancelled(awaits, release())
        # It was done before it was cancelled, or it can be called again.
        with contextlib.suppress(LockError):
            await held.release()

    at = 0
    while True:
        awaits = Awaits(at, **how)
        await story(a, awaits)
        await a.eventually(a.is_free, seconds=2)
        if not awaits.came_so_far:
            break
        at += 1
    assert at > 1


@ways
@on(QUEUED, drivers=["asyncio"], real=True)
async def test_a_wait_in_vain_that_is_cancelled_anywhere_leaves_no_place(
    a: World, how: dict[str, Any]
) -> None:
    async def story(a: World, awaits: Awaits) -> None:
        rival = await a.rival().take(0)

        async def work() -> None:
            with contextlib.suppress(LockBusy):
                await a.lock().take(0.01)

        await cancelled(awaits, work())
        await a.eventually(lambda: a.info().waiting == 0, seconds=2)
        await rival.check()
        await rival.release()

    await tell(a, story, how)


@ways
@on(QUEUED, drivers=["asyncio"], real=True)
async def test_a_waiter_that_is_cancelled_anywhere_keeps_the_next_from_nothing(
    a: World, how: dict[str, Any]
) -> None:
    async def story(a: World, awaits: Awaits) -> None:
        held = await a.rival().take(0)

        async def work() -> None:
            async with a.lock().block():
                pass

        mine = asyncio.create_task(cancelled(awaits, work()))
        await a.eventually(lambda: mine.done() or a.info().waiting == 1)
        behind = asyncio.create_task(a.rival().take(20))
        await a.eventually(lambda: behind.done() or a.info().waiting > (not mine.done()))
        await held.release()
        await mine
        await (await behind).release()

    await tell(a, story, how)


@on(QUEUED, drivers=["asyncio"], real=True)
async def test_a_coroutine_that_is_closed_as_it_waits_leaves_nothing(a: World) -> None:
    held = await a.rival().take(0)

    async def work() -> None:
        await a.lock().take(20)

    job: Any = a.spawn(work())
    await a.waiting(1)
    # As the end of a loop does.
    job.task.cancel()
    await asyncio.wait([job.task])
    await a.eventually(lambda: a.info().waiting == 0, seconds=2)
    await held.release()
    assert a.is_free()


@on(ONE_SERVER, drivers=["asyncio"], real=True)
async def test_a_time_limit_around_a_wait_leaves_nothing(a: World) -> None:
    held = await a.rival().take(0)
    for _ in range(3):
        with pytest.raises((TimeoutError, asyncio.TimeoutError)):
            await asyncio.wait_for(a.lock().take(20), 0.02)
    await a.eventually(lambda: a.info().waiting == 0, seconds=2)
    await held.release()
    assert await a.rival().acquire(blocking=False) is True


@on(ONE_SERVER, drivers=["blocking"], real=True)
async def test_a_loop_that_ends_with_a_lock_held_leaves_no_renewal(a: World) -> None:
    lock = a.lock(timeout=0.3, renew=True).raw
    handles: list[Any] = []

    async def work() -> None:
        handles.append(await lock.atake(20))

    asyncio.run(work())

    await a.eventually(a.is_free)


@on(ONE_SERVER, drivers=["asyncio"], real=True)
async def test_tasks_that_are_cancelled_by_the_hundred_leave_nothing(a: World) -> None:
    held = await a.rival().take(0)
    tasks = [asyncio.create_task(a.lock().take(20)) for _ in range(100)]
    await asyncio.sleep(0.02)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    await a.eventually(lambda: a.info().waiting == 0, seconds=5)
    await held.release()
    assert await a.rival().acquire(blocking=False) is True
