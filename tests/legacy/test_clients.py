"""One legacy client and one lock of ours, step by step."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockLost
from django_setnx_lock.core import RedisLock
from tests.legacy.clients import KINDS, SUFFIX, LegacyClient
from tests.processes import eventually
from tests.support.locks import server_ms
from tests.support.renewals import end_of

if TYPE_CHECKING:
    from tests.servers import RealServer

REAL = pytest.mark.real
BOTH_UNITS = pytest.mark.parametrize("unit", ["s", "ms"])
PER_UNIT = {"s": 1000, "ms": 1}
# How late one may be that asks every 0.1 s, on a machine that is busy, in ms.
LATE = 2_000


def legacy(server: RealServer, unit: str, **options: Any) -> LegacyClient:
    one: LegacyClient = KINDS[unit](server.client(), "job", **options)
    return one


def impatient(server: RealServer, unit: str) -> LegacyClient:
    return legacy(server, unit, **({"tries": 1, "pause": 0} if unit == "s" else {"deadline": 0.01}))


def ours(server: RealServer, unit: str, timeout: float = 10, **options: Any) -> RedisLock:
    name = f"job{SUFFIX}"
    return RedisLock(server.client(), name, timeout, protocol=f"timestamp-{unit}", **options)


@REAL
@BOTH_UNITS
def test_ours_is_kept_out_by_theirs(server: RealServer, unit: str) -> None:
    theirs = legacy(server, unit)
    assert theirs.acquire()

    with pytest.raises(LockBusy) as caught:
        ours(server, unit).take(0)
    assert caught.value.holder is None
    theirs.release()
    assert ours(server, unit).acquire(blocking=False)


@REAL
@BOTH_UNITS
def test_theirs_is_kept_out_by_ours(server: RealServer, unit: str) -> None:
    held = ours(server, unit).take()

    assert not impatient(server, unit).acquire()
    assert held.owned()
    held.release()
    assert impatient(server, unit).acquire()


def test_theirs_is_kept_out_for_as_long_as_ours_is_renewed(real_server: RealServer) -> None:
    with ours(real_server, "ms", 3, renew=True) as held:
        first, taken = end_of(held), []
        while end_of(held) < first + 1.5:
            taken.append(impatient(real_server, "ms").acquire())
            time.sleep(0.005)

        assert not any(taken)
        assert held.owned()


@BOTH_UNITS
def test_ours_takes_what_theirs_left_behind_and_not_before(
    real_server: RealServer, unit: str
) -> None:
    options: dict[str, Any] = {"ttl": 1} if unit == "s" else {"lease_ms": 300}
    dead = legacy(real_server, unit, **options)
    assert dead.acquire()
    # Else the value goes by itself.
    dead.client.persist(dead.key)

    held = ours(real_server, unit, blocking_timeout=5).take()
    taken_at = held.fence // 1000

    over_at = (int(dead.value) + 1) * PER_UNIT[unit]
    assert over_at <= taken_at <= over_at + LATE


@pytest.mark.parametrize(("unit", "expire"), [("s", False), ("ms", True), ("ms", False)])
def test_theirs_takes_what_ours_left_behind_and_not_before(
    real_server: RealServer, unit: str, expire: bool
) -> None:
    held = ours(real_server, unit, 0.3, expire=expire).take()
    end_ms = held.fence // 1000 + 300

    theirs = legacy(real_server, unit, pause=0.02, **({"tries": 1000} if unit == "s" else {}))
    assert theirs.acquire()

    # Whole seconds are rounded up.
    assert end_ms <= server_ms(theirs.client) <= end_ms + 1_000 + LATE
    assert not held.owned()


@BOTH_UNITS
def test_what_theirs_let_go_too_late_is_left_to_ours(real_server: RealServer, unit: str) -> None:
    late = legacy(real_server, unit)
    late.value = str(late.now() - 1)
    late.client.set(late.key, late.value)
    held = ours(real_server, unit, blocking_timeout=3).take()

    late.release()

    assert held.owned()


def test_one_of_theirs_that_comes_too_late_moves_the_time_of_ours_which_hears_of_it(
    real_server: RealServer,
) -> None:
    client = real_server.client()
    over = str(server_ms(client) - 5)
    client.set("job_lock", over)
    # What it has read is over; before it goes on, somebody else is quicker.
    mine = str(server_ms(client) + 60_000)
    lost: list[object] = []
    held = ours(real_server, "ms", 3, renew=True, on_lost=lost.append).take()
    taken = client.getset("job_lock", mine) == over.encode()

    assert not taken
    eventually(lambda: bool(lost))
    with pytest.raises(LockLost):
        held.release()
    assert client.get("job_lock") == mine.encode()
