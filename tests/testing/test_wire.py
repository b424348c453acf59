"""Replies that the kit loses, and round trips that it counts."""

from __future__ import annotations

import pytest
from django.core.cache import cache

from django_setnx_lock import LockUnavailable, lock
from django_setnx_lock.testing import LockTester
from tests.processes import in_thread, run


def test_a_lock_whose_reply_is_lost_is_taken_all_the_same(locks: LockTester) -> None:
    locks.drop_next_reply()

    with locks.assertNumLockRoundTrips(2):
        held = lock("a").take()

    assert locks.assert_locked("a").fence == held.fence
    held.release()


def test_a_request_whose_reply_is_lost_was_carried_out(locks: LockTester) -> None:
    locks.drop_next_reply(3)

    with pytest.raises(LockUnavailable):
        lock("a", renew=False).take(0)

    # The third was that of the attempt to undo it, which was repeated.
    locks.assert_not_locked("a")


def test_the_reply_to_a_release_is_lost_and_it_is_released(locks: LockTester) -> None:
    held = lock("a").take()
    locks.drop_next_reply()

    held.release()

    locks.assert_released("a")


def test_a_reply_to_the_cache_is_not_lost(locks: LockTester) -> None:
    locks.drop_next_reply()

    cache.set("answer", 42)

    assert cache.get("answer") == 42


def test_a_lock_costs_two_round_trips(locks: LockTester) -> None:
    with locks.assertNumLockRoundTrips(2):
        cache.get("not a lock")
        with lock("a"):
            pass


def test_the_round_trips_of_other_threads_count(locks: LockTester) -> None:
    with locks.assertNumLockRoundTrips(1):
        in_thread(lambda: lock("a").locked())


def test_the_round_trips_of_renewals_do_not_count(locks: LockTester) -> None:
    with locks.assertNumLockRoundTrips(2), lock("a", timeout=30):
        locks.advance(120)


def test_the_round_trips_of_renewals_in_asyncio_do_not_count(locks: LockTester) -> None:
    async def work() -> None:
        async with lock("a", timeout=30) as held:
            await locks.aadvance(120)
            assert not held.lost

    with locks.assertNumLockRoundTrips(2):
        run(work())


def test_other_round_trips_than_told_are_listed(locks: LockTester) -> None:
    with pytest.raises(AssertionError) as caught, locks.assertNumLockRoundTrips(1), lock("a"):
        pass

    assert str(caught.value) == "2 lock round trips, not 1:\n1. acquire lock:a\n2. release lock:a"


def test_none_are_told_as_none(locks: LockTester) -> None:
    one = locks.assertNumLockRoundTrips(1)
    with pytest.raises(AssertionError, match=r"^0 lock round trips, not 1$"), one:
        pass


def test_a_block_that_fails_is_not_counted(locks: LockTester) -> None:
    with pytest.raises(KeyError), locks.assertNumLockRoundTrips(1):
        raise KeyError("a")
