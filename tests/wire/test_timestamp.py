"""The timestamp protocol: the value at the name is the time at which the lock stops being valid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockLost, LockUnavailable
from django_setnx_lock.core import RedisLock
from tests.support.locks import server_ms, timed, value_of
from tests.wire.helpers import meta_of
from tests.wire.timestamps import ServerClock, T

if TYPE_CHECKING:
    import redis

BOTH_UNITS = pytest.mark.parametrize("unit", ["s", "ms"])
DIGITS = {"s": 10, "ms": 13}


@pytest.fixture
def server_clock(monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis) -> ServerClock:
    return ServerClock(monkeypatch, redis_client)


@BOTH_UNITS
def test_a_time_stands_at_the_name_and_the_rest_beside_it(
    redis_client: redis.Redis, unit: str
) -> None:
    with timed(redis_client, unit, label="test") as held:
        value, meta = value_of(redis_client), meta_of(redis_client)

    assert value is not None
    assert value.isdecimal()
    assert len(value) == DIGITS[unit]
    assert (meta.fence, meta.token) == (held.fence, held.token)
    assert '"label":"test"' in meta.record


@BOTH_UNITS
def test_redis_removes_a_value_a_second_after_it_is_over(
    redis_client: redis.Redis, unit: str
) -> None:
    with timed(redis_client, unit):
        over_ms = int(value_of(redis_client) or 0) * (1000 if unit == "s" else 1)
        left = redis_client.pttl("lock:a")

    assert left == pytest.approx(over_ms + 1000 - server_ms(redis_client), abs=300)


def test_a_value_stays_where_that_is_asked_for(redis_client: redis.Redis) -> None:
    with timed(redis_client, expire=False) as held:
        taken = redis_client.pttl("lock:a")
        held.extend(5)
        renewed = redis_client.pttl("lock:a")

    assert (taken, renewed) == (-1, -1)


def test_a_fence_grows_although_the_clock_steps_back(
    redis_client: redis.Redis, server_clock: ServerClock
) -> None:
    with timed(redis_client) as first:
        pass
    server_clock.set(T - 30_000_000)

    with timed(redis_client) as second:
        assert second.fence == first.fence + 1


@BOTH_UNITS
@pytest.mark.usefixtures("fake_time")
def test_extending_writes_a_later_time(
    redis_client: redis.Redis, server_clock: ServerClock, unit: str
) -> None:
    with timed(redis_client, unit) as held:
        held.extend(5)
        value = value_of(redis_client)

    assert value == str((T + 15_000_000) // (1_000_000 if unit == "s" else 1_000))


def test_what_is_left_can_be_set(redis_client: redis.Redis, server_clock: ServerClock) -> None:
    with timed(redis_client) as held:
        held.extend(30, replace_ttl=True)

        assert value_of(redis_client) == str((T + 30_000_000) // 1000)
        assert held.remaining() <= 30


def test_a_lock_is_held_for_as_long_as_its_value_is_not_over(
    redis_client: redis.Redis, server_clock: ServerClock
) -> None:
    one = timed(redis_client, expire=False)
    free = one.locked()
    one.acquire()
    taken = one.locked()
    server_clock.set(T + 10_000_000)

    assert (free, taken, one.locked()) == (False, True, False)
    assert value_of(redis_client) is not None


def test_a_value_that_another_program_wrote_since_is_not_removed(
    redis_client: redis.Redis,
) -> None:
    held = timed(redis_client).take()
    other = str(server_ms(redis_client) + 60_000)
    redis_client.set("lock:a", other)

    assert not held.owned()
    with pytest.raises(LockLost):
        held.release()
    assert value_of(redis_client) == other


@pytest.mark.parametrize("what", ["release", "check", "extend"])
def test_what_is_over_on_the_servers_clock_is_lost(
    redis_client: redis.Redis, server_clock: ServerClock, what: str
) -> None:
    held = timed(redis_client).take()
    value = value_of(redis_client)
    server_clock.set(T + 10_000_000)

    with pytest.raises(LockLost):
        held.extend(5) if what == "extend" else getattr(held, what)()
    assert value_of(redis_client) == value


REFUSED: list[tuple[str, Any]] = [
    ("ms", "hello"),
    ("ms", ""),
    ("ms", "1"),
    ("ms", "-1900000000000"),
    ("ms", "0x1bf08eb000"),
    ("ms", "1900000000"),
    ("s", "1900000000000"),
    ("s", "c0ffee00c0ffee00c0ffee00c0ffee00"),
    ("s", '"1900000000"'),
]


@pytest.mark.parametrize(("unit", "value"), REFUSED)
def test_what_is_no_time_is_refused_and_left_alone(
    redis_client: redis.Redis, unit: str, value: str
) -> None:
    redis_client.set("lock:a", value)

    for use in (timed(redis_client, unit).take, timed(redis_client, unit).locked):
        with pytest.raises(LockUnavailable, match="no timestamp") as caught:
            use()
        assert caught.value.cause == "wrongtype"
        assert len(value) < 5 or value not in str(caught.value)
    assert value_of(redis_client) == value
    assert redis_client.keys("*meta*") == []


def test_a_time_in_another_unit_is_called_that(redis_client: redis.Redis) -> None:
    redis_client.set("lock:a", "1900000000")

    with pytest.raises(LockUnavailable, match="a time in s, and the unit of this lock is ms"):
        timed(redis_client, "ms").take()


def test_the_token_of_a_lock_of_the_default_kind_is_no_time(redis_client: redis.Redis) -> None:
    with RedisLock(redis_client, "lock:a") as held:
        with pytest.raises(LockUnavailable) as caught:
            timed(redis_client).take(0)
        assert held.token not in str(caught.value)
        assert held.owned()
