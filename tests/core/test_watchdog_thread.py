"""The one thread of the watchdog: when it starts, wakes up and ends."""

from __future__ import annotations

import gc
import logging
import math
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core import clock
from django_setnx_lock.core.connections.primitives import CONNECTING
from django_setnx_lock.core.renewal import watchdog
from django_setnx_lock.core.renewal.scheduler import RenewalScheduler
from django_setnx_lock.core.renewal.watchdog import Watchdog
from tests.core.helpers import in_thread
from tests.core.watching import FakeLine, Wire, held_for, looks, renewals, target
from tests.faults.points import traced
from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from django_setnx_lock.core import LockHandle


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def dog(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watchdog]:
    """Give a watchdog with a thread, in real time."""
    dog = Watchdog(connection=FakeLine)  # type: ignore[arg-type]  # stands in for Line
    monkeypatch.setattr(watchdog, "WATCHDOG", dog)
    yield dog
    dog.forget_all()
    wire.silent = False
    dog.before_fork()
    eventually(lambda: not threads())


def threads() -> list[threading.Thread]:
    """Return the threads of the watchdog under test, which started after the app's own."""
    return [one for one in threading.enumerate() if one.name == "setnx-lock-watchdog"]


@pytest.fixture(autouse=True)
def no_other_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the thread of the app's own watchdog, which may linger, end before each test."""
    watchdog.WATCHDOG.before_fork()
    eventually(lambda: not threads())


def taken(wire: Wire, name: str = "lock:a", **options: Any) -> LockHandle:
    return held_for(wire.client, clock.now(), name, **options)


def test_the_first_lock_starts_a_thread_that_keeps_no_process_alive(
    dog: Watchdog, wire: Wire
) -> None:
    before = threads()
    held = taken(wire)

    dog.watch(held.grant)

    assert before == []
    assert [one.daemon for one in threads()] == [True]


def test_all_locks_of_a_process_share_one_thread(dog: Watchdog, wire: Wire) -> None:
    held = [taken(wire, f"lock:{number}") for number in range(1000)]

    for one in held:
        dog.watch(one.grant)

    eventually(lambda: len(threads()) == 1)


def test_a_lock_is_renewed_in_the_background(dog: Watchdog, wire: Wire) -> None:
    held = taken(wire, timeout=1.5)

    dog.watch(held.grant)

    eventually(lambda: renewals(wire.sent))
    assert not held.lost


def test_a_shorter_lease_wakes_the_thread_up(
    dog: Watchdog, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "LONGEST_SLEEP", 600)
    long, short = taken(wire, "lock:long", timeout=3600), taken(wire, "lock:short", timeout=3)
    short.lease.due = clock.now() + 0.1
    dog.watch(long.grant)
    eventually(lambda: dog.wakes_at > clock.now() + 60)

    dog.watch(short.grant)

    eventually(lambda: renewals(wire.sent))
    assert not short.lost


def test_without_being_woken_the_thread_would_sleep_through_a_shorter_lease(
    dog: Watchdog, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "LONGEST_SLEEP", 600)
    monkeypatch.setattr(dog, "wake", lambda: None)
    long, short = taken(wire, "lock:long", timeout=3600), taken(wire, "lock:short", timeout=0.3)
    dog.watch(long.grant)
    eventually(lambda: dog.wakes_at > clock.now() + 60)

    dog.watch(short.grant)

    eventually(lambda: short.lost)
    assert wire.writes == []
    monkeypatch.undo()
    dog.wake()


def test_a_lock_that_comes_while_the_thread_looks_around_is_not_missed(
    dog: Watchdog, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "LONGEST_SLEEP", 0.1)
    long, short = taken(wire, "lock:long", timeout=3600), taken(wire, "lock:short", timeout=6)
    go = RenewalScheduler.run_once
    turns: list[float] = []

    async def go_and_be_late(scheduler: RenewalScheduler) -> float:
        next_at = await go(scheduler)
        turns.append(next_at)
        if len(turns) == 2:
            # It sees the lock in its next turn, which is far away unless it is woken.
            monkeypatch.setattr(watchdog, "LONGEST_SLEEP", 600)
            short.lease.due = clock.now() + 0.1
            dog.watch(short.grant)
        return next_at

    monkeypatch.setattr(RenewalScheduler, "run_once", go_and_be_late)
    dog.watch(long.grant)

    eventually(lambda: renewals(wire.sent))


