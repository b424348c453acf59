"""Races, and that none is won where nothing excludes the others."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from django_setnx_lock import LockBusy, lock, redis_lock
from django_setnx_lock.testing import LockTester

if TYPE_CHECKING:
    from collections.abc import Callable

INSIDE = f"{__name__}.work"


def work() -> None:
    """Stand in for what is done under a lock."""


async def awork() -> None:
    """Stand in for the same in asyncio."""


def query() -> None:
    """Stand in for what a view asks the database under its lock before it comes to its work."""
    time.sleep(0.003)


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

    with pytest.raises(AssertionError, match=r"no thread was kept out by a lock .* held no lock"):
        locks.assert_exclusive(once, inside=INSIDE, threads=3)


@redis_lock("order:<pk>")
def slow_view(request: HttpRequest, pk: int) -> HttpResponse:
    query()
    work()
    return HttpResponse()


@redis_lock("order:<pk>")
async def slow_async_view(request: HttpRequest, pk: int) -> HttpResponse:
    await sync_to_async(query)()
    await sync_to_async(work)()
    return HttpResponse()


@redis_lock("order:<pk>", blocking_timeout=30)
def patient_view(request: HttpRequest, pk: int) -> HttpResponse:
    query()
    work()
    return HttpResponse()


@redis_lock("nightly")
def job() -> None:
    query()
    work()


def slow_impatient() -> None:
    with lock("a", blocking_timeout=0):
        query()
        work()


def post(to: Callable[..., Any]) -> Callable[[], Any]:
    request = RequestFactory().post("/")
    return lambda: to(request, pk=1)


def unlocked() -> None:
    query()
    work()


def own_key() -> None:
    with lock(f"a{threading.get_ident()}", blocking_timeout=0):
        query()
        work()


def let_go_too_early() -> None:
    with lock("a", blocking_timeout=0):
        query()
    work()


def let_go_too_early_patiently() -> None:
    with lock("a", blocking_timeout=30):
        query()
    work()


def goes_on_when_refused() -> None:
    lock("a").acquire(blocking=False)
    query()
    work()


EXCLUSIVE = {
    "a view": post(slow_view),
    "an async view": post(async_to_sync(slow_async_view)),
    "a view that waits": post(patient_view),
    "a function that waits": job,
    "a block": slow_impatient,
}
NOT_EXCLUSIVE = {
    "no lock": unlocked,
    "a view without its lock": post(slow_view.__wrapped__),  # type: ignore[attr-defined]  # functools.wraps sets it
    "a key of its own": own_key,
    "a lock let go too early": let_go_too_early,
    "one that was waited for": let_go_too_early_patiently,
    "a refusal that nobody heeds": goes_on_when_refused,
}


def is_won(locks: LockTester, call: Callable[[], Any], threads: int) -> bool:
    """Race ``call``. Gives whether no two were inside; raises where nothing was proven."""
    try:
        locks.assert_exclusive(call, inside=INSIDE, threads=threads)
    except AssertionError as error:
        if "at the same time" not in str(error):
            raise
        return False
    finally:
        # Some leave their lock held.
        cache.clear()
    return True


@pytest.mark.parametrize("threads", [2, 5, 16])
def test_code_under_a_lock_wins_whatever_it_does_before_its_work(
    locks: LockTester, threads: int
) -> None:
    for name, call in EXCLUSIVE.items():
        assert is_won(locks, call, threads), name


@pytest.mark.parametrize("threads", [2, 5, 16])
def test_code_that_nothing_excludes_loses(locks: LockTester, threads: int) -> None:
    for name, call in NOT_EXCLUSIVE.items():
        assert not is_won(locks, call, threads), name


@pytest.mark.storm
@pytest.mark.timeout(600)
@pytest.mark.parametrize("threads", [2, 5, 16])
@pytest.mark.parametrize("call", EXCLUSIVE.values(), ids=EXCLUSIVE)
def test_a_hundred_races_under_a_lock_are_won(
    locks: LockTester, call: Callable[[], Any], threads: int
) -> None:
    assert [is_won(locks, call, threads) for _ in range(100)] == [True] * 100


@pytest.mark.storm
@pytest.mark.timeout(600)
@pytest.mark.parametrize("threads", [2, 5, 16])
@pytest.mark.parametrize("call", NOT_EXCLUSIVE.values(), ids=NOT_EXCLUSIVE)
def test_a_hundred_races_without_one_are_lost(
    locks: LockTester, call: Callable[[], Any], threads: int
) -> None:
    assert [is_won(locks, call, threads) for _ in range(100)] == [False] * 100
