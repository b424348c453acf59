"""Somebody's data of a type that no lock has: left as they are at its name, refused beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock.core import own_token, polling, protocol, scripts
from django_setnx_lock.core.dialects import Timestamp
from django_setnx_lock.core.errors import LockLost, LockUnavailable
from django_setnx_lock.core.inspection import Inspector, Outcome
from django_setnx_lock.core.keys import lock_keys
from django_setnx_lock.core.shared import READERS, Shared, downgrade
from tests.core.helpers import INDEX, command, listed, send
from tests.core.queueing import caller, holder, waiters
from tests.faults.controls import take_out

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django_setnx_lock.core.dialects import Dialect
    from tests.servers import RealServer

KEYS = lock_keys("lock:a")
TIMES, POLLS = Timestamp("s"), polling.Polling()
TYPES: dict[str, tuple[str | int, ...]] = {
    "hash": ("HSET", "42", "paid"),
    "list": ("RPUSH", "w1", "w2"),
    "set": ("SADD", "w1", "w2"),
    "zset": ("ZADD", "1", "w1", "2", "w2"),
    "stream": ("XADD", "*", "w1", "paid"),
}
# Every request there is, as one who waits or has it, or saw it held, may send it.
REQUESTS: dict[str, protocol.Request] = {
    "acquire": protocol.acquire(KEYS, INDEX, "w1", 1000, "{}", 0),
    "acquire and wait": protocol.acquire(KEYS, INDEX, "w1", 1000, "{}", 1000),
    "acquire ahead": protocol.ahead(KEYS, INDEX, "w1", 1000, "{}").take,
    "acquire all": protocol.acquire_all(
        [protocol.acquire(KEYS, INDEX, "w1", 1000, "{}", slice_ms) for slice_ms in (0, 0)]
    ),
    "release": protocol.release(KEYS, INDEX, "w1"),
    "release kept": protocol.release_kept(KEYS, INDEX, "w1", 1000, 1),
    "leave": protocol.leave(KEYS, INDEX, "w1"),
    "look": protocol.look(KEYS, "w1"),
    "look for the last time": protocol.look(KEYS, "w1", is_last=True),
    "check": protocol.check(KEYS, "w1"),
    "renew alone": protocol.renew_alone(KEYS, "w1", 1000),
    "swap": own_token.request(KEYS, "w1", "chosen", 1),
    "force": protocol.force(KEYS, INDEX, b"w1", "joe", "stuck"),
    "force of nothing": protocol.force(KEYS, INDEX, b"", "joe", "stuck"),
    "inspect": protocol.inspect(KEYS, INDEX, "s"),
    "locked": TIMES.locked(KEYS),
    "downgrade": downgrade(KEYS, INDEX, "w1"),
    "inspect, polling": polling.inspect(KEYS, INDEX),
}
DIALECTS: dict[str, Dialect] = {
    "shared": READERS,
    "limit": Shared(2),
    "time": TIMES,
    "polling": POLLS,
}
for name, dialect in DIALECTS.items():
    REQUESTS |= {
        f"{name}: acquire": dialect.acquire(KEYS, INDEX, "w1", 1000, "{}", 0),
        f"{name}: acquire and wait": dialect.acquire(KEYS, INDEX, "w1", 1000, "{}", 1000),
        f"{name}: release": dialect.release(KEYS, INDEX, "w1"),
        f"{name}: leave": dialect.leave(KEYS, INDEX, "w1"),
        f"{name}: look": dialect.look(KEYS, "w1"),
        f"{name}: look for the last time": dialect.look(KEYS, "w1", is_last=True),
        f"{name}: check": dialect.check(KEYS, "w1"),
        f"{name}: force": dialect.force(KEYS, INDEX, b"w1", "joe", "stuck"),
        f"{name}: force of nothing": dialect.force(KEYS, INDEX, b"", "joe", "stuck"),
    }
for name, renew in {
    "": protocol.renew,
    "shared: ": READERS.renew,
    "time: ": TIMES.renew,
    "polling: ": POLLS.renew,
}.items():
    REQUESTS |= {
        f"{name}renew, {how}": renew(KEYS, INDEX, "w1", 1000, how)
        for how in ("replace", "add", "least")
    }


def queue_up(client: redis.Redis) -> None:
    """Have two wait for the lock, who are alive, and nobody hold it."""
    client.flushall()
    client.zadd(KEYS.waiters, {"w1": 1, "w2": 2})
    client.hset(KEYS.alive, mapping={f"w{rank}": f"{10**15} {rank} {10**15}" for rank in (1, 2)})


def put(client: redis.Redis, name: str, kind: str) -> None:
    """Have somebody's data of a ``kind`` stand at ``name``."""
    redis_command, *words = TYPES[kind]
    command(client, str(redis_command), name, *words)


