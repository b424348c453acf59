"""A shared lock is renewed for as long as one of those who share it wants it to be."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockLost
from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.renewal.watchdog import WATCHDOG
from tests.core.helpers import in_thread
from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from django_setnx_lock.core import LockHandle


@pytest.fixture
def take(redis_client: redis.Redis) -> Callable[..., LockHandle]:
    """Give what takes one reentrant lock, again and again."""

    def take(**options: Any) -> LockHandle:
        return RedisLock(redis_client, "lock:a", reentrant=True, **options).take(0)

    return take


def renewed() -> int:
    return len(WATCHDOG.watched())


@pytest.mark.parametrize(
    ("outer", "inner", "seen"),
    [
        (False, False, [0, 0, 0]),
        (False, True, [0, 1, 0]),
        (True, False, [1, 1, 1]),
        (True, True, [1, 1, 1]),
    ],
)
def test_it_is_renewed_while_an_inner_one_asks_for_it(
    take: Callable[..., LockHandle], outer: bool, inner: bool, seen: list[int]
) -> None:
    first = take(renew=outer)
    found = [renewed()]
    second = take(renew=inner)
    found.append(renewed())
    second.release()
    found.append(renewed())
    first.release()

    assert found == seen
    assert renewed() == 0


@pytest.mark.parametrize(("inner", "left"), [(True, 1), (False, 0)])
def test_when_the_outer_is_released_first_the_inner_decides(
    take: Callable[..., LockHandle], inner: bool, left: int
) -> None:
    outer, second = take(renew=True), take(renew=inner)

    outer.release()

    assert renewed() == left
    second.release()
    assert renewed() == 0


def test_an_inner_one_keeps_the_lease_up(
    take: Callable[..., LockHandle], redis_client: redis.Redis
) -> None:
    outer = take(timeout=3)
    inner = take(timeout=3, renew=True)
    end = outer.lease.end

    eventually(lambda: outer.lease.end > end)

    assert not inner.lost
    assert redis_client.exists("lock:a")


def test_renewals_give_what_the_longest_timeout_asks_for(
    take: Callable[..., LockHandle], redis_client: redis.Redis
) -> None:
    outer = take(timeout=3, renew=True)
    _inner = take(timeout=30)

    eventually(lambda: outer.remaining() > 29)

    assert redis_client.pttl("lock:a") > 29_000


def test_all_are_told_by_the_watchdog(
    take: Callable[..., LockHandle], redis_client: redis.Redis
) -> None:
    told: list[LockHandle] = []
    handles = [take(timeout=3, renew=True, on_lost=told.append) for _ in range(3)]
    redis_client.delete("lock:a")

    eventually(lambda: len(told) == 3)

    assert set(told) == set(handles)
    for held in handles:
        with pytest.raises(LockLost):
            held.check()


def test_a_lease_that_ran_out_under_a_share_is_released_all_the_same(
    take: Callable[..., LockHandle], redis_client: redis.Redis
) -> None:
    # Renewed for the inner one only; nobody answers.
    outer, inner = take(timeout=20), take(timeout=20, renew=True)
    inner.grant.lose(inner.grant.ran_out())

    for held in (inner, outer):
        with pytest.raises(LockLost):
            held.release()

    assert not redis_client.exists("lock:a")


def test_a_share_of_a_thread_that_has_ended_is_renewed_no_longer(
    take: Callable[..., LockHandle], caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[LockHandle] = []
    done = threading.Event()

    def work() -> None:
        kept.append(take(timeout=2))
        kept.append(take(timeout=2, renew=True))
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert done.is_set()

    eventually(lambda: kept[0].lost)

    assert "has ended without letting it go" in caplog.text


def test_handing_over_a_share_hands_over_the_lock(take: Callable[..., LockHandle]) -> None:
    kept: list[LockHandle] = []

    def work() -> None:
        kept.append(take(renew=True))
        kept.append(take())
        kept[1].handover()

    in_thread(work)

    assert not kept[0].grant.is_orphaned
    assert renewed() == 1
