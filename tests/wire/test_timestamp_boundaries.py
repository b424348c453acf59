"""When a time is over: for us, and for the two kinds of client that there are besides.

One compares whole seconds, ``expires > now`` being held; the other whole milliseconds, where
``value < now`` is over. Both holders believe in their locks for as long as they find them so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core import LockHandle
from tests.support.locks import timed, value_of
from tests.wire.helpers import ask
from tests.wire.timestamps import (
    UNITS,
    ServerClock,
    T,
    asking,
    is_over_for_milliseconds,
    is_over_for_seconds,
)

if TYPE_CHECKING:
    import redis

LEASE = 10_000_000
# At which moment of its second the lock is taken, in microseconds.
MOMENTS = [0, 1, 999, 1_000, 1_001, 499_999, 999_000, 999_999]


@pytest.fixture
def server_clock(monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis) -> ServerClock:
    return ServerClock(monkeypatch, redis_client)


def is_over_for_them(value: str, unit: str, micros: int) -> bool:
    return (is_over_for_seconds if unit == "s" else is_over_for_milliseconds)(value, micros)


@pytest.mark.parametrize("unit", ["s", "ms"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_others_find_our_lock_held_for_the_whole_of_its_lease(
    redis_client: redis.Redis, server_clock: ServerClock, unit: str, moment: int
) -> None:
    server_clock.set(T + moment)
    ask(asking(redis_client, unit), waits=False)
    value = value_of(redis_client) or ""

    assert not is_over_for_them(value, unit, T + moment + LEASE - 1)
    assert is_over_for_them(value, unit, T + moment + LEASE + 2 * UNITS[unit])


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_the_time_of_another_is_over_when_a_later_unit_has_begun(
    redis_client: redis.Redis, server_clock: ServerClock, unit: str
) -> None:
    end = T // UNITS[unit]
    redis_client.set("lock:a", end)

    server_clock.set(T + UNITS[unit] - 1)
    busy = ask(asking(redis_client, unit), waits=False)
    server_clock.set(T + UNITS[unit])
    taken = ask(asking(redis_client, unit), waits=False)

    assert not isinstance(busy, LockHandle)
    assert (busy.remaining, busy.foreign, busy.holder) == (0.001, True, None)
    assert isinstance(taken, LockHandle)


@pytest.mark.parametrize("after", [0, 1, 500, 999])
def test_it_is_not_over_for_us_before_it_is_for_its_holder(
    redis_client: redis.Redis, server_clock: ServerClock, after: int
) -> None:
    redis_client.set("lock:a", T // 1000)
    server_clock.set(T + after)

    assert not is_over_for_milliseconds(str(T // 1000), T + after)
    assert not isinstance(ask(asking(redis_client, "ms"), waits=False), LockHandle)


def test_a_time_with_a_fraction_is_understood(
    redis_client: redis.Redis, server_clock: ServerClock
) -> None:
    redis_client.set("lock:a", f"{T // 1_000_000}.25")

    server_clock.set(T + 999_999)
    busy = ask(asking(redis_client, "s"), waits=False)
    server_clock.set(T + 1_000_000)

    assert not isinstance(busy, LockHandle)
    assert isinstance(ask(asking(redis_client, "s"), waits=False), LockHandle)


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_among_ourselves_a_lock_is_over_at_the_end_of_its_lease(
    redis_client: redis.Redis, server_clock: ServerClock, unit: str
) -> None:
    server_clock.set(T + 500_000)
    ask(asking(redis_client, unit), waits=False)

    server_clock.set(T + 500_000 + LEASE - 1)
    busy = ask(asking(redis_client, unit), waits=False)
    server_clock.set(T + 500_000 + LEASE)

    assert not isinstance(busy, LockHandle)
    assert isinstance(ask(asking(redis_client, unit), waits=False), LockHandle)


def test_a_lock_that_was_had_by_a_time_that_was_over_has_a_fence_and_a_record(
    redis_client: redis.Redis, server_clock: ServerClock
) -> None:
    redis_client.set("lock:a", T // 1000 - 5)

    with timed(redis_client) as held:
        assert held.fence >= T
        assert re.fullmatch(r"\d{13}", value_of(redis_client) or "")
