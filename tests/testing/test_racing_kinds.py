"""Races under each kind of lock, and what does and does not prove that one excludes the others."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings

from django_setnx_lock import LockBusy, lock, rwlock, semaphore
from django_setnx_lock.signals import lock_busy
from django_setnx_lock.testing import LockTester
from tests.settings import CACHES

INSIDE = f"{__name__}.work"
THREE = ("r1", "r2", "r3")
MASTERS = {
    alias: {**CACHES["default"], "LOCATION": f"redis://{alias}.invalid:6379/0"} for alias in THREE
}


def work() -> None:
    """Stand in for what is done under a lock."""


def own_lock() -> Any:
    """Give a lock of the thread's own: the first that is asked for has the threads line up."""
    return lock(f"own{threading.get_ident()}", blocking_timeout=0)


def under(make: Callable[[], Any]) -> Callable[[], str]:
    """Make what works under the lock that ``make`` gives."""

    def call() -> str:
        with make():
            work()
        return "done"

    return call


def again() -> str:
    with lock("a", reentrant=True, blocking_timeout=30) as held:
        with lock("a", reentrant=True):
            held.check()
        # Let go by the share only.
        work()
    return "done"


def in_a_pool() -> str:
    with semaphore("pool", 2, blocking_timeout=30), lock("a", blocking_timeout=30):
        work()
    return "done"


def adopted() -> str:
    one = lock("a", blocking_timeout=30)
    ticket = one.take().give_away()
    with one.adopt(ticket):
        work()
    return "done"


PATIENT: dict[str, Callable[[], str]] = {
    "one permit": under(lambda: semaphore("a", 1, blocking_timeout=30)),
    "writers": under(lambda: rwlock("a", blocking_timeout=30).write()),
    "reentrant": again,
    "a lock in a pool": in_a_pool,
    "given away and adopted": adopted,
    "several keys": under(lambda: lock("a", "b", blocking_timeout=30)),
    "timestamp": under(lambda: lock("a", protocol="timestamp", blocking_timeout=30)),
    "polling": under(lambda: lock("a", polling=True, blocking_timeout=30)),
    "several masters": under(lambda: lock("a", using=THREE, blocking_timeout=30)),
}
IMPATIENT: dict[str, Callable[[], str]] = {
    "one permit": under(lambda: semaphore("a", 1, blocking_timeout=0)),
    "writers": under(lambda: rwlock("a", blocking_timeout=0).write()),
    "min_hold": under(lambda: lock("a", min_hold=30, blocking_timeout=0)),
    "several keys": under(lambda: lock("a", "b", blocking_timeout=0)),
    "timestamp": under(lambda: lock("a", protocol="timestamp", blocking_timeout=0)),
    "polling": under(lambda: lock("a", polling=True, blocking_timeout=0)),
    "several masters": under(lambda: lock("a", using=THREE, blocking_timeout=0)),
}
SETTINGS = {"CACHES": {**CACHES, **MASTERS}, "SETNX_LOCK": {"MASTER_TIMEOUT": 2}}


@pytest.mark.parametrize("call", PATIENT.values(), ids=PATIENT)
def test_who_waits_for_it_is_inside_one_by_one(call: Callable[[], str]) -> None:
    with override_settings(**SETTINGS), LockTester() as locks:
        assert locks.assert_exclusive(call, inside=INSIDE, threads=3) == ["done"] * 3


@pytest.mark.parametrize("call", IMPATIENT.values(), ids=IMPATIENT)
def test_of_those_who_do_not_wait_for_it_one_is_inside(call: Callable[[], str]) -> None:
    with override_settings(**SETTINGS), LockTester() as locks:
        results = locks.assert_exclusive(call, inside=INSIDE, threads=3)

    assert results.count("done") == 1
    assert sum(isinstance(one, LockBusy) for one in results) == 2


def test_callers_who_wait_for_one_another_with_some_of_several_keys_are_raced(
    locks: LockTester,
) -> None:
    # Whoever waits behind the first has the first key, which the other waits for.
    pairs = iter([("b", "c"), ("a", "b"), ("a", "c")])

    def transfer() -> str:
        with own_lock():
            pair = next(pairs)
        with lock(*pair, blocking_timeout=30):
            work()
        return "done"

    assert locks.assert_exclusive(transfer, inside=INSIDE, threads=3) == ["done"] * 3


