"""Looks at a lock that is free, taken up, left to another or foreign; and the last look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core.protocol import commands, replies
from tests.support.locks import queue_of, value_of
from tests.wire.helpers import ask, called
from tests.wire.queueing import (
    CLAIM,
    baton_of,
    claim,
    handed_on,
    is_woken,
    left_to_the_first,
    looked,
    open_mail,
)

if TYPE_CHECKING:
    import redis


pytestmark = pytest.mark.usefixtures("nobody_looks", "patient")


def test_a_look_finds_a_lock_that_is_free_for_those_who_wait(redis_client: redis.Redis) -> None:
    first, second = left_to_the_first(redis_client, 2)
    redis_client.delete("lock:a")

    assert looked(first) == second.token

    assert is_woken(second)


def test_a_look_at_a_lock_that_was_taken_up_changes_nothing(redis_client: redis.Redis) -> None:
    first, second = left_to_the_first(redis_client, 2)
    following = claim(first)

    assert looked(first) is None

    following.check()
    assert not is_woken(second)
    assert queue_of(redis_client) == [second.token]


def test_a_look_at_a_lock_that_was_left_to_another_since_tells_of_that_one(
    redis_client: redis.Redis,
) -> None:
    first, second = left_to_the_first(redis_client, 2)
    claim(first).release()

    assert looked(first) == second.token

    assert value_of(redis_client) == baton_of(second)


def test_behind_a_foreign_holder_the_next_is_woken_to_ask_on(redis_client: redis.Redis) -> None:
    first, second = left_to_the_first(redis_client, 2)
    redis_client.set("lock:a", "somebody", px=60_000)

    assert looked(first) is None

    assert is_woken(second)


def test_a_look_tells_whether_it_passed_the_lock_on(redis_client: redis.Redis) -> None:
    first, second, third = left_to_the_first(redis_client, 3)
    keys = first.target.keys

    passed = [
        replies.read_passed_on(called(first.target, commands.SETNX.check_handoff(keys, turn.token)))
        for turn in (first, first, second, third)
    ]

    # To the second; it is another's already; to the third; nobody is after it.
    assert passed == [True, False, True, False]


def test_when_nobody_will_look_again_the_next_waiter_does(redis_client: redis.Redis) -> None:
    first, second = left_to_the_first(redis_client, 2)
    open_mail(first)
    last = commands.SETNX.check_handoff(first.target.keys, first.token, is_last=True)

    handed_on(first, last)

    assert is_woken(second)
    answer = ask(second, waits=True)
    assert isinstance(answer, replies.Busy)
    assert answer.remaining is not None
    assert answer.remaining <= CLAIM / 1000
