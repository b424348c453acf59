"""The fencing number of each later holder is larger."""

from __future__ import annotations

import pytest

from django_setnx_lock import LockLost, LockUnsupported, signals
from tests.servers import RealServer
from tests.support.kinds import (
    EXCLUSIVE,
    HOSTED,
    ONE_SERVER,
    PERMITS,
    QUEUED,
    READERS,
    REDLOCK,
    SEVERAL,
)
from tests.support.rows import on
from tests.support.world import World


@on(ONE_SERVER)
async def test_a_fence_grows_with_each_holder(a: World) -> None:
    fences = []
    for number in range(4):
        lock = a.lock() if number % 2 or a.kind is SEVERAL else a.rival()
        async with lock.block() as held:
            fences.append(a.fences(held)[0])
    assert fences == sorted(set(fences))


@on(ONE_SERVER)
async def test_a_fence_grows_beyond_a_lease_that_ran_out_and_a_release_by_force(a: World) -> None:
    lost = await a.lock(timeout=a.kind.brief).take(20)
    await a.eventually(lambda: lost.lost)
    await a.eventually(a.is_free)
    forced = await a.lock().take(5)
    a.force()
    if a.kind is SEVERAL:
        # Only one of its keys was taken away.
        with pytest.raises(LockLost):
            await forced.release()
    last = await a.lock().take(0)
    fences = [a.fences(held) for held in (lost, forced, last)]
    assert fences == sorted(set(fences))
    await last.release()


@on(ONE_SERVER)
async def test_a_fence_grows_though_the_server_forgets_everything(a: World) -> None:
    before = await a.lock().take(0)
    a.direct.flushall()
    after = await a.lock().take(0)
    assert a.fences(after) > a.fences(before)
    await after.release()


@on(QUEUED)
async def test_a_fence_grows_when_the_lock_goes_to_a_waiter(a: World) -> None:
    first = await a.rival().take(0)
    job = a.spawn(a.rival().take(20))
    await a.waiting(1)
    last_job = a.spawn(a.lock().take(20))
    await a.waiting(2)
    if isinstance(a.server, RealServer) and not a.kind.polls:
        # Who does not listen yet may be passed over.
        await a.eventually(lambda: a.sleepers() >= (1 if a.driver.is_asyncio else 2))
    await first.release()
    second = await job.result()
    await second.release()
    last = await last_job.result()
    at_the_name = a.fences(last)[len(a.kind.names) // 2]
    assert first.fence < second.fence < at_the_name
    await last.release()


@on([EXCLUSIVE, HOSTED])
async def test_a_fence_is_the_time_of_the_server_in_microseconds(a: World) -> None:
    async with a.lock().block() as first:
        pass
    async with a.lock().block() as second:
        assert second.fence > first.fence
        # Microseconds since 1970, so that it grows though all keys were lost.
        seconds, _ = a.direct.time()
        assert abs(second.fence - seconds * 1_000_000) < 60_000_000


@on([READERS])
async def test_readers_who_are_in_together_have_fences_of_their_own(a: World) -> None:
    async with a.lock().block() as first, a.lock().block() as second:
        assert second.fence > first.fence
    async with a.rival().block() as writer:
        assert writer.fence > second.fence


@on([PERMITS])
async def test_permits_have_fences_of_their_own(a: World) -> None:
    async with a.lock(limit=3).block() as first, a.lock(limit=3).block() as second:
        assert second.fence > first.fence


@on([EXCLUSIVE])
async def test_a_fence_is_of_the_name_and_not_of_the_kind(a: World) -> None:
    fences = []
    for options in ({}, {"shared": True}, {"limit": 2}, {"protocol": "hosted"}, {}):
        async with a.lock(**options).block() as held:
            fences.append(held.fence)
    assert fences == sorted(set(fences))


@on([REDLOCK])
async def test_several_masters_have_no_fence(a: World) -> None:
    async with a.lock().block() as held:
        with pytest.raises(LockUnsupported):
            _ = held.fence


@on([SEVERAL])
async def test_several_keys_have_a_fence_each(a: World) -> None:
    async with a.lock().block() as held:
        assert set(held.fences) == set(a.kind.names)
        with pytest.raises(LockUnsupported):
            _ = held.fence


@on(ONE_SERVER)
async def test_listeners_are_told_the_fence_of_each_hold(a: World) -> None:
    told: list[tuple[str, str, int]] = []

    def acquired(key: str, fence: int, **_: object) -> None:
        told.append(("acquired", key, fence))

    def released(key: str, fence: int, **_: object) -> None:
        told.append(("released", key, fence))

    signals.lock_acquired.connect(acquired)
    signals.lock_released.connect(released)
    try:
        async with a.lock().block() as held:
            fences = a.fences(held)
    finally:
        signals.lock_acquired.disconnect(acquired)
        signals.lock_released.disconnect(released)

    holds = list(zip(a.kind.names, fences, strict=True))
    assert sorted(told) == sorted(
        (what, *hold) for hold in holds for what in ("acquired", "released")
    )
