"""Processes that are forked, or killed: what they held, and what they waited for."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockError
from tests.processes import FORKS, Stopwatch, eventually
from tests.support.children import child
from tests.support.drivers import growth
from tests.support.kinds import EXCLUSIVE, QUEUED, REDLOCK
from tests.support.rows import on
from tests.support.world import DUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.world import World

forks = pytest.mark.parametrize("fork", FORKS.values(), ids=FORKS)


def said_of(work: Callable[[], Any]) -> str:
    try:
        return repr(work())
    except LockError as error:
        return type(error).__name__


def own_clients(a: World) -> list[Any]:
    """Return clients of a child's own."""
    return [redis.Redis(port=server.port) for server in a.servers]  # type: ignore[attr-defined]  # real


@forks
@on(drivers=["blocking"], real=True)
async def test_a_forked_child_holds_nothing(a: World, fork: Callable[[], int]) -> None:
    lock = a.lock(renew=True).raw
    with lock as held:

        def work(say: Any) -> None:
            say(
                [
                    said_of(held.owned),
                    said_of(held.remaining),
                    said_of(held.check),
                    said_of(lambda: held.extend(600)),
                    said_of(held.release),
                    said_of(held.handover),
                    said_of(lambda: (lock.held, held.is_here)),
                    said_of(lock.owned),
                    said_of(lock.release),
                    said_of(lambda: a.kind.make_rival(a.clients).acquire(blocking=False)),
                ]
            )

        with child(work, fork) as process:
            said = process.hear()
        held.check()
        assert held.remaining() < 11

    refused, nothing = ["LockError"] * 4, "(None, False)"
    assert said == ["False", "0.0", *refused, nothing, "False", "LockError", "False"]
    assert a.is_free()


@forks
@on(drivers=["blocking"], real=True)
async def test_a_forked_child_that_leaves_the_block_releases_nothing(
    a: World, fork: Callable[[], int]
) -> None:
    lock = a.lock().raw
    lock.__enter__()

    def work(say: Any) -> None:
        say(said_of(lambda: lock.__exit__(None, None, None)))

    with child(work, fork) as process:
        process.hear()
        process.wait()

    assert lock.owned()
    lock.__exit__(None, None, None)
    assert a.is_free()


@forks
@on([EXCLUSIVE, REDLOCK], drivers=["blocking"], real=True)
async def test_what_a_forked_child_takes_is_renewed_there(
    a: World, fork: Callable[[], int]
) -> None:
    # The thread that renews runs here as the child is forked, and sleeps: no fork in C can undo
    # what other threads are about.
    with a.lock("lock:z", timeout=30, renew=True).raw as beside:
        await a.renewed(beside, after=DUE)
        await a.sleep(0.05)

        def work(say: Any) -> None:
            with a.kind.make(own_clients(a), timeout=30, renew=True) as held:
                has_grown = growth(held, after=DUE)
                a.pass_time(DUE)
                eventually(has_grown)
                held.check()
                say(held.lost)

        with child(work, fork) as process:
            assert process.hear() is False


@on([EXCLUSIVE], drivers=["blocking"], real=True)
async def test_a_fork_beside_threads_at_work_stalls_no_child(a: World) -> None:
    stops = threading.Event()

    def cycles() -> None:
        lock = a.kind.make(a.clients, "lock:z", renew=True, reentrant=True)
        while not stops.is_set():
            with lock:
                pass

    threads = [threading.Thread(target=cycles) for _ in range(2)]
    for thread in threads:
        thread.start()

    def work(say: Any) -> None:
        with a.kind.make(own_clients(a), renew=True, reentrant=True) as held:
            say(held.key)

    try:
        for _ in range(5):
            with child(work) as process:
                assert process.hear() == "lock:a"
                process.wait()
    finally:
        stops.set()
        for thread in threads:
            thread.join(20)


@on(drivers=["blocking"], real=True)
async def test_a_killed_holder_is_followed_when_its_lease_ends(a: World) -> None:
    def work(say: Any) -> None:
        held = a.kind.make(own_clients(a), timeout=1, renew=True).take()
        say("held")
        time.sleep(60)
        held.release()

    with child(work) as process:
        process.hear()
        process.kill()
        assert not a.is_free()

        held = await a.rival().take(20)

    await held.release()


@on(QUEUED, drivers=["blocking"], real=True)
@pytest.mark.parametrize("killed", [1, 3])
async def test_killed_waiters_are_passed_over(a: World, killed: int) -> None:
    held = await a.rival(timeout=30).take(0)

    def work(say: Any) -> None:
        a.kind.make_rival(own_clients(a)).take()

    waiters = []
    for count in range(killed):
        waiters.append(child(work))
        waiters[-1].__enter__()
        await a.waiting(count + 1)
    job = a.spawn(a.lock().take(20))
    await a.waiting(killed + 1)
    for waiter in waiters:
        waiter.__exit__(None, None, None)

    with Stopwatch() as watch:
        await held.release()
        following = await job.result()

    # Nobody waits for the holder's lease of 30 seconds, and less than a claim for each of them.
    assert watch.seconds < killed + 4
    await following.release()


@on(QUEUED, drivers=["blocking"], real=True)
async def test_a_waiter_that_stands_still_is_passed_over(a: World) -> None:
    held = await a.rival(timeout=30).take(0)

    def work(say: Any) -> None:
        a.kind.make_rival(own_clients(a)).take()

    with child(work) as process:
        await a.waiting(1)
        os.kill(process.pid, signal.SIGSTOP)
        job = a.spawn(a.lock().take(20))
        await a.waiting(2)
        await held.release()
        await (await job.result()).release()
