"""What an option may be: one table, for every kind."""

from __future__ import annotations

from typing import Any

import pytest

from django_setnx_lock import LockError, LockUnsupported
from django_setnx_lock.core import MultiLock, RedisLock, Redlock, RWLock
from tests.support.kinds import ALL, EXCLUSIVE, ONE_SERVER, READERS, REDLOCK, SEVERAL
from tests.support.rows import on
from tests.support.world import World


async def asynchronous(held: object) -> None:
    """Be awaited by nobody."""


NO_SECONDS = [0, -1, -0.5, float("nan"), float("inf"), True, False, "5", [], 10**400, 1e-9]
NO_LEASE = (ValueError, NO_SECONDS)
NO_WAIT = (ValueError, [-1, float("nan"), float("inf"), True, "5", []])
NO_BOOL = (TypeError, [1, 0, "yes", None])
# Each option, the error, and the values that it is not.
REFUSED: dict[str, tuple[type[Exception], list[Any]]] = {
    "timeout": NO_LEASE,
    "max_hold": NO_LEASE,
    "min_hold": NO_LEASE,
    "wait_warning": NO_LEASE,
    "deadlock_timeout": NO_LEASE,
    "blocking_timeout": NO_WAIT,
    "sleep": NO_WAIT,
    "renew": NO_BOOL,
    "reentrant": NO_BOOL,
    "shared": NO_BOOL,
    "limit": (ValueError, [0, -1, 1.5, True, "2", 1_000_001]),
    "replicas": (ValueError, [-1, True, 1.5, "2"]),
    "replica_timeout": (ValueError, [0, -1, float("nan"), float("inf"), "5"]),
    "on_lost": (TypeError, [1, "call me", asynchronous]),
    "protocol": (ValueError, ["redis", "timestamp", "", None, 1]),
    "expire": NO_BOOL,
}
ACCEPTED: dict[str, list[Any]] = {
    "timeout": [None, 1, 1.5, 86_400.0, 1e9],
    "blocking_timeout": [None, 0, 0.5, 10],
    "max_hold": [None, 0.5, 60],
    "renew": [True, False],
    "reentrant": [True, False],
    "replicas": [None, 0],
    "wait_warning": [None, 0.5],
    "sleep": [0.1],
    "blocking": [True, False],
}
# Two that do not go together: LockUnsupported says so when the lock is made.
TOGETHER: list[dict[str, Any]] = [
    {"shared": True, "min_hold": 1},
    {"limit": 2, "min_hold": 1},
    {"limit": 2, "reentrant": True},
    {"shared": True, "protocol": "timestamp-s"},
    {"limit": 2, "protocol": "timestamp-ms"},
    {"shared": True, "protocol": "hosted"},
    {"limit": 2, "protocol": "hosted"},
    {"min_hold": 1, "protocol": "timestamp-ms"},
    {"min_hold": 1, "protocol": "hosted"},
]
NAMES: list[tuple[Any, type[Exception]]] = [("", ValueError), (7, TypeError), (None, TypeError)]


@on([EXCLUSIVE, SEVERAL], drivers=["blocking"])
@pytest.mark.parametrize("option", REFUSED)
async def test_an_option_that_is_wrong_is_told_when_the_lock_is_made(a: World, option: str) -> None:
    error, values = REFUSED[option]
    for value in values:
        with pytest.raises(error) as refused:
            a.lock(**{option: value})
        # A refusal of the value, and not of the kind.
        assert not isinstance(refused.value, LockError), value
        assert option.split("_")[-1] in str(refused.value), value


@on([EXCLUSIVE, READERS, SEVERAL], drivers=["blocking"])
@pytest.mark.parametrize("option", ACCEPTED)
async def test_an_option_that_is_right_is_taken(a: World, option: str) -> None:
    for value in ACCEPTED[option]:
        held = await a.lock(**{option: value}).take(0)
        await held.release()


@on([EXCLUSIVE], drivers=["blocking"])
@pytest.mark.parametrize("options", TOGETHER, ids=str)
async def test_two_options_that_do_not_go_together_are_refused(
    a: World, options: dict[str, Any]
) -> None:
    with pytest.raises(LockUnsupported):
        a.lock(**options)


