"""The queue of those who wait for a lock: places, and who is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core.locks import mailbox
from tests.support.locks import holder, queue_of, server_ms, value_of
from tests.wire.helpers import let_lapse
from tests.wire.queueing import is_busy, waiters

if TYPE_CHECKING:
    import redis

MARGIN = 2_000

pytestmark = pytest.mark.usefixtures("nobody_looks", "patient")


def test_asking_again_keeps_the_place_in_the_queue(redis_client: redis.Redis) -> None:
    holder(redis_client)
    queued = waiters(redis_client, 3)

    for turn in (queued[2], queued[0], queued[0]):
        assert is_busy(turn)

    assert queue_of(redis_client) == [turn.token for turn in queued]


def came_early(client: redis.Redis) -> list[str | None]:
    """Return the queue of one who came at a time that is yet to come, and two after."""
    ahead = 9_000_000_000_000_000
    holder(client)
    client.zadd("{lock:a}:waiters", {"early": ahead})
    waiters(client, 2)
    return queue_of(client)


def test_who_comes_later_is_later_although_the_clock_of_the_server_stepped_back(
    redis_client: redis.Redis,
) -> None:
    early, second, third = came_early(redis_client)

    assert early == "early"
    rank = [redis_client.zscore("{lock:a}:waiters", str(token)) for token in (second, third)]
    assert rank == [9_000_000_000_000_001, 9_000_000_000_000_002]


def leave_it_to_the_living(client: redis.Redis) -> list[str | None]:
    """Release a lock whose first two waiters are dead; return who has the baton, and the queue."""
    held = holder(client)
    queued = waiters(client, 4)
    for dead in queued[:2]:
        let_lapse(client, dead.token)
    names = {turn.token: f"waiter {number}" for number, turn in enumerate(queued)}
    held.release()
    at_the_name = (value_of(client) or "").removeprefix("baton:")
    return [names.get(token or "", token) for token in (at_the_name, *queue_of(client))]


def test_waiters_who_ask_no_more_are_skipped_and_dropped(redis_client: redis.Redis) -> None:
    assert leave_it_to_the_living(redis_client) == ["waiter 2", "waiter 3"]
    assert redis_client.hlen("{lock:a}:alive") == 4


@pytest.mark.parametrize("lease", [5, 3600], ids=["a short lease", "a long lease"])
def test_a_waiter_is_alive_for_longer_than_it_may_sleep(
    redis_client: redis.Redis, lease: int
) -> None:
    before = server_ms(redis_client)
    holder(redis_client, lease)
    (waiter,) = waiters(redis_client, 1)
    after = server_ms(redis_client)

    found = redis_client.hget("{lock:a}:alive", waiter.token)

    alive, _, asks_again = map(int, (found or b"").split())
    longest = min(lease * 1000, mailbox.SLICE_MS)
    assert before + longest - 2 <= asks_again <= after + longest + 2
    assert alive - asks_again == MARGIN


def test_a_queue_lives_for_longer_than_any_waiter_may_sleep(redis_client: redis.Redis) -> None:
    holder(redis_client)
    waiters(redis_client, 1)

    lives = [redis_client.pttl(key) for key in ("{lock:a}:waiters", "{lock:a}:alive")]

    assert min(lives) > mailbox.SLICE_MS
