"""Who holds a lock gets it again, and nobody else does."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnsupported
from tests.faults.proxy import Proxy
from tests.support.drivers import stepped
from tests.support.kinds import EXCLUSIVE, HOSTED, PERMITS, READERS, REDLOCK, SEVERAL, TIMESTAMP
from tests.support.rows import on
from tests.support.world import World

# Whoever has a permit and asks again gets another one.
REENTRANT = (EXCLUSIVE, READERS, TIMESTAMP, HOSTED, SEVERAL, REDLOCK)
# A second reader is let in, whoever it is.
ALONE = (EXCLUSIVE, TIMESTAMP, HOSTED, SEVERAL, REDLOCK)


@on(REENTRANT)
async def test_the_holder_has_it_again_by_any_object(a: World) -> None:
    lock = a.lock(reentrant=True)
    async with lock.block() as outer:
        async with lock.block() as inner, a.lock(reentrant=True).block() as third:
            if a.kind is not REDLOCK:
                assert a.fences(outer) == a.fences(inner) == a.fences(third)
            await third.check()
        await outer.check()
        assert not a.is_free()
    assert a.is_free()


@on(REENTRANT)
async def test_the_last_who_lets_go_releases_it_whichever_that_is(a: World) -> None:
    lock = a.lock(reentrant=True)
    outer = await lock.take(0)
    inner = await lock.take(0)
    await outer.release()
    await inner.check()
    assert not a.is_free()
    with pytest.raises(LockError, match="released"):
        await outer.check()

    await inner.release()

    assert a.is_free()


@on(ALONE)
async def test_without_reentrant_the_holder_is_as_anybody(a: World) -> None:
    async with a.lock().block():
        assert await a.lock().acquire(blocking=False) is False
        assert await a.lock(reentrant=True).acquire(blocking=False) is False
    async with a.lock(reentrant=True).block():
        assert await a.lock().acquire(blocking=False) is False


@on(ALONE)
async def test_another_thread_or_task_does_not_have_it_again(a: World) -> None:
    async with a.lock(reentrant=True).block():
        job = a.spawn(a.lock(reentrant=True).acquire(blocking=False))
        assert await job.result() is False


@on(ALONE, drivers=["asyncio"])
async def test_no_sibling_task_has_it_again(a: World) -> None:
    inside: list[int] = []

    async def work(number: int) -> None:
        async with a.lock(reentrant=True).block():
            inside.append(number)
            assert len(inside) == 1
            await asyncio.sleep(0.002)
            inside.remove(number)

    await asyncio.gather(*map(work, range(4)))


@on(ALONE, drivers=["asyncio"])
async def test_what_a_task_runs_in_a_thread_does_not_have_it_again(a: World) -> None:
    other = a.lock(reentrant=True).raw
    async with a.lock(reentrant=True).block():
        assert await asyncio.to_thread(other.acquire, blocking=False) is False


@on(ALONE, drivers=["blocking"])
async def test_no_child_thread_has_it_again_by_a_copy_of_the_context(a: World) -> None:
    other = a.lock(reentrant=True).raw
    answers: list[bool] = []
    context = contextvars.copy_context()

    def work() -> None:
        answers.append(context.run(other.acquire, blocking=False))

    async with a.lock(reentrant=True).block():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(20)
    assert answers == [False]


@on([EXCLUSIVE], drivers=["blocking"])
async def test_the_next_task_of_a_thread_does_not_have_what_the_last_one_left(a: World) -> None:
    lock = a.lock(reentrant=True).raw
    handles: list[Any] = []

    async def take() -> None:
        handles.append(await lock.atake(0))

    async def again() -> bool:
        return bool(await lock.aacquire(blocking=False))

    asyncio.run(take())
    assert asyncio.run(again()) is False
    with pytest.raises(LockError):
        lock.release()
    handles[0].release()


@on([EXCLUSIVE], drivers=["blocking"])
async def test_a_later_thread_does_not_have_what_an_earlier_one_left(a: World) -> None:
    handles: list[Any] = []
    lock = a.lock(reentrant=True).raw
    with ThreadPoolExecutor(1) as pool:
        handles.append(pool.submit(lock.take, 0).result(20))
    for _ in range(5):
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lock.acquire, blocking=False).result(20) is False
    handles[0].release()


@on([EXCLUSIVE], drivers=["blocking"], real=True)
async def test_what_another_thread_lets_go_just_now_is_not_had_again(a: World) -> None:
    with Proxy(a.server.port) as proxy:
        a.asks_at(proxy.client())
        lock = a.lock(reentrant=True)
        held = await lock.take(0)
        # The release is on its way.
        proxy.hold(held.token.encode(), once=True)
        job = a.spawn(held.release())
        await a.eventually(proxy.holds.is_set)
        with pytest.raises(LockBusy):
            await lock.take(0)
        proxy.let_go()
        await job.result()
        async with lock.block() as held:
            await held.check()


@on([EXCLUSIVE, SEVERAL])
async def test_who_lets_a_lost_one_go_has_the_one_taken_since_again(a: World) -> None:
    lock = a.lock(reentrant=True)
    lost = await lock.take(0)
    a.lose()
    with pytest.raises(LockLost):
        await lost.check()
    a.direct.delete(a.kind.contested)
    held = await lock.take(0)

    with pytest.raises(LockLost):
        await lost.release()

    async with lock.block() as again:
        assert a.fences(again) == a.fences(held)
    await held.release()


@on([EXCLUSIVE, SEVERAL])
async def test_what_was_lost_is_acquired_anew(a: World) -> None:
    lock = a.lock(reentrant=True)
    outer = await lock.take(0)
    a.lose()
    with pytest.raises(LockLost):
        await outer.check()
    a.direct.delete(*a.kind.names)

    inner = await lock.take(0)

    assert a.fences(inner) > a.fences(outer)
    await inner.release()
    with pytest.raises(LockError):
        await outer.release()


@on([EXCLUSIVE])
async def test_what_was_handed_over_is_its_holders_no_longer(a: World) -> None:
    held = await a.lock(reentrant=True).take(0)
    held.raw.handover()
    assert await a.lock(reentrant=True).acquire(blocking=False) is False
    await held.release()
    assert a.is_free()


@on([EXCLUSIVE])
async def test_a_writer_may_read_within(a: World) -> None:
    async with a.lock(reentrant=True).block() as writing:
        async with a.lock(reentrant=True, shared=True).block() as reading:
            assert reading.fence == writing.fence
        await writing.check()
    assert a.is_free()


@on([READERS])
async def test_a_reader_who_wants_to_write_is_told_that_it_waits_for_itself(a: World) -> None:
    async with a.lock(reentrant=True).block():
        with pytest.raises(LockError, match=r"itself|read"):
            await a.rival(reentrant=True).take(1)


@on([PERMITS])
async def test_permits_are_not_had_again(a: World) -> None:
    with pytest.raises(LockUnsupported):
        a.lock(reentrant=True)


@on([EXCLUSIVE], drivers=["blocking"])
async def test_a_cell_of_a_notebook_releases_what_another_cell_took(a: World) -> None:
    # Where DJANGO_ALLOW_ASYNC_UNSAFE is set each cell is a task of one thread.
    lock = a.lock(timeout=0.3, renew=True).raw

    async def cell(call: Any) -> Any:
        return call()

    async def kernel() -> None:
        assert await asyncio.create_task(cell(lock.acquire)) is True
        assert await asyncio.create_task(cell(lock.owned)) is True
        await asyncio.create_task(cell(lock.release))

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        asyncio.run(kernel())
    assert a.is_free()


@on([EXCLUSIVE], drivers=["asyncio"])
async def test_what_is_taken_by_sync_to_async_is_the_threads_that_took_it(a: World) -> None:
    from asgiref.sync import sync_to_async

    lock = a.lock(timeout=10, renew=True, reentrant=True).raw
    other = a.lock(reentrant=True).raw
    assert await sync_to_async(lock.acquire)() is True
    # The task is another owner than the thread that asgiref keeps.
    assert await lock.aowned() is False
    assert await other.aacquire(blocking=False) is False
    assert await sync_to_async(lock.owned)() is True
    assert await sync_to_async(other.acquire)(blocking=False) is True
    await sync_to_async(other.release)()
    await sync_to_async(lock.release)()
    assert a.is_free()


@on([EXCLUSIVE], drivers=["blocking"])
async def test_a_coroutine_without_a_loop_is_a_threads(a: World) -> None:
    async def work() -> bool:
        return bool(a.lock(reentrant=True).raw.acquire(blocking=False))

    with a.lock(reentrant=True).raw:
        assert stepped(work()) is True