@on([REDLOCK], drivers=["blocking"])
@pytest.mark.parametrize(
    "options",
    [
        {"min_hold": 1},
        {"replicas": 1},
        {"protocol": "timestamp-ms"},
        {"protocol": "hosted"},
        {"shared": True},
        {"limit": 2},
    ],
    ids=str,
)
async def test_what_needs_one_server_is_refused_on_several(
    a: World, options: dict[str, Any]
) -> None:
    with pytest.raises(LockUnsupported):
        a.lock(**options)


@on([EXCLUSIVE], drivers=["blocking"])
async def test_an_option_that_does_not_exist_is_no_refusal_of_the_kind(a: World) -> None:
    with pytest.raises(TypeError, match="unheard_of"):
        a.lock(unheard_of=1)


@on([EXCLUSIVE], drivers=["blocking"])
async def test_a_name_is_a_text(a: World) -> None:
    for name, error in NAMES:
        with pytest.raises(error):
            RedisLock(a.client, name)
    with pytest.raises(ValueError, match="no key"):
        MultiLock(a.client, [])
    with pytest.raises(TypeError, match="list of names"):
        MultiLock(a.client, "lock:a")


@on([EXCLUSIVE], drivers=["blocking"])
async def test_two_names_have_two_keys(a: World) -> None:
    with pytest.raises(ValueError, match="give each name a key of its own"):
        MultiLock(a.client, ["lock:a", "lock:b"], keys=["k", "k"])
    # One that is given twice is taken once.
    with MultiLock(a.client, ["lock:a", "lock:a"], keys=["k", "k"]) as held:
        assert list(held) == ["k"]


@on([EXCLUSIVE])
async def test_a_waiting_time_that_is_none_is_told_at_the_call(a: World) -> None:
    for seconds in NO_WAIT[1]:
        with pytest.raises(ValueError, match="blocking_timeout"):
            await a.lock().take(seconds)
        with pytest.raises(ValueError, match="blocking_timeout"):
            await a.lock().acquire(blocking_timeout=seconds)
    assert a.is_free()


@on([EXCLUSIVE])
async def test_a_token_is_a_text_that_is_not_empty(a: World) -> None:
    for token, error in [("", ValueError), (b"\xff", ValueError), (7, TypeError)]:
        with pytest.raises(error):
            await a.lock().acquire(token=token)
    assert a.is_free()


@on([REDLOCK], drivers=["blocking"])
async def test_several_masters_are_three_at_least_and_none_twice(a: World) -> None:
    for clients in (a.clients[:2], a.clients[:1] * 3):
        with pytest.raises(ValueError, match=r"master|server"):
            Redlock(clients, "lock:a")
    with pytest.raises(ValueError, match="master_timeout"):
        Redlock(a.clients, "lock:a", timeout=0.2, master_timeout=0.1)


@on(ALL)
async def test_the_lease_is_30_seconds_unless_it_is_said(a: World) -> None:
    lock = a.lock(timeout=None)
    assert lock.timeout == 30
    async with lock.block() as held:
        assert 25 < held.remaining() <= 30


@on([READERS], drivers=["blocking"])
async def test_a_pair_of_reader_and_writer_has_the_same_options(a: World) -> None:
    pair = RWLock(a.client, "lock:a", timeout=7)
    assert pair.read().timeout == pair.write().timeout == 7
    with pair.read(), pair.read(), pytest.raises(LockError):
        pair.write().take(0)
    with pytest.raises(ValueError, match="timeout"):
        RWLock(a.client, "lock:a", timeout=0)


@on(ONE_SERVER)
async def test_a_name_and_a_note_may_be_any_text(a: World) -> None:
    for text in ("a b\r\nc", "é", "\0", "x" * 1023, "x" * 1024, "x" * 5000):
        async with a.lock(f"lock:{text}", note=text).block() as held:
            await held.check()
            assert a.direct.exists(f"lock:{text}"), text
        assert not a.direct.exists(f"lock:{text}"), text
