"""What operators see of a lock that was left to the next who waits, and can do to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core import Inspector, Outcome, State
from tests.core.helpers import INDEX, ask, keys_of, listed, queue_of, value_of
from tests.core.queueing import CLAIM, baton_of, claim, holder, is_woken, waiters

if TYPE_CHECKING:
    import redis

pytestmark = pytest.mark.usefixtures("nobody_looks", "patient")


def test_a_lock_that_was_left_to_the_next_is_changing_hands(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = holder(redis_client, label="view pay")
    first, _ = waiters(redis_client, 2)
    held.release()

    info = inspector.get("lock:a")

    assert info.state is State.CHANGING_HANDS
    assert (info.holder, info.fence, info.held_for) == (None,) * 3
    assert info.remaining is not None
    assert info.remaining <= CLAIM / 1000
    assert first.token not in f"{info.fingerprint}{info!r}"


def test_a_lock_that_is_changing_hands_cannot_be_force_released(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = holder(redis_client)
    before = inspector.get("lock:a")
    (first,) = waiters(redis_client, 1)
    held.release()
    now = inspector.get("lock:a")

    outcomes = [inspector.force_release("lock:a", seen.fingerprint) for seen in (before, now)]

    assert outcomes == [Outcome.CHANGED_HANDS] * 2
    assert value_of(redis_client) == baton_of(first)
    assert claim(first).owned()


def test_a_force_release_leaves_the_lock_to_the_next_who_waits(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    holder(redis_client)
    first, second = waiters(redis_client, 2)

    outcome = inspector.force_release("lock:a", inspector.get("lock:a").fingerprint)

    assert outcome is Outcome.RELEASED
    assert value_of(redis_client) == baton_of(first)
    assert (is_woken(first), queue_of(redis_client)) == (True, [second.token])


def test_a_force_release_sent_twice_takes_nothing_from_the_next(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    holder(redis_client)
    (first,) = waiters(redis_client, 1)
    seen = inspector.get("lock:a").fingerprint
    inspector.force_release("lock:a", seen)

    assert inspector.force_release("lock:a", seen) is Outcome.CHANGED_HANDS

    assert value_of(redis_client) == baton_of(first)


def test_a_lock_stays_on_the_list_while_it_changes_hands(
    redis_client: redis.Redis, inspector: Inspector
) -> None:
    held = listed(redis_client, "a").take(0)
    following = listed(redis_client, "a").attempt()
    ask(following, waits=True)

    held.release()
    between = keys_of(inspector.find().locks)
    claim(following).release()

    assert between == ["a"]
    assert keys_of(inspector.find().locks) == []
    assert not redis_client.exists(INDEX)
