"""Time that the kit has pass."""

from __future__ import annotations

import threading
import time

import pytest

from django_setnx_lock import LockBusy, LockLost, lock
from django_setnx_lock.core import State
from django_setnx_lock.testing import LockTester
from tests.support.seams import clock


def test_a_lease_that_is_not_renewed_ends_here_and_on_the_server(locks: LockTester) -> None:
    held = lock("a", timeout=30, renew=False).take()
    locks.advance(29)
    locks.assert_locked("a")
    assert not held.lost

    locks.advance(2)

    locks.assert_not_locked("a")
    assert held.lost


def test_a_lock_is_renewed_for_as_long_as_time_goes_on(locks: LockTester) -> None:
    with lock("a", timeout=30) as held:
        began = time.monotonic()
        locks.advance(600)

        assert locks.assert_locked("a").remaining == pytest.approx(25, abs=6)
        assert not held.lost
        assert time.monotonic() - began < 20


@pytest.mark.parametrize("renew", [True, False])
def test_the_holder_lives_however_much_time_has_passed(locks: LockTester, renew: bool) -> None:
    with lock("a", timeout=300, renew=renew):
        for _ in range(3):
            locks.advance(60)

            assert locks.assert_locked("a").state is State.HELD


def test_a_lock_is_lost_when_redis_stays_away_for_its_lease(locks: LockTester) -> None:
    told = threading.Event()
    held = lock("a", timeout=5, on_lost=lambda _: told.set()).take()

    with locks.unreachable():
        locks.advance(2)
        assert not told.is_set()
        locks.advance(4)

    assert told.is_set()
    with pytest.raises(LockLost, match="could not be renewed"):
        held.check()


def test_max_hold_comes(locks: LockTester) -> None:
    held = lock("a", timeout=5, max_hold=60).take()
    locks.advance(50)
    assert not held.lost

    locks.advance(15)

    assert held.lost


def test_who_waits_is_next_when_the_lease_of_a_dead_holder_is_over(locks: LockTester) -> None:
    got = threading.Event()

    def wait() -> None:
        with lock("a", blocking_timeout=None):
            got.set()

    with locks.held_elsewhere("a", timeout=600, renew=False):
        thread = threading.Thread(target=wait)
        thread.start()
        locks.assert_waiting("a", 1)
        locks.advance(300)
        assert not got.is_set()
        locks.assert_waiting("a", 1)
        locks.advance(301)
        thread.join(10)

        assert got.is_set()


def test_nobody_of_many_who_wait_is_taken_for_dead(locks: LockTester) -> None:
    got: list[int] = []

    def wait(number: int) -> None:
        with lock("a", blocking_timeout=None):
            got.append(number)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(8)]
    with locks.held_elsewhere("a"):
        for number, thread in enumerate(threads, 1):
            thread.start()
            locks.assert_waiting("a", number)
        for _ in range(4):
            locks.advance(100)
            locks.assert_waiting("a", 8, within=0)
    for thread in threads:
        thread.join(10)

    # Who was dropped from the queue would have come in at its end again.
    assert got == list(range(8))


def test_who_waits_gives_up_in_his_time(locks: LockTester) -> None:
    errors: list[LockBusy] = []

    def wait() -> None:
        try:
            lock("a", blocking_timeout=20).take()
        except LockBusy as error:
            errors.append(error)

    with locks.held_elsewhere("a"):
        thread = threading.Thread(target=wait)
        thread.start()
        locks.assert_waiting("a", 1)
        locks.advance(21)
        thread.join(10)

    assert len(errors) == 1


def test_clocks_do_not_go_back(locks: LockTester) -> None:
    with pytest.raises(ValueError, match="only go forward"):
        locks.advance(-1)


def test_the_clocks_are_right_again_afterwards() -> None:
    before = clock.now()

    with LockTester() as locks:
        locks.advance(1000)
        assert clock.now() > before + 999

    assert clock.now() < before + 900
