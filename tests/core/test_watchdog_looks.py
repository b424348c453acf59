"""When the watchdog looks after the waiter that a lock was handed to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from redis import exceptions as redis_exceptions

from tests.core.watching import START, IdleWatchdog, Wire, looks, pass_time, renewals, target

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.core.helpers import FakeTime


def answering(*heads: str | None) -> Callable[[Any], Any]:
    """Answer each look in turn with the waiter to look after next."""
    left = list(heads)

    def answer(command: Any) -> list[Any]:
        head = left.pop(0) if left else None
        return [b"OK", head, int(head is not None and head != command[-2])]

    return answer


def test_who_was_handed_the_lock_is_looked_after_a_little_later(
    dog: IdleWatchdog, wire: Wire, fake_time: FakeTime
) -> None:
    dog.schedule_handoff_check(target(wire.client), "waiter 1")
    next_at = dog.tick()
    before = list(wire.writes)

    pass_time(dog, fake_time, 0.02)

    assert next_at == pytest.approx(START + 0.02)
    assert before == []
    assert looks(wire.sent) == [("lock:a", "waiter 1")]


def test_a_look_is_done_when_nobody_is_to_be_looked_after(
    dog: IdleWatchdog, wire: Wire, fake_time: FakeTime
) -> None:
    dog.schedule_handoff_check(target(wire.client), "waiter 1")

    pass_time(dog, fake_time, 60)

    assert len(wire.writes) == 1


def test_the_next_waiter_is_looked_after_just_as_soon(
    dog: IdleWatchdog, wire: Wire, fake_time: FakeTime
) -> None:
    wire.answer = answering("waiter 2")
    dog.schedule_handoff_check(target(wire.client), "waiter 1")

    pass_time(dog, fake_time, 0.05)

    assert looks(wire.sent) == [("lock:a", "waiter 1"), ("lock:a", "waiter 2")]


def test_the_same_waiter_is_looked_after_again_when_its_time_to_claim_is_over(
    dog: IdleWatchdog, wire: Wire, fake_time: FakeTime
) -> None:
    wire.answer = answering("waiter 1")
    dog.schedule_handoff_check(target(wire.client), "waiter 1")
    pass_time(dog, fake_time, 1.0)
    before = looks(wire.sent)

    pass_time(dog, fake_time, 0.1)

    assert before == [("lock:a", "waiter 1")]
    assert looks(wire.sent) == [("lock:a", "waiter 1")] * 2


def test_looks_and_renewals_go_together(
    dog: IdleWatchdog, wire: Wire, fake_time: FakeTime, watch: Callable[..., object]
) -> None:
    watch("lock:held", timeout=30)
    fake_time.now += 9
    for name in "abc":
        dog.schedule_handoff_check(target(wire.client, f"lock:{name}"), "waiter 1")

    pass_time(dog, fake_time, 0.02)

    assert len(wire.writes) == 1
    assert [name for name, _ in looks(wire.sent)] == ["lock:a", "lock:b", "lock:c"]
    assert [name for name, _ in renewals(wire.sent)] == ["lock:held"]


def test_a_later_look_at_the_same_lock_takes_the_place_of_the_earlier(
    dog: IdleWatchdog, wire: Wire, fake_time: FakeTime
) -> None:
    dog.schedule_handoff_check(target(wire.client), "waiter 1")
    dog.schedule_handoff_check(target(wire.client), "waiter 2")

    pass_time(dog, fake_time, 1)

    assert looks(wire.sent) == [("lock:a", "waiter 2")]


def test_looks_at_the_same_lock_by_clients_of_one_pool_are_one(
    dog: IdleWatchdog, wire: Wire, fake_time: FakeTime
) -> None:
    other = type(wire.client)(connection_pool=wire.client.connection_pool)
    dog.schedule_handoff_check(target(wire.client), "waiter 1")
    dog.schedule_handoff_check(target(other), "waiter 2")

    pass_time(dog, fake_time, 1)

    assert looks(wire.sent) == [("lock:a", "waiter 2")]


def test_the_answer_to_an_earlier_look_does_not_end_the_later(
    dog: IdleWatchdog, wire: Wire, fake_time: FakeTime
) -> None:
    dog.schedule_handoff_check(target(wire.client), "waiter 1")
    fake_time.now += 0.02
    wire.silent = True
    dog.tick()
    dog.schedule_handoff_check(target(wire.client), "waiter 2")
    wire.silent = False

    pass_time(dog, fake_time, 1)

    assert looks(wire.sent) == [("lock:a", "waiter 1"), ("lock:a", "waiter 2")]


def test_a_look_that_fails_is_tried_again(
    dog: IdleWatchdog, wire: Wire, fake_time: FakeTime
) -> None:
    wire.down = True
    dog.schedule_handoff_check(target(wire.client), "waiter 1")
    pass_time(dog, fake_time, 0.5)
    wire.down = False

    pass_time(dog, fake_time, 1)

    assert looks(wire.sent) == [("lock:a", "waiter 1")]


def test_a_look_that_goes_on_failing_is_given_up(
    dog: IdleWatchdog, wire: Wire, fake_time: FakeTime
) -> None:
    wire.answer = lambda command: redis_exceptions.ResponseError("ERR")
    dog.schedule_handoff_check(target(wire.client), "waiter 1")

    pass_time(dog, fake_time, 60)

    assert len(wire.writes) == 5
    assert dog.tick() == float("inf")


def test_at_the_exit_of_the_process_looks_are_sent_at_once_and_once(
    dog: IdleWatchdog, wire: Wire, fake_time: FakeTime
) -> None:
    wire.answer = answering("waiter 2", "waiter 3")
    dog.schedule_handoff_check(target(wire.client), "waiter 1")

    dog.hasten_checks()
    pass_time(dog, fake_time, 0)

    assert looks(wire.sent) == [("lock:a", "waiter 1")]
    assert dog.tick() == float("inf")


def test_at_the_exit_of_the_process_a_look_that_fails_is_given_up(
    dog: IdleWatchdog, wire: Wire, fake_time: FakeTime
) -> None:
    wire.down = True
    dog.schedule_handoff_check(target(wire.client), "waiter 1")

    dog.hasten_checks()
    pass_time(dog, fake_time, 0)

    assert dog.tick() == float("inf")