def test_the_thread_ends_some_time_after_the_last_lock(
    dog: Watchdog, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "LINGER", 0.1)
    held = taken(wire, timeout=6)
    held.lease.due = clock.now()
    dog.watch(held.grant)
    eventually(lambda: wire.open)

    dog.forget(held.grant)

    eventually(lambda: not threads())
    assert wire.open == 0


def test_no_lock_is_missed_however_often_the_thread_ends(
    dog: Watchdog, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "LINGER", 0)
    for number in range(50):
        held = taken(wire, f"lock:{number}", timeout=3)
        held.lease.due = clock.now()

        dog.watch(held.grant)

        eventually(lambda: wire.writes)
        dog.forget(held.grant)
        wire.writes.clear()


def test_a_thread_that_is_about_to_end_stays_when_there_is_a_lock_after_all(
    dog: Watchdog, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dog, "_start", lambda: None)
    me = threading.current_thread()
    held = taken(wire)

    ends = dog._retire(me)
    dog.watch(held.grant)
    stays = not dog._retire(me)

    assert (ends, stays) == (True, True)
    assert dog.is_current()


def test_of_two_threads_that_were_started_at_once_one_ends(dog: Watchdog, wire: Wire) -> None:
    held = taken(wire, timeout=1.5)

    with ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(dog._start) for _ in range(4)]:
            one.result(10)
    dog.watch(held.grant)

    eventually(lambda: len(threads()) == 1)
    eventually(lambda: renewals(wire.sent))


