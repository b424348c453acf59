"""What locks leave in Redis is bounded by the names in use, and ends by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.drivers import Face
from tests.support.kinds import EXCLUSIVE, HOSTED, LISTED, ONE_SERVER, QUEUED, REDLOCK, TIMESTAMP
from tests.support.locks import server_ms
from tests.support.rows import on
from tests.support.world import World

# What stands beside a name for a minute longer than the lease of 10 seconds.
BESIDE = 70_000
# And a mailbox after it was last written to.
MAIL = 60_000


def left(a: World) -> list[str]:
    return sorted(a.direct.scan_iter(count=1000))


async def turns(a: World, renew: bool) -> list[str]:
    """Return the keys that are left after ten turns of a server that knows the scripts."""
    async with a.lock(renew=renew).block():
        pass
    a.direct.flushdb()
    for _ in range(10):
        async with a.lock(renew=renew).block():
            pass
    assert a.is_free()
    keys = left(a)
    assert all(0 < a.direct.pttl(key) <= BESIDE for key in keys)
    return keys


@on(QUEUED, real=True)
@pytest.mark.parametrize("renew", [False, True], ids=["plain", "renewed"])
async def test_any_number_of_turns_leaves_one_key_for_each_name(a: World, renew: bool) -> None:
    assert await turns(a, renew) == sorted(f"{{{name}}}:meta" for name in a.kind.names)


@on([TIMESTAMP, HOSTED, REDLOCK], real=True)
async def test_turns_without_a_queue_leave_as_little(a: World) -> None:
    assert len(await turns(a, renew=False)) <= len(a.kind.names)


@on(QUEUED, real=True)
async def test_who_does_not_get_it_leaves_nothing(a: World) -> None:
    async with a.rival().block():
        before = left(a)
        for _ in range(3):
            assert await a.lock().acquire(blocking=False) is False
            assert await a.lock().acquire(blocking_timeout=0.02) is False
            if a.driver.is_asyncio:
                job: Any = a.spawn(a.lock().take(20))
                await a.waiting(1)
                job.task.cancel()
                await asyncio.wait([job.task])
            await a.eventually(lambda: a.info().waiting == 0)
        await a.eventually(lambda: len(left(a)) <= len(before) + len(a.kind.names) + 1)
        assert all(a.direct.pttl(key) > 0 for key in left(a))


@on(QUEUED, real=True)
async def test_a_lock_that_went_through_a_queue_leaves_as_little(a: World) -> None:
    held = await a.rival().take(0)
    jobs = []

    async def turn(lock: Face) -> None:
        async with lock.block():
            pass

    for count in range(3):
        jobs.append(a.spawn(turn(a.rival())))
        await a.waiting(count + 1)
    await held.release()
    for job in jobs:
        await job.result()

    await a.eventually(a.is_free)
    assert all(0 < a.direct.pttl(key) <= 2 * BESIDE for key in left(a))
    # Who asked just as it was woken leaves its mail unread, for a minute.
    mail = [key for key in left(a) if ":wake:" in key or ":mail:" in key]
    assert all(a.direct.pttl(key) <= MAIL for key in mail)
    assert len({key.removesuffix(":awake") for key in mail}) <= len(jobs)
    assert len([key for key in left(a) if key not in mail]) <= len(a.kind.names)


def scripts_run(a: World) -> int:
    stats: Any = a.direct.info("commandstats")
    return sum(one["calls"] for name, one in stats.items() if "eval" in name)


@on(LISTED, real=True)
async def test_a_lock_is_listed_in_its_index_while_it_is_held_for_long(a: World) -> None:
    index = "{lock:}:index"
    async with a.lock(index=index, timeout=2, renew=True).block():
        # By the first renewal, or by whoever meets the lock taken.
        assert await a.rival(index=index).acquire(blocking=False) is False
        await a.eventually(lambda: a.direct.zscore(index, "lock:a") is not None)
    # Whoever met it may have listed it until the end of its lease.
    await a.eventually(lambda: (a.direct.zscore(index, "lock:a") or 0) < server_ms(a.direct))


@on([EXCLUSIVE], real=True)
async def test_a_lock_that_is_asked_about_and_let_go_soon_is_on_no_list(a: World) -> None:
    index = "{lock:}:index"
    async with a.lock(index=index, timeout=10).block() as held:
        await held.check()
        await held.extend(5)
    assert not a.direct.exists(index)


@on([EXCLUSIVE], real=True)
async def test_a_lock_that_is_neither_renewed_nor_on_a_list_asks_nothing_while_it_is_held(
    a: World,
) -> None:
    async with a.lock(timeout=10).block():
        end, before = server_ms(a.direct) + 700, scripts_run(a)
        await a.eventually(lambda: server_ms(a.direct) > end)
        assert scripts_run(a) == before


@on(LISTED, real=True)
async def test_a_lock_that_is_not_renewed_is_listed_too_until_it_is_released(a: World) -> None:
    index = "{lock:}:index"
    async with a.lock(index=index, timeout=10).block():
        await a.eventually(lambda: a.direct.zscore(index, "lock:a") is not None, seconds=5)
    await a.eventually(lambda: a.direct.zscore(index, "lock:a") is None, seconds=5)


@on(ONE_SERVER, real=True)
async def test_no_key_is_outside_of_the_slot_of_its_name(a: World) -> None:
    async with a.rival().block():
        assert await a.lock().acquire(blocking_timeout=0.02) is False
    async with a.lock().block():
        pass
    a.force()
    for key in left(a):
        assert any(key == name or f"{{{name}}}" in key for name in a.kind.names), key