@pytest.mark.parametrize(
    ("make", "held"),
    [
        (lambda: semaphore("a", 2, blocking_timeout=0), r"held 'a' \(limit=2\)"),
        (lambda: rwlock("a", blocking_timeout=0).read(), r"held 'a' \(shared=True\)"),
        (lambda: lock(f"a{threading.get_ident()}", blocking_timeout=0), r"held 'a\d+', 'a\d+'"),
    ],
    ids=["permits", "readers", "keys of their own"],
)
def test_locks_that_let_two_in_lose_and_are_named(
    locks: LockTester, make: Callable[[], Any], held: str
) -> None:
    with pytest.raises(AssertionError, match=f"2 of 3 threads were inside .*, and {held}"):
        locks.assert_exclusive(under(make), inside=INSIDE, threads=3)


def test_a_permit_of_two_proves_nothing_though_no_second_one_came_in(locks: LockTester) -> None:
    numbers = itertools.count()
    is_taken, was_refused = threading.Event(), threading.Event()

    def call() -> None:
        with own_lock():
            number = next(numbers)
        if number == 2:
            assert is_taken.wait(10)
        try:
            with semaphore("a", 2, blocking_timeout=0):
                if number == 1:
                    is_taken.set()
                    assert was_refused.wait(10)
                else:
                    work()
        except LockBusy:
            was_refused.set()

    with pytest.raises(AssertionError, match="no thread was kept out by a lock that the one"):
        locks.assert_exclusive(call, inside=INSIDE, threads=3)


def test_a_refusal_before_the_winner_came_in_counts(locks: LockTester) -> None:
    refused = itertools.count(1)

    def note(key: str, **_: object) -> None:
        if next(refused) == 2:
            hindrance.release()

    def call() -> str:
        with lock("a", blocking_timeout=0), lock("b", blocking_timeout=30):
            work()
        return "done"

    hindrance = lock("b").take()
    lock_busy.connect(note)
    try:
        results = locks.assert_exclusive(call, inside=INSIDE, threads=3)
    finally:
        lock_busy.disconnect(note)

    assert results.count("done") == 1


def test_a_lock_that_is_let_go_before_another_is_taken_is_no_hindrance(locks: LockTester) -> None:
    was_refused = threading.Event()

    def one_after_the_other() -> str:
        try:
            with lock("first", blocking_timeout=0):
                # In vain: the other one has not asked yet.
                was_refused.wait(0.05)
        except LockBusy:
            was_refused.set()
            raise
        with lock("second", blocking_timeout=0):
            work()
        return "done"

    results = locks.assert_exclusive(one_after_the_other, inside=INSIDE, threads=2)

    assert results.count("done") == 1
    assert not was_refused.is_set()


def test_what_the_winner_writes_before_its_work_sends_nobody_away_too_early(
    locks: LockTester,
) -> None:
    numbers = itertools.count()
    has_begun = threading.Event()

    def unless_begun() -> str:
        # In vain: the first one has not asked yet.
        if next(numbers) and has_begun.wait(0.05):
            return "begun"
        with lock("a", blocking_timeout=0):
            has_begun.set()
            work()
        return "done"

    results = locks.assert_exclusive(unless_begun, inside=INSIDE, threads=3)

    assert results.count("done") == 1
    assert "begun" not in results


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_reader_and_a_writer_keep_each_other_out(locks: LockTester, kind: str) -> None:
    kinds = iter([kind, "write" if kind == "read" else "read"])

    def call() -> str:
        with own_lock():
            mine = next(kinds)
        with getattr(rwlock("a", blocking_timeout=0), mine)():
            work()
        return mine

    results = locks.assert_exclusive(call, inside=INSIDE, threads=2)

    assert results.count(kind) == 1


def test_to_wait_for_a_lock_that_nobody_inside_holds_proves_nothing(locks: LockTester) -> None:
    numbers = itertools.count()

    def call() -> None:
        if next(numbers):
            with lock("a", blocking_timeout=30):
                work()
        else:
            work()
            elsewhere.release()

    elsewhere = lock("a").take()
    with pytest.raises(AssertionError, match="nor waited for a lock that was held in there"):
        locks.assert_exclusive(call, inside=INSIDE, threads=2, within=0.2)


def test_who_never_came_in_is_said_to_have_been_kept_out(locks: LockTester) -> None:
    def call() -> None:
        with lock("a", blocking_timeout=0):
            work()

    with (
        locks.held_elsewhere("a"),
        pytest.raises(AssertionError, match=r"none of 2 threads called .* were kept out by 'a'"),
    ):
        locks.assert_exclusive(call, inside=INSIDE, threads=2)
