"""Who has a lock next that others wait for."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core import LockHandle
from tests.support.locks import holder, queue_of, value_of
from tests.wire.helpers import ask
from tests.wire.queueing import CLAIM, baton_of, caller, claim, is_busy, is_woken, waiters

if TYPE_CHECKING:
    import redis


pytestmark = pytest.mark.usefixtures("nobody_looks", "patient")


def order_of_grants(client: redis.Redis, count: int) -> list[int]:
    """Let ``count`` queue up; return in which order they get the lock, though others ask too."""
    held = holder(client)
    queued = waiters(client, count)
    # Who asks meanwhile is as likely to be one as the other, but always the same in every run.
    chance = random.Random(1)  # noqa: S311 - to be repeatable, not secret
    order: list[int] = []
    while len(order) < count:
        held.release()
        left = [turn for number, turn in enumerate(queued) if number not in order]
        first, *others = sorted(left, key=lambda _: chance.random())[:3] + left[:1]
        granted = None
        for turn in (first, *others):
            if isinstance(answer := ask(turn, waits=True), LockHandle):
                held, granted = answer, turn
                break
        assert granted
        order.append(queued.index(granted))
    return order


def test_fifty_waiters_get_the_lock_in_the_order_in_which_they_came(
    redis_client: redis.Redis,
) -> None:
    assert order_of_grants(redis_client, 50) == list(range(50))


def test_a_lock_that_is_let_go_is_left_to_the_first_who_waits(redis_client: redis.Redis) -> None:
    held = holder(redis_client)
    first, second = waiters(redis_client, 2)

    held.release()

    assert value_of(redis_client) == baton_of(first)
    assert 0 < redis_client.pttl("lock:a") <= CLAIM
    assert (is_woken(first), is_woken(second)) == (True, False)
    assert queue_of(redis_client) == [second.token]


def test_a_mailbox_lives_no_longer_than_the_claim(redis_client: redis.Redis) -> None:
    held = holder(redis_client)
    (waiter,) = waiters(redis_client, 1)

    held.release()

    box = waiter.target.keys.wake(waiter.token)
    assert redis_client.llen(box) == 1
    assert 0 < redis_client.pttl(box) <= CLAIM


def test_who_does_not_take_it_up_keeps_it_from_others_for_a_second_at_most(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    held = holder(redis_client)
    (waiter,) = waiters(redis_client, 1)

    held.release()

    keys = waiter.target.keys
    assert max(redis_client.pttl(key) for key in (keys.name, keys.wake(waiter.token))) <= 1_000


@pytest.mark.parametrize("waits", [True, False], ids=["waits", "does not wait"])
def test_nobody_overtakes_those_who_wait_for_a_lock_that_is_free(
    redis_client: redis.Redis, waits: bool
) -> None:
    held = holder(redis_client)
    (waiter,) = waiters(redis_client, 1)
    redis_client.delete("lock:a")
    late = caller(redis_client)

    assert is_busy(late, waits=waits)

    assert value_of(redis_client) == baton_of(waiter)
    assert is_woken(waiter)
    assert queue_of(redis_client) == ([late.token] if waits else [])
    assert held.lost or not held.owned()


def test_the_first_who_waits_has_a_lock_that_is_free_at_once(redis_client: redis.Redis) -> None:
    holder(redis_client)
    first, second = waiters(redis_client, 2)
    redis_client.delete("lock:a")

    held = claim(first)

    assert held.owned()
    assert queue_of(redis_client) == [second.token]


def test_a_lock_of_redis_py_cannot_have_what_was_left_to_a_waiter(
    redis_client: redis.Redis,
) -> None:
    held = holder(redis_client)
    (waiter,) = waiters(redis_client, 1)
    held.release()

    assert redis_client.lock("lock:a", timeout=30).acquire(blocking=False) is False
    assert claim(waiter).owned()
