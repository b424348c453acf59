"""Who waits for what nobody at work lets go waits in no real time."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import LockBusy, lock, rwlock, semaphore
from tests.processes import in_thread, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_setnx_lock.testing import LockTester


@pytest.fixture(autouse=True)
def no_time() -> Iterator[None]:
    began = time.monotonic()
    yield
    # Each of these would wait for 60 s.
    assert time.monotonic() - began < 30


def test_a_call_in_the_block_is_refused_when_its_time_is_over(locks: LockTester) -> None:
    with locks.held_elsewhere("a"), pytest.raises(LockBusy):
        lock("a", blocking_timeout=60).take()

    with lock("a", blocking_timeout=0):
        pass


def test_a_call_in_asyncio_is_refused_when_its_time_is_over(locks: LockTester) -> None:
    async def call() -> None:
        with locks.held_elsewhere("a"), pytest.raises(LockBusy):
            await lock("a", blocking_timeout=60).atake()
        async with lock("a", blocking_timeout=0):
            pass

    run(call())


def test_what_is_held_meanwhile_is_renewed(locks: LockTester) -> None:
    with lock("mine", timeout=5) as held:
        with locks.held_elsewhere("a"), pytest.raises(LockBusy):
            lock("a", blocking_timeout=60).take()

        held.check()
        locks.assert_locked("mine")


def test_who_waits_for_the_lease_of_a_dead_holder_gets_the_lock(locks: LockTester) -> None:
    with locks.held_elsewhere("a", timeout=60, renew=False), lock("a", blocking_timeout=120):
        locks.assert_locked("a")


def test_who_waits_for_what_min_hold_keeps_gets_the_lock(locks: LockTester) -> None:
    with lock("a", min_hold=60):
        pass

    with lock("a", blocking_timeout=120):
        pass


def test_a_caller_that_waits_for_itself_is_refused(locks: LockTester) -> None:
    with lock("a", reentrant=False), pytest.raises(LockBusy):
        lock("a", reentrant=False, blocking_timeout=60).take()


@pytest.mark.parametrize("kind", ["readers", "permits", "several"])
def test_so_it_is_with_other_kinds(locks: LockTester, kind: str) -> None:
    if kind == "readers":
        with locks.held_elsewhere("a", shared=True), pytest.raises(LockBusy):
            rwlock("a", blocking_timeout=60).write().take()
    elif kind == "permits":
        with locks.held_elsewhere("a", limit=1), pytest.raises(LockBusy):
            semaphore("a", 1, blocking_timeout=60).take()
    else:
        with locks.held_elsewhere("b"), pytest.raises(LockBusy):
            lock("a", "b", blocking_timeout=60).take()


def test_a_thread_waits_for_another_that_is_at_work(locks: LockTester) -> None:
    is_held, done = threading.Event(), threading.Event()

    def work() -> None:
        with lock("a"):
            is_held.set()
            assert done.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    assert is_held.wait(10)
    threading.Timer(0.2, done.set).start()
    with lock("a", blocking_timeout=20):
        assert done.is_set()
    thread.join(10)


def test_a_thread_waits_for_the_block_of_another(locks: LockTester) -> None:
    with locks.held_elsewhere("a"):
        took = threading.Event()

        def wait() -> None:
            with lock("a", blocking_timeout=20):
                took.set()

        thread = threading.Thread(target=wait)
        thread.start()
        locks.assert_waiting("a", 1)
        assert not took.is_set()
    thread.join(10)

    assert took.is_set()


def test_a_task_waits_for_another_that_is_at_work(locks: LockTester) -> None:
    async def both() -> None:
        order, inside = list[str](), asyncio.Event()

        async def work() -> None:
            async with lock("a"):
                inside.set()
                await asyncio.sleep(0.1)
                order.append("first")

        task = asyncio.create_task(work())
        await inside.wait()
        async with lock("a", blocking_timeout=20):
            order.append("second")
        await task
        assert order == ["first", "second"]

    run(both())


def test_a_thread_of_a_pool_waits_for_nobody_who_has_ended(locks: LockTester) -> None:
    held = in_thread(lambda: lock("a", timeout=60, renew=False).take())

    with lock("a", blocking_timeout=120):
        assert held.lost
