"""Locks whose value is the time at which they end: at what moment, for us and for older clients.

The server's clock stands still, but for what a test sets. Of the older clients, one compares whole
seconds, ``expires > now`` being held; the other whole milliseconds, where ``value < now`` is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockLost, LockUnavailable
from django_setnx_lock.core import Inspector, Outcome
from django_setnx_lock.core.protocol import kinds, requests
from tests.support import seams
from tests.support.locks import PREFIX, timed, value_of
from tests.wire.running import RECORD, keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from django_setnx_lock.core import LockHandle

UNITS = {"s": 1_000_000, "ms": 1_000}
EACH_UNIT = pytest.mark.parametrize("unit", UNITS)
# A whole second, in microseconds, that is yet to come: Redis is to remove nothing by itself.
T = 1_900_000_000_000_000
LEASE = 10_000_000
CLOCK = "{redis.call('GET', 'test:seconds'), redis.call('GET', 'test:micros')}"


class ServerClock:
    """The server's clock as the scripts see it, in microseconds."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def set(self, micros: int) -> None:
        self._client.set("test:seconds", micros // 1_000_000)
        self._client.set("test:micros", micros % 1_000_000)


@pytest.fixture(autouse=True)
def server_clock(
    monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis
) -> Iterator[ServerClock]:
    def forget() -> None:
        kinds.script_of.cache_clear()
        kinds.scripts_of.cache_clear()

    def read(name: str, real: Callable[[str], str] = requests.text_of) -> str:
        return real(name).replace("redis.call('TIME')", CLOCK)

    monkeypatch.setattr(requests, "text_of", read)
    forget()
    clock = ServerClock(redis_client)
    clock.set(T)
    yield clock
    forget()


def send(client: redis.Redis, unit: str, name: str, *args: str) -> Any:
    script = kinds.script_of(name, protocol=f"timestamp-{unit}")
    return client.eval(script.source, 3, *keys(), *args)


def ask(client: redis.Redis, unit: str, who: str = "us") -> Any:
    """Ask for the lock once; return the reply."""
    return send(client, unit, "acquire", f"time:{who}", str(LEASE // 1000), RECORD, "0")


def is_granted(client: redis.Redis, unit: str) -> bool:
    # A number: the fence.
    return isinstance(ask(client, unit, "another"), int)


def is_over_for_others(value: str, unit: str, micros: int) -> bool:
    if unit == "s":
        return not int(value) > micros // 1_000_000
    return int(value) < micros // 1_000


# When it ends


@EACH_UNIT
@pytest.mark.parametrize("moment", [0, 1, 999, 1_000, 1_001, 499_999, 999_000, 999_999])
def test_others_find_our_lock_held_for_the_whole_of_its_lease(
    redis_client: redis.Redis, server_clock: ServerClock, unit: str, moment: int
) -> None:
    server_clock.set(T + moment)
    ask(redis_client, unit)
    value = value_of(redis_client) or ""

    assert not is_over_for_others(value, unit, T + moment + LEASE - 1)
    assert is_over_for_others(value, unit, T + moment + LEASE + 2 * UNITS[unit])


@EACH_UNIT
@pytest.mark.parametrize("fraction", ["", ".25"])
def test_the_time_of_another_is_over_when_a_later_unit_has_begun(
    redis_client: redis.Redis, server_clock: ServerClock, unit: str, fraction: str
) -> None:
    redis_client.set("lock:a", f"{T // UNITS[unit]}{fraction}")
    server_clock.set(T + UNITS[unit] - 1)

    assert ask(redis_client, unit)[:3] == [b"BUSY", 1, None]
    server_clock.set(T + UNITS[unit])
    assert is_granted(redis_client, unit)


@EACH_UNIT
def test_among_ourselves_it_is_over_at_the_end_of_its_lease(
    redis_client: redis.Redis, server_clock: ServerClock, unit: str
) -> None:
    server_clock.set(T + 500_000)
    ask(redis_client, unit)

    server_clock.set(T + 500_000 + LEASE - 1_000)
    assert not is_granted(redis_client, unit)
    server_clock.set(T + 500_000 + LEASE)
    assert is_granted(redis_client, unit)


@pytest.mark.parametrize("expire", [True, False])
def test_a_value_that_is_over_is_nobodys(
    redis_client: redis.Redis, server_clock: ServerClock, expire: bool
) -> None:
    one = timed(redis_client, expire=expire)
    held = one.take(0)
    was_held = one.locked()
    server_clock.set(T + LEASE)

    assert (was_held, one.locked()) == (True, False)
    value = value_of(redis_client)
    for use in (held.check, held.release):
        with pytest.raises(LockLost):
            use()
    assert value_of(redis_client) == value is not None


@EACH_UNIT
def test_redis_removes_a_value_a_second_after_it_is_over(
    redis_client: redis.Redis, server_clock: ServerClock, unit: str
) -> None:
    server_clock.set(T + 300_000)
    ask(redis_client, unit)

    over = int(value_of(redis_client) or 0) * UNITS[unit] - (T + 300_000)
    assert over // 1000 < redis_client.pttl("lock:a") <= over // 1000 + 1000


def test_a_value_stays_where_that_is_asked_for(redis_client: redis.Redis) -> None:
    with timed(redis_client, expire=False) as held:
        taken = redis_client.pttl("lock:a")
        held.extend(5)

        assert (taken, redis_client.pttl("lock:a")) == (-1, -1)


@EACH_UNIT
def test_an_extension_writes_a_later_time(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    monkeypatch.setattr(seams.clock, "now", lambda: 1000.0)
    with timed(redis_client, unit) as held:
        held.extend(5)

        assert value_of(redis_client) == str((T + LEASE + 5_000_000) // UNITS[unit])


@EACH_UNIT
def test_a_fence_grows_although_the_clock_steps_back(
    redis_client: redis.Redis, server_clock: ServerClock, unit: str
) -> None:
    # A time that was over says nothing about fences.
    redis_client.set("lock:a", T // UNITS[unit] - 5)
    with timed(redis_client, unit) as first:
        pass
    server_clock.set(T - 30_000_000)

    with timed(redis_client, unit) as second:
        assert second.fence == first.fence + 1 > T


# What is no time


@pytest.mark.parametrize(
    ("unit", "value"),
    [
        ("ms", "hello"),
        ("ms", ""),
        ("ms", "1"),
        ("ms", "-1900000000000"),
        ("ms", "0x1bf08eb000"),
        ("ms", "1900000000"),
        ("s", "1900000000000"),
        ("s", "c0ffee00c0ffee00c0ffee00c0ffee00"),
        ("s", '"1900000000"'),
    ],
)
def test_what_is_no_time_in_its_unit_is_refused_and_left_alone(
    redis_client: redis.Redis, unit: str, value: str
) -> None:
    redis_client.set("lock:a", value)

    for use in (timed(redis_client, unit).take, timed(redis_client, unit).locked):
        with pytest.raises(LockUnavailable, match="no timestamp") as caught:
            use()
        assert caught.value.cause == "wrongtype"
        assert len(value) < 5 or value not in str(caught.value)
        is_other_unit = value.isdecimal() and len(value) > 5
        assert ("and the unit of this lock is" in str(caught.value)) is is_other_unit
    assert value_of(redis_client) == value
    assert not redis_client.exists("{lock:a}:meta")


# Another program writes the very time that was ours, once ours was let go


def let_go(client: redis.Redis, held: LockHandle, how: str) -> None:
    if how == "release":
        held.release()
    elif how == "cancel":
        send(client, "s", "release", held.token, "cancel")
    else:
        inspector = Inspector(client, PREFIX)
        seen = inspector.get("lock:a").fingerprint
        assert inspector.force_release("lock:a", seen, by="joe") is Outcome.RELEASED


HOW = pytest.mark.parametrize("how", ["release", "cancel", "force"])


@HOW
def test_the_other_has_it_and_nothing_that_comes_late_takes_it_away(
    redis_client: redis.Redis, server_clock: ServerClock, how: str
) -> None:
    held = timed(redis_client, "s", 9.5).take(0)
    value = str(value_of(redis_client))
    let_go(redis_client, held, how)
    assert redis_client.setnx("lock:a", value)

    for args in ((held.token, ""), (held.token, "repeat"), (held.token, "doubt")):
        send(redis_client, "s", "release", *args)
        assert value_of(redis_client) == value
    assert send(redis_client, "s", "renew", held.token, "60000")[0] == b"LOST"
    # Our lease would be over, and the second that the other wrote has not come.
    server_clock.set(T + 9_700_000)
    with pytest.raises(LockBusy):
        timed(redis_client, "s").take(0)
    assert value_of(redis_client) == value


@pytest.mark.parametrize("what", ["check", "reacquire", "extend", "release"])
def test_who_was_forced_out_has_lost_it(redis_client: redis.Redis, what: str) -> None:
    held = timed(redis_client, "s").take(0)
    value = str(value_of(redis_client))
    let_go(redis_client, held, "force")
    redis_client.set("lock:a", value)

    with pytest.raises(LockLost, match="by joe"):
        held.extend(5) if what == "extend" else getattr(held, what)()
    assert value_of(redis_client) == value


@HOW
def test_a_fence_is_remembered_though_the_end_is_not(
    redis_client: redis.Redis, server_clock: ServerClock, how: str
) -> None:
    held = timed(redis_client, "s").take(0)
    let_go(redis_client, held, how)
    server_clock.set(T - 30_000_000)

    assert timed(redis_client, "s").take(0).fence == held.fence + 1
