"""redis-py's lock and ours on one name of one server: each keeps the other out."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from django.core.cache import caches
from django.test import override_settings
from redis.exceptions import LockNotOwnedError

from django_setnx_lock import LockBusy, lock
from tests.support.redis_py import NAME, OURS, THEIRS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import RealServer
    from tests.support.redis_py import Lock

    Library = Callable[..., Lock]

REAL = pytest.mark.real
# Who holds the lock, and who wants it.
BOTH_WAYS = pytest.mark.parametrize(
    ("holding", "wanting"),
    [(THEIRS, OURS), (OURS, THEIRS)],
    ids=["ours behind theirs", "theirs behind ours"],
)
THREADS, TIMES = 3, 10


@REAL
@BOTH_WAYS
def test_who_does_not_wait_is_told_that_it_is_busy(
    server: RealServer, holding: Library, wanting: Library
) -> None:
    holder = holding(server.client(), NAME, timeout=30)
    other = wanting(server.client(), NAME, timeout=30)
    holder.acquire()

    assert other.acquire(blocking=False) is False
    assert (other.locked(), other.owned(), holder.owned()) == (True, False, True)
    holder.release()
    assert other.acquire(blocking=False) is True


@REAL
@BOTH_WAYS
def test_another_name_is_another_lock(
    server: RealServer, holding: Library, wanting: Library
) -> None:
    holding(server.client(), NAME, timeout=30).acquire()

    assert wanting(server.client(), "lock:b", timeout=30).acquire(blocking=False) is True


@REAL
@BOTH_WAYS
def test_who_waits_in_vain_takes_nothing(
    server: RealServer, holding: Library, wanting: Library
) -> None:
    holder = holding(server.client(), NAME, timeout=60)
    holder.acquire()

    waiter = wanting(server.client(), NAME, timeout=60, sleep=0.01, blocking_timeout=0.15)

    assert waiter.acquire() is False
    assert holder.owned()
    holder.release()
    assert not waiter.locked()


@REAL
@BOTH_WAYS
def test_who_waits_has_it_when_the_lease_of_a_dead_holder_ends(
    server: RealServer, holding: Library, wanting: Library
) -> None:
    holding(server.client(), NAME, timeout=0.2).acquire()

    waiter = wanting(server.client(), NAME, timeout=60, sleep=0.01)

    assert waiter.acquire(blocking_timeout=30) is True
    assert waiter.owned()


@REAL
@BOTH_WAYS
def test_neither_releases_nor_extends_what_the_other_took_over(
    server: RealServer, holding: Library, wanting: Library
) -> None:
    client = server.client()
    first, second = (library(client, NAME, timeout=30) for library in (holding, wanting))
    first.acquire()
    client.delete(NAME)
    second.acquire()

    for ask in (first.reacquire, first.release):
        with pytest.raises(LockNotOwnedError):
            ask()

    assert second.owned()
    assert client.pttl(NAME) > 29_000


def add_up(server: RealServer, names: dict[Library, str]) -> int:
    """Let threads of both libraries count, by reading and writing; return the sum."""
    start = threading.Barrier(THREADS * len(names), timeout=10)
    server.client().set("counter", 0)

    def count(library: Library) -> None:
        client = server.client()
        mine = library(client, names[library], timeout=30, sleep=0.005)
        start.wait()
        for _ in range(TIMES):
            assert mine.acquire(blocking_timeout=40)
            seen = int(client.get("counter") or 0)
            client.set("counter", seen + 1)
            mine.release()

    with ThreadPoolExecutor(THREADS * len(names)) as pool:
        for result in [pool.submit(count, library) for library in [*names] * THREADS]:
            result.result(50)
    return int(server.client().get("counter") or 0)


@REAL
def test_in_a_crowd_of_both_every_addition_counts(server: RealServer) -> None:
    assert add_up(server, {THEIRS: NAME, OURS: NAME}) == 2 * THREADS * TIMES


@REAL
def test_under_two_names_both_are_inside_at_once(server: RealServer) -> None:
    inside = threading.Barrier(2, timeout=10)

    def meet(library: Library, name: str) -> None:
        with library(server.client(), name, timeout=30):
            inside.wait()

    with ThreadPoolExecutor(2) as pool:
        meeting = [pool.submit(meet, THEIRS, "lock:b"), pool.submit(meet, OURS, NAME)]

        assert [one.result(20) for one in meeting] == [None, None]


@pytest.mark.usefixtures("real_cache")
def test_cache_lock_and_lock_exclude_each_other_while_a_project_moves() -> None:
    cache: Any = caches["default"]
    with override_settings(SETNX_LOCK={"CACHE": "default", "KEY_PREFIX": ":1:"}):
        ours = lock("order:42", blocking_timeout=0)
        elsewhere = lock("order:43", blocking_timeout=0)

    with cache.lock("order:42", timeout=30):
        with pytest.raises(LockBusy), ours:
            pytest.fail("entered")
        with elsewhere:
            pass
    with ours:
        assert cache.lock("order:42", timeout=30).acquire(blocking=False) is False
        assert cache.lock("order:43", timeout=30).acquire(blocking=False) is True
