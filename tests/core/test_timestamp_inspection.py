"""What is to be seen of locks whose value is a time, and taking them away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import LockLost
from django_setnx_lock.core import Inspector, Outcome, State
from tests.core.helpers import PREFIX, server_ms, value_of
from tests.core.timestamps import ServerClock, T, timed

if TYPE_CHECKING:
    import redis

BOTH_UNITS = pytest.mark.parametrize("unit", ["s", "ms"])


@pytest.fixture
def server_clock(monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis) -> ServerClock:
    return ServerClock(monkeypatch, redis_client)


@BOTH_UNITS
def test_a_held_lock_is_told_in_full(redis_client: redis.Redis, unit: str) -> None:
    held = timed(redis_client, unit, label="view pay", expire=False).take()

    # The unit is known by what stands beside the lock.
    info = Inspector(redis_client, PREFIX).get("lock:a")

    assert (info.state, info.kind, info.unit) == (State.HELD, "string", unit)
    assert info.holder is not None
    assert info.holder.label == "view pay"
    assert info.fence == held.fence
    assert info.remaining == pytest.approx(10, abs=0.5)
    assert info.held_for == pytest.approx(0, abs=0.5)
    assert info.fingerprint


def test_a_renewed_lock_keeps_its_fingerprint(redis_client: redis.Redis) -> None:
    held = timed(redis_client).take()
    inspector = Inspector(redis_client, PREFIX)
    before = inspector.get("lock:a")
    held.extend(10)
    after = inspector.get("lock:a")

    assert before.fingerprint == after.fingerprint
    assert after.remaining == pytest.approx(20, abs=0.5)


@BOTH_UNITS
def test_the_time_of_another_program_is_read_in_the_unit_of_the_project(
    redis_client: redis.Redis, unit: str
) -> None:
    now = server_ms(redis_client)
    redis_client.set("lock:a", (now + 20_000) // (1000 if unit == "s" else 1))

    info = Inspector(redis_client, PREFIX, unit=unit).get("lock:a")

    assert (info.state, info.unit, info.holder, info.fence) == (State.FOREIGN, unit, None, None)
    assert info.remaining == pytest.approx(20, abs=1.5)


def test_without_a_unit_a_number_is_a_token(redis_client: redis.Redis) -> None:
    redis_client.set("lock:a", server_ms(redis_client) - 5000)

    info = Inspector(redis_client, PREFIX).get("lock:a")

    assert (info.state, info.unit) == (State.NEVER_EXPIRES, "")


def test_what_is_no_time_is_foreign(redis_client: redis.Redis) -> None:
    redis_client.set("lock:a", "somebody", px=20_000)

    info = Inspector(redis_client, PREFIX, unit="ms").get("lock:a")

    assert (info.state, info.unit) == (State.FOREIGN, "")


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_time_that_is_over_is_nobodys(
    redis_client: redis.Redis, server_clock: ServerClock, is_ours: bool
) -> None:
    if is_ours:
        timed(redis_client, expire=False).take()
        server_clock.set(T + 10_000_000)
    else:
        redis_client.set("lock:a", T // 1000 - 1)

    info = Inspector(redis_client, PREFIX, unit="ms").get("lock:a")

    assert (info.state, info.is_held, info.holder, info.remaining) == (
        State.FREE,
        False,
        None,
        None,
    )


@BOTH_UNITS
def test_the_holder_that_was_seen_loses_it_and_hears_why(
    redis_client: redis.Redis, unit: str
) -> None:
    held = timed(redis_client, unit).take()
    inspector = Inspector(redis_client, PREFIX)
    seen = inspector.get("lock:a").fingerprint
    held.extend(5)

    outcome = inspector.force_release("lock:a", seen, by="ann", reason="stuck")

    assert outcome is Outcome.RELEASED
    assert value_of(redis_client) is None
    with pytest.raises(LockLost) as caught:
        held.check()
    assert (caught.value.forced_by, caught.value.reason) == ("ann", "stuck")


def test_a_lock_of_another_program_can_be_taken_from_it(redis_client: redis.Redis) -> None:
    redis_client.set("lock:a", server_ms(redis_client) + 20_000)
    inspector = Inspector(redis_client, PREFIX, unit="ms")
    seen = inspector.get("lock:a").fingerprint

    assert inspector.force_release("lock:a", seen) is Outcome.RELEASED
    assert value_of(redis_client) is None


def test_who_holds_it_by_now_keeps_it(redis_client: redis.Redis) -> None:
    inspector = Inspector(redis_client, PREFIX)
    with timed(redis_client):
        seen = inspector.get("lock:a")
    held = timed(redis_client).take()

    outcome = inspector.force_release("lock:a", seen.fingerprint)

    assert outcome is Outcome.CHANGED_HANDS
    assert held.owned()


def test_it_is_taken_from_nobody_who_came_after_the_look(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspector = Inspector(redis_client, PREFIX)
    first = timed(redis_client).take()
    seen = inspector.get("lock:a")
    first.release()
    held = timed(redis_client).take()
    monkeypatch.setattr(inspector, "get", lambda name: seen)

    outcome = inspector.force_release("lock:a", seen.fingerprint)

    assert outcome is Outcome.CHANGED_HANDS
    assert held.owned()
