"""The mailbox of an event loop, and what it says of those who wait in the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core.protocol import commands
from tests.support.locks import holder, listed
from tests.wire.helpers import called
from tests.wire.queueing import handed_on

if TYPE_CHECKING:
    import redis


def dead_waiter(client: redis.Redis) -> tuple[Any, Any]:
    """Return two that wait in loops, of which nothing fetches the mail."""
    turns = []
    for number in range(2):
        turn = listed(client, "a").attempt()
        turn.token = commands.SETNX.new_token(f"{{lock:}}:mail:{number}")
        called(turn.target, turn.request(waits=True))
        turns.append(turn)
    return turns[0], turns[1]


def test_what_is_left_to_a_loop_that_is_gone_goes_to_the_next_at_once(
    redis_client: redis.Redis,
) -> None:
    held = holder(redis_client)
    first, second = dead_waiter(redis_client)
    held.release()

    assert handed_on(first, looked_after(first)) == second.token


def looked_after(turn: Any) -> Any:
    return commands.SETNX.check_handoff(turn.target.keys, turn.token)


def test_mail_that_was_fetched_is_not_taken_for_unread(redis_client: redis.Redis) -> None:
    held = holder(redis_client)
    first, _ = dead_waiter(redis_client)
    held.release()
    redis_client.zpopmin("{lock:}:mail:0")

    assert handed_on(first, looked_after(first)) == first.token


@pytest.mark.parametrize("box", ["celery", "{lock:}:index", "{lock:}:mail:", "x{lock:}:mail:1"])
def test_a_token_leads_to_no_key_but_a_mailbox(redis_client: redis.Redis, box: str) -> None:
    held = holder(redis_client)
    turn = listed(redis_client, "a").attempt()
    turn.token = f"token@{box}"
    called(turn.target, turn.request(waits=True))

    held.release()

    assert not redis_client.exists("celery", "{lock:}:mail:", "x{lock:}:mail:1")
    assert redis_client.exists(turn.target.keys.wake(turn.token))


def test_what_is_given_up_leaves_no_mail(redis_client: redis.Redis) -> None:
    held = holder(redis_client)
    first, _ = dead_waiter(redis_client)
    held.release()
    assert redis_client.exists("{lock:}:mail:0")

    called(first.target, first.cancelling())

    assert not redis_client.exists("{lock:}:mail:0")


def test_mail_that_nobody_fetches_is_gone_with_the_claim(redis_client: redis.Redis) -> None:
    held = holder(redis_client)
    dead_waiter(redis_client)
    held.release()

    assert 0 < redis_client.pttl("{lock:}:mail:0") <= commands.CLAIM_MS * 10
