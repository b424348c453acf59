"""Who waits is told when a lease ends, and anew when it ends sooner than told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.locks import holder
from tests.wire.helpers import cancel, send
from tests.wire.queueing import caller, claim, is_woken, waiters

if TYPE_CHECKING:
    import redis

    from django_setnx_lock.core.locks.attempt import AcquireAttempt

LONG, SHORT = 20, 3

pytestmark = pytest.mark.usefixtures("nobody_looks", "patient")


def followed_by(client: redis.Redis, lease: float) -> AcquireAttempt:
    """Have a lock of 20 s taken over by one of ``lease``; return who waits on."""
    held = holder(client, LONG)
    (following,) = waiters(client, 1, lease)
    (waiting,) = waiters(client, 1)
    held.release()
    claim(following)
    return waiting


def test_a_waiter_that_would_sleep_beyond_the_end_of_a_shorter_lease_is_woken(
    redis_client: redis.Redis,
) -> None:
    waiting = followed_by(redis_client, SHORT)

    assert is_woken(waiting)


def test_a_waiter_that_asks_again_before_a_longer_lease_ends_is_let_sleep(
    redis_client: redis.Redis,
) -> None:
    waiting = followed_by(redis_client, LONG * 2)

    assert not is_woken(waiting)


def test_only_the_next_waiter_is_woken_by_a_shorter_lease(redis_client: redis.Redis) -> None:
    held = holder(redis_client, LONG)
    (following,) = waiters(redis_client, 1, SHORT)
    queued = waiters(redis_client, 3)
    held.release()

    claim(following)

    assert [is_woken(turn) for turn in queued] == [True, False, False]


def test_a_lease_that_is_made_longer_wakes_nobody(redis_client: redis.Redis) -> None:
    held = holder(redis_client, LONG)
    (waiting,) = waiters(redis_client, 1)

    held.extend(LONG)
    held.extend(LONG * 3, replace_ttl=True)
    held.reacquire()

    assert not is_woken(waiting)


def test_a_late_copy_of_an_acquire_wakes_nobody(redis_client: redis.Redis) -> None:
    turn = caller(redis_client, SHORT)
    held = claim(turn)
    held.extend(LONG)
    (waiting,) = waiters(redis_client, 1)
    held.extend(LONG)

    claim(turn)

    assert not is_woken(waiting)


def behind_a_shorter_lease(client: redis.Redis) -> list[AcquireAttempt]:
    """Return two who were told of a long lease; the first was woken as a shorter one followed."""
    held = holder(client, LONG)
    (following,) = waiters(client, 1, SHORT)
    queued = waiters(client, 2)
    held.release()
    claim(following)
    return queued


def told_until(turn: AcquireAttempt) -> int:
    """Return when ``turn`` asks again, by what Redis knows, in ms."""
    found = turn.target.client.hget("{lock:a}:alive", turn.token)
    return int((found or b"").split()[2])


def test_a_copy_that_comes_late_takes_back_nothing_a_waiter_was_told(
    redis_client: redis.Redis,
) -> None:
    _held = holder(redis_client, LONG)
    (waiting,) = waiters(redis_client, 1)
    told = told_until(waiting)
    redis_client.pexpire("lock:a", SHORT * 1000)

    # The caller is asleep, and hears nothing of what this one is answered.
    send(redis_client, waiting.request(waits=True))

    assert told_until(waiting) == told


def test_who_leaves_passes_on_that_the_next_lease_is_shorter(redis_client: redis.Redis) -> None:
    first, second = behind_a_shorter_lease(redis_client)

    cancel(first)

    assert is_woken(second)
