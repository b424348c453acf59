"""What a holder who has the lock twice shares: its lease, its renewal, and its loss."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import sync_to_async

from django_setnx_lock import LockBusy, LockError, LockLost
from tests.processes import in_thread
from tests.support.drivers import Face
from tests.support.kinds import EXCLUSIVE, PERMITS, READERS, REDLOCK, SEVERAL
from tests.support.rows import on
from tests.support.world import DUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.world import World

# Whose answers come from the local count of handles, whatever stands in Redis.
COUNTED = (EXCLUSIVE, READERS, SEVERAL, REDLOCK)
TWO = (EXCLUSIVE, SEVERAL)


@on(COUNTED)
async def test_acquire_and_release_count(a: World) -> None:
    lock = a.lock(reentrant=True)
    for _ in range(3):
        assert await lock.acquire(blocking=False) is True
    for _ in range(2):
        await lock.release()
        assert not a.is_free()
        assert await lock.owned() is True
    await lock.release()
    assert a.is_free()
    with pytest.raises(LockError, match="not held here"):
        await lock.release()


@on(COUNTED)
async def test_a_handle_that_is_released_twice_frees_none_of_the_others(a: World) -> None:
    lock = a.lock(reentrant=True)
    first, second = await lock.take(0), await lock.take(0)
    await first.release()
    assert (first.released, first.lost, first.remaining()) == (True, False, 0)
    with pytest.raises(LockError, match="released already"):
        await first.release()
    await second.check()
    # A third one comes while the first is over.
    third = await lock.take(0)
    await second.release()
    await third.check()
    await third.release()
    assert a.is_free()


@on([EXCLUSIVE])
async def test_another_client_of_the_same_database_is_the_same_lock(a: World) -> None:
    async with a.lock(reentrant=True).block() as outer:
        a.asks_at(a.server.client())
        async with a.lock(reentrant=True).block() as inner:
            assert inner.token == outer.token
        a.asks_at(a.server.client(db=1))
        async with a.lock(reentrant=True).block() as elsewhere:
            assert elsewhere.token != outer.token


@on([EXCLUSIVE])
async def test_a_chosen_token_is_had_again_and_none_is_chosen_within(a: World) -> None:
    lock = a.lock(reentrant=True)
    assert await lock.acquire(token="worker-7")
    async with a.lock(reentrant=True).block() as inner:
        assert inner.token == "worker-7"
    assert await a.lock(reentrant=True).acquire(blocking=False, token="worker-8") is False
    await lock.release()


@on([EXCLUSIVE])
async def test_others_see_the_holder_that_was_first(a: World) -> None:
    async with a.lock(reentrant=True, label="outer").block():
        before = set(a.direct.scan_iter())
        async with a.lock(reentrant=True, label="inner").block():
            assert set(a.direct.scan_iter()) == before
            with pytest.raises(LockBusy) as busy:
                await a.rival().take(0)
    assert busy.value.holder is not None
    assert busy.value.holder.label == "outer"


# Its lease


@on([EXCLUSIVE, READERS, SEVERAL])
async def test_an_inner_lease_lengthens_the_outer_one_and_never_cuts_it(a: World) -> None:
    async with a.lock(reentrant=True, timeout=10).block() as outer:
        async with a.lock(reentrant=True, timeout=60).block() as inner:
            assert outer.remaining() > 50
            await inner.extend(30)
            assert outer.remaining() > 80
        async with a.lock(reentrant=True, timeout=5).block():
            assert outer.remaining() > 80
        if not a.kind.is_shared:
            assert a.direct.pttl(a.kind.contested) > 80_000


@on([EXCLUSIVE])
async def test_max_hold_of_the_outer_binds_the_inner(a: World) -> None:
    outer = a.lock(reentrant=True, timeout=5, max_hold=10)
    async with outer.block(), a.lock(reentrant=True, timeout=60).block():
        assert outer.remaining() <= 10


@on(TWO)
@pytest.mark.parametrize("is_outer_first", [True, False])
async def test_it_is_renewed_while_one_of_them_asks_for_it(a: World, is_outer_first: bool) -> None:
    lock = a.lock(reentrant=True, timeout=30, renew=is_outer_first)
    other = a.lock(reentrant=True, timeout=30, renew=not is_outer_first)
    outer, inner = await lock.take(0), await other.take(0)
    await a.renewed(outer, after=DUE)
    if is_outer_first:
        # It was the outer one who asked: the inner one has the lock by the same grant.
        await outer.release()
        await inner.check()
        await inner.release()
        assert a.is_free()
        return
    await inner.release()
    # Nobody asks for it any more.
    async with a.lock("lock:z", timeout=30, renew=True).block() as beside:
        await a.renewed(beside, after=DUE)
        assert outer.remaining() <= 30 - DUE
    await outer.release()


@on([EXCLUSIVE], drivers=["blocking"])
async def test_renewals_give_what_the_longest_lease_asks_for(a: World) -> None:
    outer = await a.lock(reentrant=True, timeout=30, renew=True).take(0)
    inner = await a.lock(reentrant=True, timeout=60).take(0)
    a.direct.pexpire("lock:a", 20_000)
    a.pass_time(2 * DUE)
    await a.eventually(lambda: a.direct.pttl("lock:a") > 40_000)
    await inner.release()
    await outer.release()


@on([EXCLUSIVE])
async def test_what_is_thrown_away_counts_no_longer(a: World) -> None:
    outer = await a.lock(reentrant=True).take(0)
    await a.lock(reentrant=True).take(0)
    gc.collect()
    await outer.release()
    assert a.is_free()


@on([EXCLUSIVE], drivers=["blocking"])
async def test_a_share_that_is_handed_over_is_counted(a: World) -> None:
    outer = a.lock(reentrant=True).raw.take(0)
    inner = a.lock(reentrant=True).raw.take(0)
    inner.handover()
    outer.release()
    assert not a.is_free()
    in_thread(inner.release)
    assert a.is_free()


# Its loss


@on(TWO)
async def test_a_loss_is_everybodys_and_told_to_each_once(a: World) -> None:
    told: list[Any] = []
    handles = [await a.lock(reentrant=True, on_lost=told.append).take(0) for _ in range(3)]
    await handles.pop().release()
    a.lose()
    for held in handles:
        with pytest.raises(LockLost):
            await held.check()
    assert all(held.lost for held in handles)
    assert {id(held) for held in told} == {id(held.raw) for held in handles}
    assert len(told) == 2
    for held in handles:
        with pytest.raises(LockError):
            await held.release()


@on(TWO)
async def test_a_renewal_tells_each_of_the_loss(a: World) -> None:
    told: list[Any] = []
    options: dict[str, Any] = {
        "reentrant": True,
        "timeout": 30,
        "renew": True,
        "on_lost": told.append,
    }
    handles = [await a.lock(**options).take(0) for _ in range(3)]
    a.lose()
    a.pass_time(DUE)
    await a.eventually(lambda: len(told) == 3)
    assert all(held.lost for held in handles)


@on([EXCLUSIVE])
async def test_what_redis_has_no_longer_is_taken_anew_where_more_time_is_asked_for(
    a: World,
) -> None:
    told: list[Any] = []
    outer = await a.lock(reentrant=True, timeout=5, on_lost=told.append).take(0)
    a.direct.delete("lock:a")
    inner = await a.lock(reentrant=True, timeout=60).take(0)
    assert outer.lost
    assert told == [outer.raw]
    assert inner.fence > outer.fence
    await inner.release()


# Whose it is


@on([EXCLUSIVE], drivers=["blocking"])
async def test_a_thread_of_an_executor_is_one_holder_for_all_its_jobs(a: World) -> None:
    def take() -> Any:
        return a.lock(reentrant=True).raw.take(0)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(take).result(20)
        second = pool.submit(take).result(20)
    assert first.token == second.token
    first.release()
    second.release()


async def sensitive(job: Callable[[], Any]) -> Any:
    return await sync_to_async(job, thread_sensitive=False)()


@on([EXCLUSIVE], drivers=["asyncio"])
@pytest.mark.parametrize("call", [asyncio.to_thread, sensitive], ids=["to_thread", "asgiref"])
async def test_a_call_in_a_thread_of_the_loop_has_it_again_and_the_next_one_does_not(
    a: World, call: Callable[[Callable[[], Any]], Any]
) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    lock = a.lock(reentrant=True).raw

    def twice() -> Any:
        outer = lock.take(0)
        lock.take(0).release()
        return outer

    async def one(job: Callable[[], Any]) -> Any:
        return await call(job)

    held = await asyncio.create_task(one(twice))
    with pytest.raises(LockBusy):
        await asyncio.create_task(one(lambda: lock.take(0)))
    assert await asyncio.create_task(one(lambda: lock.held)) is None
    # Anybody may let it go by the handle.
    await asyncio.create_task(one(held.release))
    assert a.is_free()


# Readers and permits


@on([READERS])
async def test_a_reader_may_read_again_though_a_writer_waits(a: World) -> None:
    async with a.lock(reentrant=True).block():
        job = a.spawn(a.rival().take(20))
        await a.waiting(1)
        async with a.lock(reentrant=True).block() as again:
            await again.check()
    await (await job.result()).release()


@on([READERS])
async def test_a_writer_who_reads_on_holds_it_alone(a: World) -> None:
    writing = await a.rival(reentrant=True).take(0)
    reading = await a.lock(reentrant=True).take(0)
    await writing.release()
    assert await a.lock().acquire(blocking=False) is False
    await reading.check()
    await reading.extend(10)
    await reading.release()
    assert a.is_free()


@on([PERMITS])
async def test_who_has_a_permit_and_asks_again_gets_another_one(a: World) -> None:
    async with a.lock(limit=2).block() as first, a.lock(limit=2).block() as second:
        assert first.token != second.token
        assert await a.lock(limit=2).acquire(blocking=False) is False


# Several keys


@on([SEVERAL])
async def test_of_several_keys_those_that_are_held_are_had_again(a: World) -> None:
    async with a.rival(reentrant=True).block() as outer:
        async with a.lock(reentrant=True).block() as held:
            assert held.raw["lock:b"].token == outer.token
            async with Face(a.kind.make(a.clients, reentrant=True), a.driver).block() as again:
                assert again.fences == held.fences
        assert a.direct.exists(*a.kind.names) == 1
        await outer.check()
    assert a.is_free()


@on([SEVERAL])
async def test_who_gets_none_of_several_keys_has_what_it_had_before(a: World) -> None:
    async with a.rival(reentrant=True).block() as outer:
        a.direct.set("lock:c", "somebody", px=20_000)
        with pytest.raises(LockBusy):
            await a.lock(reentrant=True).take(0)
        await outer.check()
        assert not a.direct.exists("lock:a")
