from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockLost
from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.events import ACQUIRED, BUSY, LOST, RELEASED, Event

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

EVENTS = (ACQUIRED, RELEASED, LOST, BUSY)


@pytest.fixture
def told() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Give what listeners are told, in order."""
    found: list[tuple[str, dict[str, Any]]] = []
    before = [list(event.listeners) for event in EVENTS]
    for event in EVENTS:
        event.listeners.append(lambda event=event, **about: found.append((event.name, about)))
    yield found
    for event, listeners in zip(EVENTS, before, strict=True):
        event.listeners[:] = listeners


def test_taking_and_releasing_are_told_with_fence_and_times(
    redis_client: redis.Redis, told: list[tuple[str, dict[str, Any]]]
) -> None:
    with RedisLock(redis_client, "lock:a", key="a", template="<x>") as held:
        fence = held.fence

    (acquired, about), (released, and_then) = told
    assert (acquired, released) == ("lock_acquired", "lock_released")
    assert about == {"key": "a", "template": "<x>", "fence": fence, "waited": about["waited"]}
    assert and_then == {
        "key": "a",
        "template": "<x>",
        "fence": fence,
        "held_for": and_then["held_for"],
    }
    assert 0 <= about["waited"] < 10
    assert 0 <= and_then["held_for"] < 10


def test_giving_up_is_told_once_with_the_error(
    redis_client: redis.Redis, told: list[tuple[str, dict[str, Any]]]
) -> None:
    RedisLock(redis_client, "lock:a").take(0)
    told.clear()

    with pytest.raises(LockBusy) as caught:
        RedisLock(redis_client, "lock:a").take(0.05)

    assert [name for name, _ in told] == ["lock_busy"]
    assert told[0][1]["error"] is caught.value
    assert told[0][1]["waited"] >= 0.05


def test_a_loss_is_told_once(
    redis_client: redis.Redis, told: list[tuple[str, dict[str, Any]]]
) -> None:
    held = RedisLock(redis_client, "lock:a", template="<x>").take(0)
    told.clear()
    redis_client.delete("lock:a")

    for _ in range(2):
        with pytest.raises(LockLost):
            held.check()

    assert [name for name, _ in told] == ["lock_lost"]
    assert isinstance(told[0][1]["error"], LockLost)
    assert told[0][1]["fence"] == held.fence


def test_no_token_is_told(
    redis_client: redis.Redis, told: list[tuple[str, dict[str, Any]]]
) -> None:
    with RedisLock(redis_client, "lock:a") as held:
        token = held.token
    with RedisLock(redis_client, "lock:a"), pytest.raises(LockBusy):
        RedisLock(redis_client, "lock:a").take(0)

    assert len(told) == 5
    assert token not in repr(told)


def test_what_a_listener_raises_is_logged_and_keeps_nobody_from_the_lock(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(**about: object) -> None:
        raise RuntimeError("oops")

    ACQUIRED.listeners.append(fail)
    try:
        with RedisLock(redis_client, "lock:a") as held:
            assert held.owned()
    finally:
        ACQUIRED.listeners.remove(fail)

    assert "a listener to lock_acquired of 'lock:a' failed" in caplog.text


def test_nothing_is_put_together_for_nobody() -> None:
    Event("unheard").tell(key="a")

    # What Retry-After is told by may have been asked for before.
    heard_by = {listener.__module__ for event in EVENTS for listener in event.listeners}
    assert heard_by <= {"django_setnx_lock.responses"}
