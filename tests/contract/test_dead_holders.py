"""Whether a holder lives is seen by what is left of its lease, and by whether its process says so.

A lock is taken from a dead holder: not from one that lives again, nor from those beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.core.cache import caches

from django_setnx_lock import inspector, lock
from django_setnx_lock.core import Inspector, LockHandle, LockInfo, Outcome, State
from tests.support.seams import any_lock

if TYPE_CHECKING:
    from django_setnx_lock.testing import LockTester

NAME = "lock:a"


def redis_client() -> Any:
    """Return the redis-py client of the cache."""
    return caches["default"].client.get_client(write=True)  # type: ignore[attr-defined]  # django-redis's


def left(seconds: float) -> None:
    """Have so much be left of the lease."""
    redis_client().pexpire(NAME, round(seconds * 1000))


def overdue(locks: LockTester, **options: Any) -> LockHandle:
    """Take the lock, and have its renewal be overdue."""
    held = any_lock("a", timeout=30, **options).take()
    locks.advance(20)
    left(5)
    return held


def gone(locks: LockTester, **options: Any) -> LockHandle:
    """Take the lock, and have its process say no more that it lives."""
    held = any_lock("a", timeout=30, **options).take()
    locks.advance(20)
    client = redis_client()
    client.delete(*client.keys("{lock:}:process:*"))
    return held


@pytest.fixture(params=["exclusive", "shared"])
def is_shared(request: pytest.FixtureRequest) -> bool:
    """Give whether the lock of the test is shared."""
    return bool(request.param == "shared")


RENEWED: dict[str, Any] = {"timeout": 30, "renew": True}


@pytest.mark.parametrize(
    ("options", "held_for", "remaining", "state"),
    [
        pytest.param(RENEWED, 60, 25, State.HELD, id="renewed"),
        pytest.param(RENEWED, 60, 14, State.NOT_RENEWED, id="overdue"),
        pytest.param(RENEWED, 0, 4, State.HELD, id="just taken up, for the claim time"),
        pytest.param(RENEWED, 60, 90, State.HELD, id="extended"),
        pytest.param({"timeout": 30, "renew": False}, 20, 4, State.HELD, id="never renewed"),
        pytest.param({**RENEWED, "max_hold": 60}, 55, 4, State.HELD, id="at its max_hold"),
        pytest.param({**RENEWED, "max_hold": 600}, 55, 4, State.NOT_RENEWED, id="far from it"),
    ],
)
def test_a_renewal_that_is_overdue_is_seen_by_what_is_left_of_the_lease(
    locks: LockTester,
    options: dict[str, Any],
    held_for: float,
    remaining: float,
    state: State,
) -> None:
    held = lock("a", **options).take()
    locks.advance(held_for)
    left(remaining)

    assert inspector().get(NAME).state is state
    held.release()


@pytest.mark.parametrize(
    ("held_for", "lives", "state"),
    [(20, False, State.GONE), (20, True, State.HELD), (5, False, State.HELD)],
)
def test_a_process_that_no_longer_says_that_it_lives_is_gone(
    locks: LockTester, held_for: float, lives: bool, state: State
) -> None:
    held = lock("a", timeout=300).take()
    locks.advance(held_for)
    client = redis_client()
    processes = client.keys("{lock:}:process:*")
    if not lives:
        client.delete(*processes)

    assert inspector().get(NAME).state is state
    held.release()


def test_any_number_of_locks_share_one_sign_of_life(locks: LockTester) -> None:
    held = [lock(f"{number}", timeout=300, renew=number % 2 == 0).take() for number in range(20)]
    locks.advance(20)

    (process,) = redis_client().keys("{lock:}:process:*")

    assert 0 < redis_client().pttl(process) <= 15_000
    for one in held:
        one.release()
    locks.advance(16)
    assert redis_client().keys("{lock:}:process:*") == []


def test_a_lock_that_waits_to_be_taken_over_has_no_process_that_must_live(
    locks: LockTester,
) -> None:
    held = lock("a", **RENEWED).take()
    ticket = held.give_away()
    locks.advance(20)
    left(5)
    assert inspector().get(NAME).state is State.HELD

    with lock("a", **RENEWED, label="second").adopt(ticket):
        info = inspector().get(NAME)

        assert (info.state, info.holder and info.holder.label) == (State.HELD, "second")
        # Not by how long it was held before.
        assert info.held_for == pytest.approx(20, abs=10)


def test_of_three_readers_only_the_dead_one_loses_the_lock(locks: LockTester) -> None:
    living = [any_lock("a", shared=True, timeout=30).take() for _ in range(2)]
    # Nobody refers to this one, so nobody renews it.
    any_lock("a", shared=True, timeout=60, label="dead").take()
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


def test_a_holder_that_renews_after_the_last_look_keeps_the_lock(
    locks: LockTester, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    held = gone(locks, shared=is_shared)
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
def test_a_holder_that_is_as_dead_as_it_was_seen_or_more_loses_the_lock(
    locks: LockTester, is_shared: bool, state: State | None
) -> None:
    held = gone(locks, shared=is_shared)
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
