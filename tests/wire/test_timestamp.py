"""Locks whose value is the time at which they end: at what moment, for us and for older clients.

Of the older clients, one compares whole seconds, ``expires > now`` being held; the other whole
milliseconds, where ``value < now`` is over.
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


class Still:
    """A server whose clock, as the scripts see it, stands still but for what a test sets."""

    def __init__(self, client: redis.Redis) -> None:
        self.client = client

    def set(self, micros: int) -> None:
        self.client.set("test:seconds", micros // 1_000_000)
        self.client.set("test:micros", micros % 1_000_000)

    @property
    def value(self) -> str | None:
        return value_of(self.client)

    def send(self, unit: str, name: str, *args: str) -> Any:
        script = kinds.script_of(name, protocol=f"timestamp-{unit}")
        return self.client.eval(script.source, 3, *keys(), *args)

    def ask(self, unit: str, who: str = "us") -> Any:
        """Ask for the lock once; return the reply: a number, the fence, if it is granted."""
        return self.send(unit, "acquire", f"time:{who}", str(LEASE // 1000), RECORD, "0")

    def grants(self, unit: str) -> bool:
        return isinstance(self.ask(unit, "another"), int)

    def let_go(self, held: LockHandle, how: str) -> None:
        if how == "release":
            held.release()
        elif how == "cancel":
            self.send("s", "release", held.token, "cancel")
        else:
            inspector = Inspector(self.client, PREFIX)
            seen = inspector.get("lock:a").fingerprint
            assert inspector.force_release("lock:a", seen, by="joe") is Outcome.RELEASED


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis) -> Iterator[Still]:
    def forget() -> None:
        kinds.script_of.cache_clear()
        kinds.scripts_of.cache_clear()

    def read(name: str, real: Callable[[str], str] = requests.text_of) -> str:
        return real(name).replace("redis.call('TIME')", CLOCK)

    monkeypatch.setattr(requests, "text_of", read)
    forget()
    server = Still(redis_client)
    server.set(T)
    yield server
    forget()


def is_over_for_others(value: str, unit: str, micros: int) -> bool:
    if unit == "s":
        return not int(value) > micros // 1_000_000
    return int(value) < micros // 1_000


# When it ends


@EACH_UNIT
@pytest.mark.parametrize("moment", [0, 1, 999, 1_000, 1_001, 499_999, 999_000, 999_999])
def test_others_find_our_lock_held_for_the_whole_of_its_lease(
    still: Still, unit: str, moment: int
) -> None:
    still.set(T + moment)
    still.ask(unit)
    value = still.value or ""

    assert not is_over_for_others(value, unit, T + moment + LEASE - 1)
    assert is_over_for_others(value, unit, T + moment + LEASE + 2 * UNITS[unit])


@EACH_UNIT
@pytest.mark.parametrize("fraction", ["", ".25"])
def test_the_time_of_another_is_over_when_a_later_unit_has_begun(
    still: Still, unit: str, fraction: str
) -> None:
    still.client.set("lock:a", f"{T // UNITS[unit]}{fraction}")
    still.set(T + UNITS[unit] - 1)

    assert still.ask(unit)[:3] == [b"BUSY", 1, None]
    still.set(T + UNITS[unit])
    assert still.grants(unit)


@EACH_UNIT
def test_among_ourselves_it_is_over_at_the_end_of_its_lease(still: Still, unit: str) -> None:
    still.set(T + 500_000)
    still.ask(unit)

    still.set(T + 500_000 + LEASE - 1_000)
    assert not still.grants(unit)
    still.set(T + 500_000 + LEASE)
    assert still.grants(unit)


@pytest.mark.parametrize("expire", [True, False])
def test_a_value_that_is_over_is_nobodys(still: Still, expire: bool) -> None:
    one = timed(still.client, expire=expire)
    held = one.take(0)
    was_held = one.locked()
    still.set(T + LEASE)

    assert (was_held, one.locked()) == (True, False)
    value = still.value
    for use in (held.check, held.release):
        with pytest.raises(LockLost):
            use()
    assert still.value == value is not None


@EACH_UNIT
def test_redis_removes_a_value_a_second_after_it_is_over(still: Still, unit: str) -> None:
    still.set(T + 300_000)
    still.ask(unit)

    over = int(still.value or 0) * UNITS[unit] - (T + 300_000)
    assert over // 1000 < still.client.pttl("lock:a") <= over // 1000 + 1000


def test_a_value_stays_where_that_is_asked_for(still: Still) -> None:
    with timed(still.client, expire=False) as held:
        taken = still.client.pttl("lock:a")
        held.extend(5)

        assert (taken, still.client.pttl("lock:a")) == (-1, -1)


@EACH_UNIT
def test_an_extension_writes_a_later_time(
    still: Still, monkeypatch: pytest.MonkeyPatch, unit: str
) -> None:
    monkeypatch.setattr(seams.clock, "now", lambda: 1000.0)
    with timed(still.client, unit) as held:
        held.extend(5)

        assert still.value == str((T + LEASE + 5_000_000) // UNITS[unit])


@EACH_UNIT
def test_a_fence_grows_although_the_clock_steps_back(still: Still, unit: str) -> None:
    # A time that was over says nothing about fences.
    still.client.set("lock:a", T // UNITS[unit] - 5)
    with timed(still.client, unit) as first:
        pass
    still.set(T - 30_000_000)

    with timed(still.client, unit) as second:
        assert second.fence == first.fence + 1 > T


# What is no time


NO_TIMES = {
    "ms": ["hello", "", "1", "-1900000000000", "0x1bf08eb000", "1900000000"],
    "s": ["1900000000000", "c0ffee00c0ffee00c0ffee00c0ffee00", '"1900000000"'],
}


@pytest.mark.parametrize(
    ("unit", "value"), [(unit, value) for unit, values in NO_TIMES.items() for value in values]
)
def test_what_is_no_time_in_its_unit_is_refused_and_left_alone(
    still: Still, unit: str, value: str
) -> None:
    still.client.set("lock:a", value)

    for use in (timed(still.client, unit).take, timed(still.client, unit).locked):
        with pytest.raises(LockUnavailable, match="no timestamp") as caught:
            use()
        assert caught.value.cause == "wrongtype"
        assert len(value) < 5 or value not in str(caught.value)
        is_other_unit = value.isdecimal() and len(value) > 5
        assert ("and the unit of this lock is" in str(caught.value)) is is_other_unit
    assert still.value == value
    assert not still.client.exists("{lock:a}:meta")


# Another program writes the very time that was ours, once ours was let go


HOW = pytest.mark.parametrize("how", ["release", "cancel", "force"])


@HOW
def test_the_other_has_it_and_nothing_that_comes_late_takes_it_away(still: Still, how: str) -> None:
    held = timed(still.client, "s", 9.5).take(0)
    value = str(still.value)
    still.let_go(held, how)
    assert still.client.setnx("lock:a", value)

    for args in ((held.token, ""), (held.token, "repeat"), (held.token, "doubt")):
        still.send("s", "release", *args)
        assert still.value == value
    assert still.send("s", "renew", held.token, "60000")[0] == b"LOST"
    # Our lease would be over, and the second that the other wrote has not come.
    still.set(T + 9_700_000)
    with pytest.raises(LockBusy):
        timed(still.client, "s").take(0)
    assert still.value == value


@pytest.mark.parametrize("what", ["check", "reacquire", "extend", "release"])
def test_who_was_forced_out_has_lost_it(still: Still, what: str) -> None:
    held = timed(still.client, "s").take(0)
    value = str(still.value)
    still.let_go(held, "force")
    still.client.set("lock:a", value)

    with pytest.raises(LockLost, match="by joe"):
        held.extend(5) if what == "extend" else getattr(held, what)()
    assert still.value == value


@HOW
def test_a_fence_is_remembered_though_the_end_is_not(still: Still, how: str) -> None:
    held = timed(still.client, "s").take(0)
    still.let_go(held, how)
    still.set(T - 30_000_000)

    assert timed(still.client, "s").take(0).fence == held.fence + 1
