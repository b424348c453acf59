"""A lock is taken from a dead holder: not from one that lives again, nor from those beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.core.cache import caches

from django_setnx_lock import inspector, lock
from django_setnx_lock.core import Inspector, LockHandle, LockInfo, Outcome, State

if TYPE_CHECKING:
    from django_setnx_lock.testing import LockTester

NAME = "lock:a"


def redis_client() -> Any:
    """Return the redis-py client of the cache."""
    return caches["default"].client.get_client(write=True)  # type: ignore[attr-defined]  # django-redis's


def overdue(locks: LockTester, **options: Any) -> LockHandle:
    """Take the lock, and have its renewal be overdue."""
    held = lock("a", timeout=30, **options).take()
    locks.advance(20)
    redis_client().pexpire(NAME, 5_000)
    return held


def gone(locks: LockTester, **options: Any) -> LockHandle:
    """Take the lock, and have its process say no more that it lives."""
    held = lock("a", timeout=30, **options).take()
    locks.advance(20)
    client = redis_client()
    client.delete(*client.keys("{lock:}:process:*"))
    return held


def test_of_three_readers_only_the_dead_one_loses_the_lock(locks: LockTester) -> None:
    living = [lock("a", shared=True, timeout=30).take() for _ in range(2)]
    # Nobody refers to this one, so nobody renews it.
    lock("a", shared=True, timeout=60, label="dead").take()
    locks.advance(25)
    locks.advance(10)
    shares = inspector().get(NAME).shares

    outcomes = [
        inspector().force_release(NAME, one.fingerprint, state=State.NOT_RENEWED) for one in shares
    ]

    assert [one.state for one in shares] == [State.NOT_RENEWED, State.HELD, State.HELD]
    assert outcomes == [Outcome.RELEASED, Outcome.REVIVED, Outcome.REVIVED]
    assert [one.owned() for one in living] == [True, True]
    assert len(inspector().get(NAME).shares) == 2
    for one in living:
        one.release()


def test_a_holder_that_has_renewed_again_keeps_the_lock(locks: LockTester) -> None:
    held = overdue(locks)
    seen = inspector().get(NAME)
    held.reacquire()

    outcome = inspector().force_release(NAME, seen.fingerprint, state=seen.state)

    assert (seen.state, outcome) == (State.NOT_RENEWED, Outcome.REVIVED)
    held.release()


def test_a_holder_that_says_again_that_it_lives_keeps_the_lock(locks: LockTester) -> None:
    held = gone(locks, renew=False)
    seen = inspector().get(NAME)
    locks.advance(5)

    outcome = inspector().force_release(NAME, seen.fingerprint, state=seen.state)

    assert (seen.state, outcome) == (State.GONE, Outcome.REVIVED)
    held.release()


@pytest.mark.parametrize("options", [{}, {"shared": True}, {"polling": True}], ids=str)
def test_a_holder_that_renews_after_the_last_look_keeps_the_lock(
    locks: LockTester, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    held = gone(locks, **options)
    look = inspector().get

    def get_and_then_renew(self: Inspector, name: str) -> LockInfo:
        seen = look(name)
        held.extend(60)
        return seen

    seen = look(NAME)
    (one,) = seen.shares or [seen]
    monkeypatch.setattr(Inspector, "get", get_and_then_renew)

    outcome = inspector().force_release(NAME, one.fingerprint, state=one.state)

    assert (one.state, outcome) == (State.GONE, Outcome.REVIVED)
    held.release()


@pytest.mark.parametrize("state", [State.NOT_RENEWED, State.GONE, State.HELD, None])
@pytest.mark.parametrize("options", [{}, {"shared": True}, {"polling": True}], ids=str)
def test_a_holder_that_is_as_dead_as_it_was_seen_or_more_loses_the_lock(
    locks: LockTester, options: dict[str, Any], state: State | None
) -> None:
    held = gone(locks, **options)
    seen = inspector().get(NAME).fingerprint

    outcome = inspector().force_release(NAME, seen, state=state)

    assert (outcome, held.owned()) == (Outcome.RELEASED, False)


def test_a_foreign_lock_that_has_got_a_lease_stays(locks: LockTester) -> None:
    client = redis_client()
    client.set(NAME, "somebody")
    seen = inspector().get(NAME)
    client.expire(NAME, 60)

    outcome = inspector().force_release(NAME, seen.fingerprint, state=seen.state)

    assert (seen.state, outcome) == (State.NEVER_EXPIRES, Outcome.REVIVED)
    client.delete(NAME)
