"""Copies of requests that come when a lock was let go, but is kept for its ``min_hold``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core.protocol import commands, replies
from tests.support.locks import listed, value_of
from tests.wire.helpers import ask, send

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from django_setnx_lock.core import LockHandle
    from django_setnx_lock.core.locks.attempt import AcquireAttempt

KEEP = 5

REQUESTS: dict[str, Callable[[AcquireAttempt, LockHandle], commands.Request]] = {
    "release": lambda _turn, held: held.grant.releasing(),
    "ask": lambda turn, _held: turn.request(waits=False),
    "ask and wait": lambda turn, _held: turn.request(waits=True),
    "leave": lambda turn, _held: commands.SETNX.cancel(turn.target.keys, None, turn.token),
    "renew": lambda _turn, held: held.grant.renewing(60_000),
    "look": lambda turn, held: commands.SETNX.check_handoff(turn.target.keys, held.token),
}


def kept(client: Any) -> tuple[AcquireAttempt, LockHandle]:
    turn = listed(client, "a", min_hold=KEEP, timeout=30).attempt()
    held = ask(turn, waits=False)
    assert not isinstance(held, replies.Busy)
    held.release()
    return turn, held


@pytest.mark.parametrize("request_", REQUESTS)
def test_no_late_copy_frees_it_or_keeps_it_for_longer(
    redis_client: redis.Redis, request_: str
) -> None:
    turn, held = kept(redis_client)
    value, left = value_of(redis_client), redis_client.pttl("lock:a")

    send(redis_client, REQUESTS[request_](turn, held))

    assert value_of(redis_client) == value
    assert left - 1000 < redis_client.pttl("lock:a") <= left


def test_a_release_sent_again_is_answered_as_the_first_was(redis_client: redis.Redis) -> None:
    _, held = kept(redis_client)

    reply = send(redis_client, held.grant.releasing())

    assert replies.text(reply[0]) == "OK"


def test_a_release_that_comes_when_the_time_from_the_grant_on_is_over_keeps_nothing(
    redis_client: redis.Redis,
) -> None:
    turn = listed(redis_client, "a", min_hold=0.001, timeout=30).attempt()
    held = ask(turn, waits=False)
    assert not isinstance(held, replies.Busy)
    request = held.grant.releasing()
    time.sleep(0.01)

    send(redis_client, request)

    assert not redis_client.exists("lock:a")


def test_what_comes_when_somebody_else_has_the_lock_changes_nothing(
    redis_client: redis.Redis,
) -> None:
    turn, held = kept(redis_client)
    redis_client.delete("lock:a")
    following = listed(redis_client, "a").take(0)

    for request in REQUESTS.values():
        send(redis_client, request(turn, held))

    following.check()


def test_a_fence_that_is_ahead_of_the_clock_keeps_it_for_no_longer(
    redis_client: redis.Redis,
) -> None:
    held = ask(listed(redis_client, "a", min_hold=3).attempt(), waits=False)
    assert not isinstance(held, replies.Busy)
    # As where the server's clock has stepped back.
    held.grant.fence += 3_600_000_000

    held.release()

    assert 0 < redis_client.pttl("lock:a") <= 3000