def changed_by(client: redis.Redis, kind: str, names: Iterable[str] = REQUESTS) -> list[str]:
    """Return the ``names`` of those requests that change data of a ``kind`` at the lock's name."""
    found = []
    for name in names:
        queue_up(client)
        put(client, KEYS.name, kind)
        before = client.dump(KEYS.name)
        try:
            send(client, REQUESTS[name])
        except redis.ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
        if client.dump(KEYS.name) != before or client.pttl(KEYS.name) != -1:
            found.append(name)
    return found


def test_every_script_is_tried() -> None:
    every = {one.sha for one in vars(scripts).values() if isinstance(one, scripts.Script)}

    assert {request.script.sha for request in REQUESTS.values()} == every


@pytest.mark.parametrize("kind", TYPES)
def test_no_request_changes_what_stands_at_the_name(real_server: RealServer, kind: str) -> None:
    assert changed_by(real_server.client(), kind) == []


def test_taking_it_for_nothing_a_waiter_that_leaves_would_write_over_it(
    real_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = "type(value) == 'table' and '' or value"
    take_out(monkeypatch, "LEAVE", rule, "type(value) ~= 'table' and value")
    monkeypatch.setitem(REQUESTS, "leave", protocol.leave(KEYS, INDEX, "w1"))

    assert changed_by(real_server.client(), "hash", ["leave"]) == ["leave"]


@pytest.mark.usefixtures("nobody_looks")
def test_a_waiter_meets_them_as_an_error_and_leaves_them(redis_client: redis.Redis) -> None:
    held = holder(redis_client)
    first, second = waiters(redis_client, 2)
    redis_client.delete("lock:a")
    redis_client.hset("lock:a", "42", "paid")

    with pytest.raises(LockUnavailable) as caught:
        first.ask(waits=True)
    with pytest.raises(LockLost):
        held.release()
    for turn in (first, second):
        turn.leave()

    assert caught.value.cause == "wrongtype"
    assert redis_client.hgetall("lock:a") == {b"42": b"paid"}


def test_they_are_nothing_that_can_be_force_released(redis_client: redis.Redis) -> None:
    seen = holder(redis_client)
    inspector = Inspector(redis_client, "lock:")
    fingerprint = inspector.get("lock:a").fingerprint
    redis_client.delete("lock:a")
    redis_client.hset("lock:a", "42", "paid")

    assert inspector.force_release("lock:a", fingerprint) is Outcome.FREE
    assert redis_client.hgetall("lock:a") == {b"42": b"paid"}
    assert not seen.owned()


LOCKS: dict[str, dict[str, Any]] = {
    "setnx": {},
    "polling": {"polling": True},
    "readers": {"shared": True},
    "permits": {"limit": 2},
    "timestamp": {"protocol": "timestamp"},
}


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_is_given_where_they_stand_in_the_place_of_its_fence(
    redis_client: redis.Redis, lock: str
) -> None:
    redis_client.hset(KEYS.meta, "42", "paid")

    with pytest.raises(LockUnavailable, match="no lock") as caught:
        listed(redis_client, "a", **LOCKS[lock]).take(0)

    assert caught.value.cause == "wrongtype"
    assert redis_client.hgetall(KEYS.meta) == {b"42": b"paid"}
    assert not redis_client.exists("lock:a")


def test_a_copy_of_a_request_does_not_write_over_them_in_the_place_of_its_fence(
    redis_client: redis.Redis,
) -> None:
    turn = caller(redis_client)
    turn.ask(waits=False)
    redis_client.delete(KEYS.meta)
    redis_client.hset(KEYS.meta, "42", "paid")

    with pytest.raises(LockUnavailable):
        turn.ask(waits=False)

    assert redis_client.hgetall(KEYS.meta) == {b"42": b"paid"}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_held_lock_is_held_on_where_they_stand_in_the_place_of_the_index(
    redis_client: redis.Redis, lock: str
) -> None:
    held = listed(redis_client, "a", **LOCKS[lock]).take(0)
    redis_client.set(INDEX, "somebody's")

    with pytest.raises(LockUnavailable) as caught:
        held.reacquire()

    assert caught.value.cause == "wrongtype"
    held.check()
