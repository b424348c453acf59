"""The release of a lock that is left to somebody, as to the end of a transaction."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import LockBusy, LockError, LockLost
from tests.support.kinds import EXCLUSIVE, PERMITS, READERS, SEVERAL
from tests.support.rows import on
from tests.support.world import DUE

if TYPE_CHECKING:
    from tests.support.world import World

KINDS = (EXCLUSIVE, READERS, PERMITS, SEVERAL)


@on(KINDS)
async def test_it_is_held_until_that_is_called(a: World) -> None:
    async with a.lock().block() as held:
        later = held.raw.detach()
        assert held.released
    with pytest.raises(LockError, match="released"):
        await held.release()
    with pytest.raises(LockBusy):
        await a.rival().take(0)
    a.ask(lambda _: later())
    assert a.is_free()
    with pytest.raises(LockError, match="released already"):
        a.ask(lambda _: later())


@on(KINDS)
async def test_it_is_renewed_until_nobody_can_call_that(a: World) -> None:
    held = await a.lock(timeout=30, renew=True).take(0)
    later = held.raw.detach()
    async with a.lock("lock:z", timeout=30, renew=True).block() as other:
        a.direct.pexpire(a.kind.contested, 5_000)
        await a.renewed(other, after=DUE)
        await a.eventually(lambda: a.direct.pttl(a.kind.contested) > 20_000)
        # Behind that renewal, which the fake may be in the midst of.
        await a.renewed(other, after=DUE)
        del later, held
        gc.collect()
        a.direct.pexpire(a.kind.contested, 5_000)
        await a.renewed(other, after=DUE)
        assert a.direct.pttl(a.kind.contested) <= 5_000


@on([EXCLUSIVE, SEVERAL])
async def test_its_holder_has_it_again_as_long_as_it_is_left(a: World) -> None:
    outer = await a.lock(reentrant=True).take(0)
    inner = await a.lock(reentrant=True).take(0)
    later = inner.raw.detach()
    await outer.release()
    assert not a.is_free()
    again = await a.lock(reentrant=True).take(0)
    await again.release()
    assert not a.is_free()
    a.ask(lambda _: later())
    assert a.is_free()


@on(KINDS)
async def test_a_loss_is_told_when_that_is_called(a: World) -> None:
    held = await a.lock().take(0)
    later = held.raw.detach()
    a.lose()
    with pytest.raises(LockLost):
        a.ask(lambda _: later())


@on(KINDS)
async def test_what_is_over_is_left_to_nobody(a: World) -> None:
    held = await a.lock().take(0)
    await held.release()
    with pytest.raises(LockError, match="released"):
        held.raw.detach()
    lost = await a.lock(timeout=10).take(0)
    a.pass_time(10)
    with pytest.raises(LockLost):
        lost.raw.detach()


@on([SEVERAL])
async def test_where_one_is_lost_the_others_are_not_left_to_anybody(a: World) -> None:
    async def work() -> None:
        async with a.lock().block() as held:
            a.direct.delete(a.kind.names[0])
            with pytest.raises(LockLost):
                await held.check()
            held.raw.detach()

    with pytest.raises(LockLost):
        await work()

    assert a.is_free()


@on(KINDS)
async def test_on_lost_is_called_where_the_release_is_left(a: World) -> None:
    told: list[object] = []
    held = await a.lock(on_lost=told.append).take(0)
    later = held.raw.detach()
    a.lose()
    with pytest.raises(LockLost):
        a.ask(lambda _: later())
    assert len(told) == 1


@on([EXCLUSIVE, SEVERAL], drivers=["asyncio"])
async def test_a_block_that_a_loss_cancels_raises_the_loss_though_the_release_is_left(
    a: World,
) -> None:
    left = []

    async def work() -> None:
        async with a.lock(timeout=30, renew=True).block() as held:
            left.append(held.raw.detach())
            a.lose()
            a.pass_time(DUE)
            await a.sleep(20)

    with pytest.raises(LockLost):
        await work()
    with pytest.raises(LockLost):
        a.ask(lambda _: left[0]())
