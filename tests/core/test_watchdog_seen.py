"""When nobody need look after a waiter, as its process has seen that the lock was taken up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.core.helpers import called
from tests.core.queueing import caller, claim, is_busy, left_to_the_first
from tests.core.watching import START, IdleWatchdog, Wire, looks, pass_time, target

if TYPE_CHECKING:
    import redis

    from tests.core.helpers import FakeTime


@pytest.mark.parametrize(
    ("name", "asked", "sent"),
    [
        ("lock:a", START + 0.01, []),
        ("lock:a", START - 0.01, [("lock:a", "waiter 1")]),
        ("lock:b", START + 0.01, [("lock:a", "waiter 1")]),
    ],
    ids=["asked later", "asked before", "another lock"],
)
def test_what_was_seen_of_a_lock_since_it_was_handed_on_makes_a_look_needless(
    dog: IdleWatchdog,
    wire: Wire,
    fake_time: FakeTime,
    name: str,
    asked: float,
    sent: list[tuple[str, str]],
) -> None:
    dog.schedule_handoff_check(target(wire.client), "waiter 1")

    dog.handoff_confirmed(target(wire.client, name), asked)
    pass_time(dog, fake_time, 1)

    assert looks(wire.sent) == sent


def test_a_lock_that_is_seen_on_its_way_is_looked_after(
    dog: IdleWatchdog, redis_client: redis.Redis
) -> None:
    left_to_the_first(redis_client, 1)

    assert is_busy(caller(redis_client))

    assert dog.handoff_checks()


def test_a_lock_that_is_seen_with_its_next_holder_is_not_looked_after(
    dog: IdleWatchdog, redis_client: redis.Redis
) -> None:
    (first,) = left_to_the_first(redis_client, 1)
    # As another process does, of whose grant this one hears nothing.
    called(first.target, first.request(waits=True))

    assert is_busy(caller(redis_client))

    assert not dog.handoff_checks()


def test_a_lock_that_this_process_takes_up_itself_is_not_looked_after(
    dog: IdleWatchdog, redis_client: redis.Redis
) -> None:
    (first,) = left_to_the_first(redis_client, 1)

    claim(first)

    assert not dog.handoff_checks()


def test_a_lock_that_a_foreign_client_got_hold_of_is_looked_after(
    dog: IdleWatchdog, redis_client: redis.Redis
) -> None:
    left_to_the_first(redis_client, 1)
    redis_client.set("lock:a", "somebody's")

    assert is_busy(caller(redis_client))

    assert dog.handoff_checks()
