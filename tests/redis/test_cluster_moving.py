"""Locks while their slot moves from one node to another: none is lost, and none is had twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import LockBusy, LockLost, LockUnavailable
from django_setnx_lock.core import State
from tests.processes import Stopwatch, eventually, figure, may_be_late
from tests.support import seams
from tests.support.drivers import DRIVERS, Driver, Face
from tests.support.seams import release_each, take_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.redis.clusters import Cluster

# One process starts the servers.
pytestmark = pytest.mark.xdist_group("three primaries")

NAME = "lock:a"


def passes(seconds: float) -> None:
    """Return when so much time has passed: to see that nothing happens meanwhile."""
    ends = seams.clock.now() + seconds
    eventually(lambda: seams.clock.now() >= ends)


@contextmanager
def moving(masters: Cluster, name: str = NAME) -> Iterator[Callable[..., None]]:
    """Have the slot of ``name`` move for the time of the block, its keys at the end, or sooner.

    Gives what moves those that are there.
    """
    slot = masters.slot_of(name)
    source = masters.owner_of(slot)
    new = masters.nodes[masters.nodes.index(source) - 1]
    masters.begin_move(slot, source, new)
    try:
        yield partial(masters.move_keys, slot, source, new)
    finally:
        masters.move_keys(slot, source, new)
        masters.end_move(slot, new)


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_a_lock_is_renewed_however_long_its_slot_moves(masters: Cluster, driver: Driver) -> None:
    async def work() -> None:
        held = await Face(masters.lock(NAME, 1.0, renew=True), driver).take(0)
        with moving(masters) as move_keys:
            # In the midst of it.
            for _ in range(2):
                await driver.sleep(1.1)
                move_keys()
        await held.check()
        await held.release()

    driver.run(work())


def test_what_another_has_meanwhile_is_not_renewed(masters: Cluster) -> None:
    held = masters.lock(NAME, 3.0, renew=True).take(0)

    with moving(masters):
        there = masters.teller(masters.owner_of(masters.slot_of(NAME)))
        there.set(NAME, "somebody else's", px=20_000)
        eventually(lambda: held.lost)

    with pytest.raises(LockLost, match="no longer ours"):
        held.check()


def test_a_release_waits_for_a_slot_that_moves(masters: Cluster) -> None:
    held = masters.lock().take(0)
    with ThreadPoolExecutor(1) as pool:
        with moving(masters):
            releasing = pool.submit(held.release)
            passes(0.3)
        releasing.result(10)

    assert held.released
    assert masters.inspector().get(NAME).state is State.FREE


@may_be_late(2)
def test_who_does_not_wait_is_told_in_time_that_the_slot_moves(
    masters: Cluster, late: float
) -> None:
    with moving(masters), Stopwatch() as watch, pytest.raises(LockUnavailable) as caught:
        masters.lock().take(0)

    assert "moved to another node" in str(caught.value)
    assert caught.value.cause == "moving"
    assert watch.seconds < late
    with masters.lock():
        pass


@may_be_late(1)
def test_who_waits_longer_than_the_slot_moves_gets_the_lock(masters: Cluster, late: float) -> None:
    with ThreadPoolExecutor(1) as pool:
        with moving(masters):
            taking = pool.submit(masters.lock().take, 20)
            # For longer than any single request is tried for.
            passes(1.2)
            assert not taking.done()
        with Stopwatch() as watch:
            taking.result(10).release()

    figure(f"from the end of a move to the lock: {watch.seconds:.3f} s")
    assert watch.seconds < late


def test_a_waiter_follows_the_slot(masters: Cluster) -> None:
    held = masters.lock(NAME, renew=True).take(0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(masters.lock().take, 20)
        eventually(lambda: masters.usual.zcard(f"{{{NAME}}}:waiters"))

        masters.move(masters.slot_of(NAME))
        held.release()
        with Stopwatch() as watch:
            waiting.result(10).release()

    figure(f"from a release at the new node to a waiter: {watch.seconds:.3f} s")
    # Who is blocked at the old one is sent on within a second.
    assert watch.seconds < 3


def test_who_shares_a_lock_keeps_others_out_while_its_keys_move_one_by_one(
    masters: Cluster,
) -> None:
    held = masters.lock(shared=True).take(0)

    with moving(masters):
        source = masters.owner_of(masters.slot_of(NAME))
        new = masters.nodes[masters.nodes.index(source) - 1]
        masters.migrate([NAME, f"{{{NAME}}}:meta"], source, new)
        with pytest.raises(LockBusy):
            masters.lock().take(0)

    held.check()
    held.release()


def test_a_client_that_knows_only_the_old_map_finds_its_locks(masters: Cluster) -> None:
    held = masters.lock().take(0)
    masters.move(masters.slot_of(NAME))

    held.check()
    held.extend(10)
    assert masters.lock().locked()
    held.release()


def test_many_locks_are_taken_and_released_while_a_slot_moves(masters: Cluster) -> None:
    with ThreadPoolExecutor(1) as pool:
        with moving(masters):
            taking = pool.submit(
                take_each, [masters.lock(name) for name in [NAME, *masters.names()]]
            )
            passes(0.3)
        taken = taking.result(10)

    assert not [one.error for one in taken if one.error]
    masters.move(masters.slot_of(NAME))
    assert release_each([one.held for one in taken if one.held]) == []


def test_a_page_has_the_locks_of_a_slot_that_moves(masters: Cluster) -> None:
    held = [masters.lock(f"lock:{{shop}}:{number}").take(0) for number in range(20)]
    with ThreadPoolExecutor(1) as pool, moving(masters, "{shop}") as move_keys:
        pages = pool.submit(lambda: [masters.inspector().find() for _ in range(5)])
        move_keys(pause=0.05)

    assert {page.total for page in pages.result(20)} == {20}
    assert release_each(held) == []


def test_a_page_has_the_locks_of_a_node_to_which_callers_were_sent_on(masters: Cluster) -> None:
    held = [masters.lock(f"lock:{{shop}}:{number}").take(0) for number in range(20)]
    masters.move(masters.slot_of("{shop}"))

    pages = [masters.inspector().find() for _ in range(2)]

    assert [page.total for page in pages] == [20, 20]
    # Nor does the client itself take it for a replica.
    primaries = masters.usual.get_primaries()  # type: ignore[no-untyped-call]  # redis-py's
    assert len(primaries) == len(masters.nodes)
    assert release_each(held) == []


def test_a_page_has_the_locks_that_moved_while_nodes_were_looked_through(
    masters: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = masters.names()
    held = [masters.lock(name).take(0) for name in names]
    scanned: list[int] = []

    def move(port: int) -> None:
        scanned.append(port)
        first = next(node for node in masters.nodes if node.port == scanned[0])
        for slot in map(masters.slot_of, names):
            if masters.owner_of(slot) is not first:
                masters.move(slot, first)

    seams.after_scans(monkeypatch, move)

    assert {lock.name for lock in masters.inspector().find().locks} == set(names)
    assert release_each(held) == []


def test_a_page_has_the_locks_of_a_node_that_the_client_does_not_know(masters: Cluster) -> None:
    names = masters.names()
    held = [masters.lock(name).take(0) for name in names]
    known = masters.usual.nodes_manager
    new, old, *_ = known.nodes_cache.values()
    # What it knew before the node was there.
    for nodes in known.slots_cache.values():
        nodes[:] = [old if node is new else node for node in nodes]
    del known.nodes_cache[new.name]

    assert {lock.name for lock in masters.inspector().find().locks} == set(names)
    assert release_each(held) == []