def test_a_lock_is_held_though_no_thread_can_be_started(
    dog: Watchdog, wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    held = taken(wire)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        dog.watch(held.grant)
    without = threads()

    dog.watch(held.grant)

    assert without == []
    assert "locks are not renewed: can't start new thread" in caplog.text
    assert len(threads()) == 1


def test_a_mistake_of_the_watchdog_is_logged_and_does_not_end_it(
    dog: Watchdog, wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go = RenewalScheduler.run_once
    mistakes = [ZeroDivisionError("a mistake")]

    async def stumble(scheduler: RenewalScheduler) -> float:
        if mistakes:
            raise mistakes.pop()
        return await go(scheduler)

    monkeypatch.setattr(RenewalScheduler, "run_once", stumble)
    held = taken(wire, timeout=6)
    held.lease.due = clock.now()

    dog.watch(held.grant)

    eventually(lambda: renewals(wire.sent))
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "a mistake" in caplog.text


def test_on_lost_is_called_in_the_background(dog: Watchdog, wire: Wire) -> None:
    found: list[threading.Thread] = []
    held = taken(wire, timeout=0.2, on_lost=lambda held: found.append(threading.current_thread()))
    wire.down = True

    dog.watch(held.grant)

    eventually(lambda: found)
    assert found == threads()


@pytest.mark.parametrize(("sleeps_for", "wakings"), [(0.02, 0), (1.0, 1)])
def test_a_look_wakes_the_thread_only_from_a_long_sleep(
    dog: Watchdog, wire: Wire, monkeypatch: pytest.MonkeyPatch, sleeps_for: float, wakings: int
) -> None:
    woken: list[None] = []
    monkeypatch.setattr(dog, "wake", lambda: woken.append(None))
    dog._thread = threading.current_thread()
    dog.wakes_at = clock.now() + sleeps_for

    dog.schedule_handoff_check(target(wire.client), "waiter 1")

    assert len(woken) == wakings


def test_while_locks_are_handed_on_the_thread_sleeps_for_a_moment_only(
    dog: Watchdog, wire: Wire
) -> None:
    dog.schedule_handoff_check(target(wire.client), "waiter 1")
    eventually(lambda: looks(wire.sent) and not dog.handoff_checks())

    naps = []
    for _ in range(20):
        time.sleep(0.005)
        naps.append(dog.wakes_at - clock.now())

    assert max(nap for nap in naps if nap < math.inf) < 0.1


def test_a_look_starts_the_thread_too(dog: Watchdog, wire: Wire) -> None:
    dog.schedule_handoff_check(target(wire.client), "waiter 1")

    eventually(lambda: looks(wire.sent))


def test_finishing_sends_the_looks_that_are_owed_at_once(
    dog: Watchdog, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "EXIT_WITHIN", 10)
    dog.schedule_handoff_check(target(wire.client), "waiter 1")
    for look in dog.handoff_checks():
        look.due += 600

    dog.finish()

    assert looks(wire.sent) == [("lock:a", "waiter 1")]


def test_finishing_does_not_wait_for_a_thread_whose_start_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # threading has it among its own from the first step of its start on.
    begun = threading.Thread(name=CONNECTING)
    running = threading.enumerate()
    monkeypatch.setattr(threading, "enumerate", lambda: [*running, begun])

    Watchdog().finish()

    assert not begun.is_alive()


def test_finishing_waits_for_a_server_that_does_not_answer_for_half_a_second_at_most(
    dog: Watchdog, wire: Wire
) -> None:
    wire.silent = True
    dog.schedule_handoff_check(target(wire.client), "waiter 1")
    started = clock.now()

    dog.finish()

    assert 0.4 < clock.now() - started < 5


def interrupt_line(number: int, work: Callable[[], object]) -> bool:
    """Run ``work``, interrupted at that line of the watchdog; say whether it came so far."""
    left = [number]

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.endswith("core/renewal/watchdog.py"):
            return None
        if event == "line":
            left[0] -= 1
            if left[0] < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    try:
        with traced(trace):
            work()
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.parametrize("running", [False, True], ids=["no thread", "a thread"])
def test_an_interrupt_anywhere_leaves_the_watchdog_working(
    dog: Watchdog, wire: Wire, running: bool
) -> None:
    lines = 0
    while True:
        if not running:
            dog.before_fork()
        struck, healthy = taken(wire, "lock:struck"), taken(wire, "lock:healthy", timeout=6)
        struck.lease.due = healthy.lease.due = clock.now()

        def use(held: LockHandle = struck) -> None:
            dog.watch(held.grant)
            dog.watch(held.grant)
            dog.schedule_handoff_check(target(wire.client), "waiter 1")
            dog.forget(held.grant)

        # In a thread of its own: what an interrupt leaves half handled stays there.
        if not in_thread(lambda: interrupt_line(lines, use)):  # noqa: B023 - called at once
            break
        lines += 1
        dog.watch(healthy.grant)

        eventually(lambda: ("lock:healthy", 6000) in renewals(wire.sent))
        dog.forget_all()
        wire.writes.clear()

    gc.collect()
    assert lines > 10


@pytest.mark.parametrize(("timeout", "wakes"), [(30, False), (3, True)])
def test_only_what_is_due_soon_wakes_a_thread_that_is_at_work(
    dog: Watchdog, wire: Wire, monkeypatch: pytest.MonkeyPatch, timeout: int, wakes: bool
) -> None:
    kept: list[LockHandle] = []
    has_spun = threading.Event()
    go = RenewalScheduler.run_once

    async def go_while_one_is_added(scheduler: RenewalScheduler) -> float:
        added = taken(wire, f"lock:{len(kept)}", timeout=timeout)
        kept.append(added)
        dog.watch(added.grant)
        if len(kept) == 20:
            has_spun.set()
        return await go(scheduler)

    with monkeypatch.context() as patched:
        patched.setattr(RenewalScheduler, "run_once", go_while_one_is_added)
        dog.watch((first := taken(wire, "lock:first", timeout=timeout)).grant)

        assert has_spun.wait(10 if wakes else 0.3) is wakes
    assert not first.released
