"""Races, and that none is won where nothing excludes the others."""

from __future__ import annotations

import asyncio
import threading

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from django_setnx_lock import LockBusy, lock, redis_lock
from django_setnx_lock.testing import LockTester

INSIDE = f"{__name__}.work"


def work() -> None:
    """Stand in for what is done under a lock."""


async def awork() -> None:
    """Stand in for the same in asyncio."""


def locked() -> str:
    with lock("a", blocking_timeout=30):
        work()
    return "done"


def impatient() -> str:
    with lock("a", blocking_timeout=0):
        work()
    return "done"


@redis_lock("order:<pk>")
def view(request: HttpRequest, pk: int) -> HttpResponse:
    work()
    return HttpResponse()


@redis_lock("order:<pk>")
async def async_view(request: HttpRequest, pk: int) -> HttpResponse:
    await awork()
    return HttpResponse()


def test_who_waits_is_inside_one_by_one(locks: LockTester) -> None:
    assert locks.assert_exclusive(locked, inside=INSIDE, threads=4) == ["done"] * 4


def test_who_does_not_wait_is_turned_away(locks: LockTester) -> None:
    results = locks.assert_exclusive(impatient, inside=INSIDE, threads=4)

    assert results.count("done") == 1
    assert sum(isinstance(one, LockBusy) for one in results) == 3


def test_of_several_visitors_a_view_serves_one(locks: LockTester) -> None:
    request = RequestFactory().post("/")

    answers = locks.assert_exclusive(lambda: view(request, pk=1), inside=INSIDE, threads=4)

    assert sorted(one.status_code for one in answers if isinstance(one, HttpResponse)) == [
        200,
        409,
        409,
        409,
    ]


def test_an_async_view_is_raced_too(locks: LockTester) -> None:
    request = RequestFactory().post("/")

    locks.assert_exclusive(
        lambda: async_to_sync(async_view)(request, pk=1), inside=f"{__name__}.awork", threads=3
    )


@pytest.mark.parametrize("patient", [True, False])
def test_without_the_lock_two_are_inside(locks: LockTester, patient: bool) -> None:
    def unlocked() -> None:
        with lock(f"a{threading.get_ident()}", blocking_timeout=30 if patient else 0):
            work()

    with pytest.raises(AssertionError, match=r"of 4 threads were inside .*work at the same time"):
        locks.assert_exclusive(unlocked, inside=INSIDE, threads=4)


def test_a_view_without_its_lock_loses_the_race(locks: LockTester) -> None:
    unlocked = view.__wrapped__  # type: ignore[attr-defined]  # functools.wraps sets it
    request = RequestFactory().post("/")

    with pytest.raises(AssertionError, match="at the same time"):
        locks.assert_exclusive(lambda: unlocked(request, pk=1), inside=INSIDE)


def test_an_async_view_without_its_lock_loses_it_too(locks: LockTester) -> None:
    with pytest.raises(AssertionError, match="at the same time"):
        locks.assert_exclusive(lambda: asyncio.run(awork()), inside=f"{__name__}.awork", threads=2)


def test_four_permits_are_not_exclusive(locks: LockTester) -> None:
    def shared() -> None:
        with lock("a", limit=4):
            work()

    with pytest.raises(AssertionError, match="at the same time"):
        locks.assert_exclusive(shared, inside=INSIDE, threads=4)


def test_a_function_that_nobody_calls_proves_nothing(locks: LockTester) -> None:
    with pytest.raises(AssertionError, match="none of 2 threads called"):
        locks.assert_exclusive(lambda: None, inside=INSIDE, threads=2)


def test_a_lock_of_this_process_alone_proves_nothing(locks: LockTester) -> None:
    own = threading.Lock()

    def locked_here() -> None:
        with own:
            work()

    with pytest.raises(AssertionError, match="neither came in, nor waited"):
        locks.assert_exclusive(locked_here, inside=INSIDE, threads=2, within=0.1)


def test_whoever_ends_without_asking_for_a_lock_proves_nothing(locks: LockTester) -> None:
    first = threading.Lock()

    def once() -> None:
        if first.acquire(blocking=False):
            work()

    with pytest.raises(AssertionError, match="no thread asked for a lock"):
        locks.assert_exclusive(once, inside=INSIDE, threads=3)


def test_what_else_a_thread_raises_is_raised(locks: LockTester) -> None:
    def fail() -> None:
        raise KeyError("a")

    with pytest.raises(KeyError):
        locks.assert_exclusive(fail, inside=INSIDE, threads=2)


def test_one_thread_is_no_race(locks: LockTester) -> None:
    with pytest.raises(ValueError, match="two at least"):
        locks.assert_exclusive(locked, inside=INSIDE, threads=1)
