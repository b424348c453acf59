"""What a report of an error shows of the ticket by which a lock is taken over: nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockError
from django_setnx_lock.core import RedisLock, Redlock
from tests.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Callable


def given(client: redis.Redis) -> str:
    ticket = RedisLock(client, "lock:a").take(0).give_away()
    client.delete("lock:a")
    return ticket


def away() -> redis.Redis:
    return redis.Redis(port=free_port(), retry=Retry(NoBackoff(), 0))


def several() -> Redlock:
    return Redlock([redis.Redis(port=free_port()) for _ in range(3)], "lock:a")


TAKEN_OVER: dict[str, Callable[[redis.Redis, str], Any]] = {
    "not held": lambda client, ticket: RedisLock(client, "lock:a").adopt(ticket),
    "another lock": lambda client, ticket: RedisLock(client, "lock:b").adopt(ticket),
    "no ticket": lambda client, ticket: RedisLock(client, "lock:a").adopt(f"{ticket}}}"),
    "without a server": lambda client, ticket: RedisLock(away(), "lock:a").adopt(ticket),
    "several masters": lambda client, ticket: several().adopt(ticket),
    "of a kind": lambda client, ticket: RedisLock(client, "lock:a", polling=True).adopt(ticket),
}


@pytest.mark.parametrize("adopt", TAKEN_OVER.values(), ids=TAKEN_OVER)
def test_no_frame_of_a_lock_that_was_not_taken_over_shows_the_ticket(
    redis_client: redis.Redis, adopt: Callable[[redis.Redis, str], Any]
) -> None:
    ticket = given(redis_client)
    token = json.loads(ticket)["token"]

    with pytest.raises((LockError, ValueError)) as caught:
        adopt(redis_client, ticket)

    shown = [
        (entry.frame.code.name, name)
        for entry in caught.traceback
        if "django_setnx_lock" in str(entry.path)
        for name, value in entry.frame.f_locals.items()
        if token in f"{value!r} {value}"
    ]
    assert shown == []
    assert token not in f"{caught.value!r} {vars(caught.value)}"


def test_a_ticket_that_is_printed_whole_is_good(redis_client: redis.Redis) -> None:
    held = RedisLock(redis_client, "lock:a").take(0)
    ticket = str(held.give_away())

    adopted = RedisLock(redis_client, "lock:a").adopt(ticket)

    assert adopted.fence == held.fence
    adopted.release()
