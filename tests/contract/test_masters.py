"""A lock on several masters is there while most of them are."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import LockLost, LockUnavailable
from tests.processes import Stopwatch
from tests.support.kinds import REDLOCK
from tests.support.rows import on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.world import World


@contextmanager
def hanging(a: World, *numbers: int) -> Iterator[None]:
    servers = [a.servers[number] for number in numbers]
    for server in servers:
        server.pause()  # type: ignore[attr-defined]  # real ones
    try:
        yield
    finally:
        for server in servers:
            server.resume()  # type: ignore[attr-defined]  # the same


@pytest.mark.matrix
@on([REDLOCK], real=True)
async def test_one_master_that_hangs_keeps_nobody_out_and_lets_nobody_in(a: World) -> None:
    with hanging(a, 2):
        with Stopwatch() as watch:
            async with a.lock(master_timeout=1).block() as held:
                assert await a.rival(master_timeout=1).acquire(blocking=False) is False
                await held.check()
                await held.extend(5)
        # Its time each, and what a busy machine takes.
        assert watch.seconds < 20
    # It was told to undo what it was asked for.
    await a.eventually(a.is_free)


@on([REDLOCK], real=True)
async def test_without_most_of_the_masters_it_is_unavailable(a: World) -> None:
    held = await a.lock(master_timeout=1).take(0)
    with hanging(a, 1, 2):
        for ask in (
            lambda: a.lock("lock:z", master_timeout=1).take(0),
            held.check,
            lambda: held.extend(5),
        ):
            with pytest.raises(LockUnavailable):
                await ask()
        assert not held.lost
    await held.check()
    await held.release()
    await a.eventually(lambda: a.is_free() and not a.direct.exists("lock:z"))


@on([REDLOCK], real=True)
async def test_a_master_that_forgets_its_part_costs_no_lock(a: World) -> None:
    async with a.lock().block() as held:
        a.direct.flushall()
        await held.check()
        assert await a.rival().acquire(blocking=False) is False


@on([REDLOCK], real=True)
async def test_a_lock_that_is_not_renewed_by_most_is_lost_in_time(a: World) -> None:
    held = await a.lock(timeout=1, renew=True).take(20)
    with hanging(a, 1, 2):
        await a.eventually(lambda: held.lost)
    with pytest.raises(LockLost):
        await held.release()
    assert await a.rival().acquire(blocking_timeout=20) is True


@on([REDLOCK], real=True)
async def test_a_master_that_is_not_there_keeps_nobody_out(a: World) -> None:
    a.servers[2].kill()  # type: ignore[attr-defined]  # a real one
    try:
        async with a.lock().block() as held:
            await held.check()
            assert await a.rival().acquire(blocking=False) is False
    finally:
        a.servers[2].start()  # type: ignore[attr-defined]  # the same
    assert a.is_free()


@on([REDLOCK], real=True)
async def test_who_finds_the_masters_divided_waits_and_asks_again(a: World) -> None:
    # Two callers have one each, and nobody a majority.
    for number, server in enumerate(a.servers[:2]):
        server.client().set("lock:a", f"caller {number}", px=30_000)
    assert await a.lock().acquire(blocking=False) is False
    job = a.spawn(a.lock().acquire(blocking_timeout=20))
    await a.waiting(1)
    a.servers[1].client().delete("lock:a")
    assert await job.result() is True
