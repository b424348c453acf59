"""A lock that is let go is left to the next, however it is let go; a copy changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import LockLost
from django_setnx_lock.core.protocol import commands
from tests.support.locks import holder, queue_of, value_of
from tests.wire.queueing import (
    CLAIM,
    baton_of,
    caller,
    claim,
    handed_on,
    is_woken,
    waiters,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from django_setnx_lock.core.locks.attempt import AcquireAttempt

    Request = Callable[[AcquireAttempt], commands.Request]

pytestmark = pytest.mark.usefixtures("nobody_looks", "patient")


def releasing(turn: AcquireAttempt) -> commands.Request:
    return commands.SETNX.release(turn.target.keys, turn.target.index, turn.token)


def leaving(turn: AcquireAttempt) -> commands.Request:
    return turn.cancelling()


def forcing(turn: AcquireAttempt) -> commands.Request:
    keys, index = turn.target.keys, turn.target.index
    return commands.SETNX.force_release(keys, index, turn.token.encode(), None, "joe", "stuck")


LETTING_GO: dict[str, Request] = {"RELEASE": releasing, "CANCEL": leaving, "FORCE": forcing}
GIVING_UP: dict[str, Request] = {"RELEASE": releasing, "CANCEL": leaving}
letting_go = pytest.mark.parametrize("how", LETTING_GO)
giving_up = pytest.mark.parametrize("how", GIVING_UP)


def held_turn(client: redis.Redis) -> AcquireAttempt:
    turn = caller(client)
    claim(turn)
    return turn


@letting_go
def test_a_lock_is_handed_on_however_it_is_let_go(redis_client: redis.Redis, how: str) -> None:
    held = held_turn(redis_client)
    first, second = waiters(redis_client, 2)

    head = handed_on(held, LETTING_GO[how](held))

    assert head == first.token
    assert value_of(redis_client) == baton_of(first)
    assert is_woken(first)
    assert queue_of(redis_client) == [second.token]


@letting_go
def test_a_copy_of_the_request_names_the_one_it_was_handed_to_again(
    redis_client: redis.Redis, how: str
) -> None:
    held = held_turn(redis_client)
    first, second = waiters(redis_client, 2)
    handed_on(held, LETTING_GO[how](held))

    again = handed_on(held, LETTING_GO[how](held))

    assert again == first.token
    assert value_of(redis_client) == baton_of(first)
    assert queue_of(redis_client) == [second.token]


@giving_up
def test_who_gives_up_what_was_left_to_it_leaves_it_to_the_next(
    redis_client: redis.Redis, how: str
) -> None:
    held = holder(redis_client)
    first, second = waiters(redis_client, 2)
    held.release()

    head = handed_on(first, GIVING_UP[how](first))

    assert head == second.token
    assert value_of(redis_client) == baton_of(second)
    assert (is_woken(first), is_woken(second)) == (False, True)


@giving_up
def test_who_gives_up_finds_a_lock_that_is_free_for_the_others(
    redis_client: redis.Redis, how: str
) -> None:
    holder(redis_client)
    first, second = waiters(redis_client, 2)
    redis_client.delete("lock:a")

    head = handed_on(first, GIVING_UP[how](first))

    assert head == second.token
    assert is_woken(second)


@giving_up
def test_who_gives_up_learns_whom_it_was_left_to_meanwhile(
    redis_client: redis.Redis, how: str
) -> None:
    held = holder(redis_client)
    first, second = waiters(redis_client, 2)
    held.release()

    assert handed_on(second, GIVING_UP[how](second)) == first.token


def test_a_holder_that_lost_its_lock_hands_on_what_is_free(redis_client: redis.Redis) -> None:
    held = holder(redis_client)
    (waiter,) = waiters(redis_client, 1)
    redis_client.delete("lock:a")

    with pytest.raises(LockLost):
        held.release()

    assert value_of(redis_client) == baton_of(waiter)
    assert is_woken(waiter)


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


def test_a_lock_of_redis_py_cannot_have_what_was_left_to_a_waiter(
    redis_client: redis.Redis,
) -> None:
    held = holder(redis_client)
    (waiter,) = waiters(redis_client, 1)
    held.release()

    assert redis_client.lock("lock:a", timeout=30).acquire(blocking=False) is False
    assert claim(waiter).owned()
