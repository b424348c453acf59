"""A block begins with the lock, ends with it, and is cancelled in asyncio when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockError, LockLost
from tests.processes import in_thread
from tests.support.kinds import ALL, EXCLUSIVE, PERMITS, REDLOCK, SEVERAL
from tests.support.rows import on
from tests.support.world import DUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.world import World

BOTH = (EXCLUSIVE, SEVERAL)
# It ends soon, and nothing has to come before; or not before an extension, on a busy machine.
SHORT, LEASE = 0.8, 1.5
LONG = 15
counted = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="cancellations are counted from Python 3.11 on"
)


def is_cancelled() -> bool:
    task: Any = asyncio.current_task()
    return sys.version_info >= (3, 11) and bool(task.cancelling())


def timeout(seconds: float) -> Any:
    # Type checkers read it as Python 3.10.
    make: Callable[[float], Any] = getattr(asyncio, "timeout")  # noqa: B009 - as above
    return make(seconds)


@on()
async def test_a_block_gives_the_handle_and_forgets_it_at_its_end(a: World) -> None:
    lock = a.lock()
    async with lock.block() as held:
        assert lock.raw.held is held.raw
        assert await lock.locked() is True
    assert held.released
    assert lock.raw.held is None
    assert lock.remaining() == 0
    assert not lock.lost


@on([kind for kind in ALL if kind is not PERMITS], drivers=["blocking"])
async def test_another_thread_does_not_leave_the_block(a: World) -> None:
    lock = a.lock().raw
    with pytest.raises(LockError):
        lock.__exit__(None, None, None)
    lock.__enter__()
    with pytest.raises(LockError):
        in_thread(lambda: lock.__exit__(None, None, None))
    assert lock.owned()
    lock.__exit__(None, None, None)
    assert a.is_free()


@on([PERMITS])
async def test_two_blocks_of_one_object_are_left_one_after_the_other(a: World) -> None:
    lock = a.lock(limit=2, blocking=False)
    async with lock.block() as outer:
        async with lock.block() as inner:
            with pytest.raises(LockBusy):
                await a.lock(limit=2).take(0)
        assert (inner.released, outer.released) == (True, False)
        await outer.check()
    assert a.is_free()


@on([PERMITS])
async def test_a_block_that_lets_its_lock_go_leaves_the_one_around_it(a: World) -> None:
    lock = a.lock(limit=2, blocking=False)
    async with lock.block() as outer:
        async with lock.block() as inner:
            await inner.release()
        assert not outer.released
        await outer.check()
    assert a.is_free()


@on([EXCLUSIVE, SEVERAL])
async def test_a_block_may_be_one_of_an_exit_stack(a: World) -> None:
    lock = a.lock().raw
    if a.driver.is_asyncio:
        async with contextlib.AsyncExitStack() as tasks_stack:
            held = await tasks_stack.enter_async_context(lock)
            assert lock.held is held
            assert not a.is_free()
    else:
        with contextlib.ExitStack() as stack:
            held = stack.enter_context(lock)
            assert lock.held is held
            assert not a.is_free()
    assert held.released
    assert a.is_free()


@on([kind for kind in ALL if kind is not REDLOCK])
async def test_one_object_serves_many_threads_or_tasks(a: World) -> None:
    lock = a.lock()
    holders: list[Any] = []

    async def work() -> None:
        async with lock.block() as held:
            await a.sleep(0)
            assert lock.raw.held is held.raw
            holders.append(held.raw)
        assert lock.raw.held is None

    jobs = [a.spawn(work()) for _ in range(5)]
    for job in jobs:
        await job.result()
    assert len(set(holders)) == 5


@on([EXCLUSIVE, SEVERAL])
async def test_a_loss_of_before_is_none_of_the_next_block(a: World) -> None:
    lock = a.lock()
    assert await lock.acquire()
    a.lose()
    assert await lock.owned() is False
    a.direct.delete(*a.kind.names)
    async with lock.block() as held:
        assert not held.lost
    assert not lock.lost
    assert lock.raw.held is None


@on(BOTH)
async def test_an_object_whose_leases_run_out_forgets_them(a: World) -> None:
    lock = a.lock(timeout=a.kind.brief)
    seen = []
    for _ in range(4):
        assert await lock.acquire(blocking_timeout=20)
        seen.append(weakref.ref(lock.raw.held))
        await a.eventually(lambda: lock.raw.held.lost)
    gc.collect()
    assert [handle() for handle in seen[:-1]] == [None] * 3


# A task whose lock is lost


@on(drivers=["asyncio"])
@pytest.mark.parametrize("options", [{}, {"renew": True, "max_hold": 0.8}], ids=str)
async def test_a_lease_that_is_over_cancels_the_block(a: World, options: dict[str, Any]) -> None:
    is_over = False

    async def work() -> None:
        nonlocal is_over
        async with a.lock(timeout=SHORT, blocking_timeout=20, **options).block():
            await asyncio.sleep(LONG)
            is_over = True

    with pytest.raises(LockLost):
        await work()
    assert not is_over
    assert not is_cancelled()


@on([EXCLUSIVE], drivers=["asyncio"])
async def test_a_lease_that_was_extended_cancels_the_block_when_that_is_over(a: World) -> None:
    loop = asyncio.get_running_loop()
    extended = 0.0

    async def work() -> None:
        nonlocal extended
        async with a.lock(timeout=LEASE, blocking_timeout=20).block() as held:
            await held.extend(2 * LEASE, replace_ttl=True)
            extended = loop.time()
            await asyncio.sleep(LONG)

    with pytest.raises(LockLost):
        await work()
    assert loop.time() - extended > 1.9 * LEASE


@on(BOTH, drivers=["asyncio"])
async def test_a_block_that_ended_in_time_is_not_cancelled_later(a: World) -> None:
    async with a.lock(timeout=SHORT, blocking_timeout=20).block():
        pass
    await asyncio.sleep(SHORT + 0.1)


@on(BOTH, drivers=["asyncio"])
async def test_a_block_is_cancelled_once_and_told_at_its_end(a: World) -> None:
    caught: list[BaseException] = []

    async def work() -> None:
        async with a.lock(timeout=SHORT, blocking_timeout=20).block():
            try:
                await asyncio.sleep(LONG)
            except asyncio.CancelledError as error:
                caught.append(error)
            await asyncio.sleep(0.1)

    with pytest.raises(LockLost):
        await work()
    assert len(caught) == 1
    assert not is_cancelled()


@on(BOTH, drivers=["asyncio"])
async def test_an_error_of_a_block_that_is_cancelled_is_not_hidden(a: World) -> None:
    async def work() -> None:
        async with a.lock(timeout=SHORT, blocking_timeout=20).block():
            try:
                await asyncio.sleep(LONG)
            finally:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as error:
        await work()
    assert "lock:" in "".join(getattr(error.value, "__notes__", ["lock:"]))
    assert not is_cancelled()


@on(BOTH, drivers=["asyncio"])
async def test_a_block_that_finds_the_loss_itself_is_not_cancelled_besides(a: World) -> None:
    went_on = False

    async def work() -> None:
        nonlocal went_on
        async with a.lock().block() as held:
            a.lose()
            with pytest.raises(LockLost):
                await held.check()
            await asyncio.sleep(0.01)
            went_on = True

    with pytest.raises(LockLost):
        await work()
    assert went_on
    assert not is_cancelled()


@on(BOTH, drivers=["asyncio"])
async def test_a_block_is_cancelled_though_a_failed_release_is_only_logged(a: World) -> None:
    options: dict[str, Any] = {
        "timeout": SHORT,
        "blocking_timeout": 20,
        "raise_on_release_error": False,
    }
    with pytest.raises(LockLost):
        async with a.lock(**options).block():
            await asyncio.sleep(LONG)


@on(BOTH, drivers=["asyncio"])
async def test_a_cancellation_from_outside_stays_one(a: World) -> None:
    entered = asyncio.Event()

    async def work() -> None:
        async with a.lock().block():
            entered.set()
            await asyncio.sleep(LONG)

    job: Any = a.spawn(work())
    await entered.wait()
    job.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job.task
    assert a.is_free()


@counted
@on([EXCLUSIVE], drivers=["asyncio"])
async def test_a_cancellation_from_outside_that_meets_the_loss_stays_one(a: World) -> None:
    tasks: list[Any] = []

    async def work() -> None:
        lock = a.lock(on_lost=lambda _: tasks[0].cancel())
        async with lock.block() as held:
            a.lose()
            # Another task finds it, and the block has not gone on yet.
            finding = asyncio.ensure_future(held.check())
            try:
                await asyncio.sleep(LONG)
            finally:
                with pytest.raises(LockLost):
                    await finding

    tasks.append(asyncio.create_task(work()))
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]


@counted
@on([EXCLUSIVE], drivers=["asyncio"])
async def test_a_time_limit_around_the_block_is_told_from_the_loss(a: World) -> None:
    with pytest.raises(TimeoutError):
        async with timeout(0.3), a.lock(timeout=30).block():
            await asyncio.sleep(LONG)
    with pytest.raises(LockLost):
        async with timeout(LONG), a.lock(timeout=SHORT).block():
            await asyncio.sleep(LONG)
    a.direct.delete(*a.kind.names)
    with pytest.raises(LockLost):
        async with a.lock(timeout=SHORT).block(), timeout(LONG):
            await asyncio.sleep(LONG)


@on([EXCLUSIVE, SEVERAL], drivers=["asyncio"])
async def test_a_loss_under_two_blocks_is_told_once_by_the_outer_one(a: World) -> None:
    seen: list[str] = []
    lock = a.lock(timeout=LEASE, blocking_timeout=20, renew=True, reentrant=True)

    async def work() -> None:
        async with lock.block():
            try:
                async with lock.block():
                    a.lose()
                    await asyncio.sleep(LONG)
            except BaseException as error:
                seen.append(type(error).__name__)
                # A second cancellation would come here.
                await asyncio.sleep(0.05)
                raise

    with pytest.raises(LockLost):
        await work()
    assert seen == ["CancelledError"]


@on([EXCLUSIVE, SEVERAL], drivers=["asyncio"])
async def test_a_block_within_what_was_taken_without_one_is_cancelled(a: World) -> None:
    lock = a.lock(timeout=LEASE, renew=True, reentrant=True)
    held = await lock.take(20)

    async def work() -> None:
        async with lock.block():
            a.lose()
            await asyncio.sleep(LONG)

    with pytest.raises(LockLost):
        await work()
    assert held.lost


# A task that does nothing but take a lock, as the one of wait_for before Python 3.12


@on([EXCLUSIVE, SEVERAL], drivers=["asyncio"])
@pytest.mark.parametrize("is_waited_for", [False, True], ids=["task", "wait_for"])
async def test_what_a_task_took_is_whose_that_awaited_it(a: World, is_waited_for: bool) -> None:
    async def taken(taking: Any) -> Any:
        if is_waited_for:
            return await asyncio.wait_for(taking, 20)
        return await asyncio.create_task(taking)

    lock = a.lock(timeout=30, renew=True, reentrant=True, blocking=False).raw
    assert await taken(lock.aacquire()) is True
    await a.renewed(lock.held, after=DUE)
    assert await lock.aowned() is True
    await lock.arelease()

    held = await taken(lock.atake())
    await a.renewed(held, after=DUE)
    await held.arelease()
    assert a.is_free()


@on([PERMITS], drivers=["asyncio"])
async def test_of_several_that_tasks_took_the_object_releases_none(a: World) -> None:
    lock = a.lock(limit=2, blocking=False)
    assert all(await asyncio.gather(lock.raw.aacquire(), lock.raw.aacquire()))
    with pytest.raises(LockError, match="not held here"):
        await lock.release()
    assert await lock.acquire() is False


@on([EXCLUSIVE], drivers=["asyncio"])
async def test_a_body_that_cleans_up_after_the_loss_is_not_looked_at_again(
    a: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, timers = asyncio.get_running_loop(), []
    call_later = loop.call_later

    def note(delay: float, *callback: Any, **options: Any) -> asyncio.TimerHandle:
        timers.append(delay)
        return call_later(delay, *callback, **options)

    async def work() -> None:
        async with a.lock(timeout=SHORT, renew=False).block():
            try:
                await asyncio.sleep(LONG)
            except asyncio.CancelledError:
                monkeypatch.setattr(loop, "call_later", note)
                await asyncio.sleep(0.05)
                raise

    with pytest.raises(LockLost):
        await work()
    assert timers == [0.05]
