"""Somebody's data of a type that no lock has: left as they are at its name, refused beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import redis

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import Inspector, Outcome
from django_setnx_lock.core.protocol import commands, scripts
from django_setnx_lock.core.protocol.commands import (
    READERS,
    CommandSet,
    permits,
)
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.support.locks import INDEX, command, listed
from tests.wire.helpers import ask, send
from tests.wire.queueing import caller

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.servers import RealServer

KEYS = lock_keys("lock:a")
TIMES, HOSTED = commands.PROTOCOLS["timestamp-s"], commands.HOSTED
TYPES: dict[str, tuple[str | int, ...]] = {
    "hash": ("HSET", "42", "paid"),
    "list": ("RPUSH", "w1", "w2"),
    "set": ("SADD", "w1", "w2"),
    "zset": ("ZADD", "1", "w1", "2", "w2"),
    "stream": ("XADD", "*", "w1", "paid"),
}
# At the name of a lock it is a token; beside it, it may be as wrong as the others.
STRING = {"string": ("SET", "paid")}
# Every request there is, as one who waits or has it, or saw it held, may send it.
REQUESTS: dict[str, commands.Request] = {
    "acquire": commands.SETNX.acquire(KEYS, INDEX, "w1", 1000, "{}", 0),
    "acquire and wait": commands.SETNX.acquire(KEYS, INDEX, "w1", 1000, "{}", 1000),
    "acquire all": commands.acquire_all(
        [commands.SETNX.acquire(KEYS, INDEX, "w1", 1000, "{}", slice_ms) for slice_ms in (0, 0)]
    ),
    "release": commands.SETNX.release(KEYS, INDEX, "w1"),
    "release kept": commands.release_kept(KEYS, INDEX, "w1", 1000, 1),
    "leave": commands.SETNX.cancel(KEYS, INDEX, "w1"),
    "look": commands.SETNX.check_handoff(KEYS, "w1"),
    "look for the last time": commands.SETNX.check_handoff(KEYS, "w1", is_last=True),
    "check": commands.SETNX.check(KEYS, "w1"),
    "renew alone": commands.renew_alone(KEYS, "w1", 1000),
    "swap": commands.replace_token(KEYS, "w1", "other", 1, "{}"),
    "force": commands.SETNX.force_release(KEYS, INDEX, b"w1", None, "joe", "stuck"),
    "force of nothing": commands.SETNX.force_release(KEYS, INDEX, b"", None, "joe", "stuck"),
    "ask to stop": commands.SETNX.request_stop(KEYS, INDEX, b"w1", "joe", "deploy"),
    "ask several to stop": READERS.request_stop(KEYS, INDEX, b"w1", "joe", "deploy"),
    "deadlock": commands.deadlock(KEYS, "w1", 1000, "{}", [(KEYS.name, "t")]),
    "inspect": commands.SETNX.inspect(KEYS, INDEX, "s"),
    "locked": cast(commands.Request, TIMES.locked(KEYS)),
    "living": commands.living([KEYS.name]),
    "listing": commands.listing(INDEX, 1),
    "inspect each": commands.SETNX.inspect_each([KEYS], INDEX, "s"),
    "inspect each, hosted": commands.HOSTED.inspect_each([KEYS], INDEX),
}
COMMAND_SETS: dict[str, CommandSet] = {
    "shared": READERS,
    "limit": permits(2),
    "time": TIMES,
    "hosted": HOSTED,
}
for name, kind in COMMAND_SETS.items():
    REQUESTS |= {
        f"{name}: acquire": kind.acquire(KEYS, INDEX, "w1", 1000, "{}", 0),
        f"{name}: acquire and wait": kind.acquire(KEYS, INDEX, "w1", 1000, "{}", 1000),
        f"{name}: release": kind.release(KEYS, INDEX, "w1"),
        f"{name}: leave": kind.cancel(KEYS, INDEX, "w1"),
        f"{name}: look": kind.check_handoff(KEYS, "w1"),
        f"{name}: look for the last time": kind.check_handoff(KEYS, "w1", is_last=True),
        f"{name}: check": kind.check(KEYS, "w1"),
        f"{name}: force": kind.force_release(KEYS, INDEX, b"w1", None, "joe", "stuck"),
        f"{name}: force of nothing": kind.force_release(KEYS, INDEX, b"", None, "joe", "stuck"),
    }
for name, renew in {
    "": commands.SETNX.renew,
    "shared: ": READERS.renew,
    "time: ": TIMES.renew,
    "hosted: ": HOSTED.renew,
}.items():
    REQUESTS[f"{name}renew"] = renew(KEYS, INDEX, "w1", 1000)


def queue_up(client: redis.Redis) -> None:
    """Have two wait for the lock, who are alive, and nobody hold it."""
    client.flushall()
    client.zadd(KEYS.waiters, {"w1": 1, "w2": 2})
    client.hset(KEYS.alive, mapping={f"w{rank}": f"{10**15} {rank} {10**15}" for rank in (1, 2)})


def put(client: redis.Redis, name: str, kind: str) -> None:
    """Have somebody's data of a ``kind`` stand at ``name``."""
    redis_command, *words = {**TYPES, **STRING}[kind]
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


LOCKS: dict[str, dict[str, Any]] = {
    "setnx": {},
    "hosted": {"protocol": "hosted"},
    "readers": {"shared": True},
    "permits": {"limit": 2},
    "timestamp": {"protocol": "timestamp-ms"},
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
    ask(turn, waits=False)
    redis_client.delete(KEYS.meta)
    redis_client.hset(KEYS.meta, "42", "paid")

    with pytest.raises(LockUnavailable):
        ask(turn, waits=False)

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


def companions(lock: str, token: str) -> dict[str, str]:
    """Return the keys beside a held lock, each with the type that it has in truth."""
    common = {KEYS.meta: "string", KEYS.tombstone(token): "string", INDEX: "zset"}
    queue = {KEYS.waiters: "zset", KEYS.alive: "hash"}
    shares = {KEYS.shares: "zset", KEYS.holders: "hash"}
    return common | {"setnx": queue, "readers": queue | shares, "permits": queue | shares}.get(
        lock, {}
    )


@pytest.mark.parametrize("lock", LOCKS)
def test_beside_a_held_lock_they_hide_no_lock_and_keep_none_from_being_released(
    redis_client: redis.Redis, lock: str
) -> None:
    inspector = Inspector(
        redis_client, "lock:", protocol="hosted" if lock == "hosted" else "timestamp-ms"
    )
    broken = []
    for companion, own in companions(lock, "TOKEN").items():
        for kind in {*TYPES, *STRING} - {own}:
            redis_client.flushall()
            held = listed(redis_client, "a", **LOCKS[lock]).take(0)
            listed(redis_client, "b").take(0)
            name = companion.replace("TOKEN", held.token)
            redis_client.delete(name)
            put(redis_client, name, kind)

            info = inspector.get("lock:a")
            shown = [one.key for one in inspector.get_each(["lock:a", "lock:b"])]
            outcome = inspector.force_release("lock:a", info.fingerprint)

            # Who shares it is in them: of those who cannot be named nobody was seen.
            kept = companion in {KEYS.shares, KEYS.holders}
            expected = Outcome.CHANGED_HANDS if kept else Outcome.RELEASED
            stands = bool(redis_client.exists("lock:a"))
            if (shown, outcome, stands) != (["a", "b"], expected, kept):
                broken.append((companion, kind, shown, outcome))
            held.finish(None, raise_on_release_error=False)
    assert broken == []
