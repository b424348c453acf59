"""Who hands a lock on looks whether it was taken up: LOOK, sent a little later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.locks import queue_of, server_ms, value_of
from tests.wire.helpers import let_lapse
from tests.wire.queueing import (
    CLAIM,
    baton_of,
    claim,
    is_woken,
    left_to_the_first,
    looked,
    open_mail,
)

if TYPE_CHECKING:
    import redis


pytestmark = pytest.mark.usefixtures("nobody_looks", "patient")


def test_a_lock_that_is_not_fetched_goes_to_the_next(redis_client: redis.Redis) -> None:
    first, second, third = left_to_the_first(redis_client, 3)

    following = looked(first)

    assert following == second.token
    assert value_of(redis_client) == baton_of(second)
    assert 0 < redis_client.pttl("lock:a") <= CLAIM
    assert (is_woken(second), is_woken(third)) == (True, False)
    assert claim(second).owned()


def test_a_lock_that_was_fetched_is_left_to_who_fetched_it(redis_client: redis.Redis) -> None:
    first, second = left_to_the_first(redis_client, 2)
    open_mail(first)

    assert looked(first) == first.token

    assert value_of(redis_client) == baton_of(first)
    assert not is_woken(second)
    assert claim(first).owned()


def test_who_was_fetched_for_and_never_came_is_given_up_with_its_claim(
    redis_client: redis.Redis,
) -> None:
    first, second = left_to_the_first(redis_client, 2)
    open_mail(first)
    again = looked(first)
    # The claim is over.
    redis_client.delete("lock:a")

    following = looked(first)

    assert (again, following) == (first.token, second.token)
    assert value_of(redis_client) == baton_of(second)
    assert is_woken(second)


def test_who_was_passed_over_keeps_its_place(redis_client: redis.Redis) -> None:
    first, second, third = left_to_the_first(redis_client, 3)
    looked(first)

    assert queue_of(redis_client) == [first.token, third.token]
    claim(second).release()
    assert claim(first).owned()


def test_who_was_passed_over_and_does_not_come_within_a_claim_is_dropped(
    redis_client: redis.Redis,
) -> None:
    first, _ = left_to_the_first(redis_client, 2)

    looked(first)

    alive = int((redis_client.hget("{lock:a}:alive", first.token) or b"").split()[0])
    assert alive <= server_ms(redis_client) + CLAIM


def test_a_look_passes_by_those_who_ask_no_more(redis_client: redis.Redis) -> None:
    first, second, third = left_to_the_first(redis_client, 3)
    let_lapse(redis_client, second.token)

    assert looked(first) == third.token
