"""Holders that have held a lock for long, or were killed, as Redis shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.cache import caches

from django_setnx_lock import inspector, lock
from django_setnx_lock.core import LockHandle
from tests.support.seams import any_lock

#: What every name in Redis begins with, and where the names are listed.
PREFIX, INDEX = "lock:", "{lock:}:index"


def client_of(alias: str = "default") -> Any:
    """Return the redis-py client of a cache."""
    return caches[alias].client.get_client(write=True)  # type: ignore[attr-defined]  # BaseCache has none


def hold_since(key: str, seconds: int) -> None:
    """Have that lock held for so many seconds already, by this process, which lives."""
    client, name = client_of(), f"{{lock:{key}}}:meta"
    # The fence is the moment it was granted, in microseconds.
    fence, rest = client.get(name).decode().split(" ", 1)
    client.set(name, f"{int(fence) - seconds * 1_000_000} {rest}", px=60_000)
    client.set(f"{{{PREFIX}}}:process:{_process_of(key)}", "1", px=12_000)


def kill_holder(key: str, seconds: int = 60) -> None:
    """Have the lock be held for so many seconds, by a process that was killed at once."""
    hold_since(key, seconds)
    client, name = client_of(), f"{{lock:{key}}}:meta"
    meta = client.get(name).decode()
    client.set(name, meta.replace(_process_of(key), "killed"), keepttl=True)


def revive_holder(key: str) -> None:
    """Have the process that was killed say that it lives."""
    client_of().set(f"{{{PREFIX}}}:process:killed", "1", px=12_000)


def age_sharer(key: str, token: str, seconds: int, *, is_killed: bool = False) -> None:
    """Have that one of several holders hold the lock for so many seconds already."""
    client, name = client_of(), f"{{lock:{key}}}:holders"
    fence, record = client.hget(name, token).decode().split(" ", 1)
    if is_killed:
        record = record.replace(_process_of(key), "killed")
    client.hset(name, token, f"{int(fence) - seconds * 1_000_000} {record}")


def read_by(key: str, *users: str) -> list[LockHandle]:
    """Have that lock held by a reader for each of these users, who are shown in this order."""
    return [
        any_lock(key, shared=True, reentrant=False, timeout=600 + number, user=user).take(0)
        for number, user in enumerate(users)
    ]


def hold_in_each_state() -> None:
    """Have one lock be held, and one each late, of a process that is gone, kept, and of others."""
    client = client_of()
    for key in ("plain", "late", "gone"):
        lock(key, timeout=300).take(0)
        hold_since(key, 600)
    client.pexpire("lock:late", 100_000)
    kill_holder("gone")
    with lock("done", min_hold=125):
        pass
    # A lock of another program is listed when somebody has met it.
    client.set("lock:endless", "their-token")
    client.set("lock:theirs", "their-token", px=175_000)
    client.zadd(INDEX, {"lock:endless": 9e15, "lock:theirs": 9e15})


def hold_many(count: int, key: Callable[[int], str] = "k{:05}".format) -> list[str]:
    """Have so many locks of other programs held and listed, and return their keys."""
    client = client_of()
    now_ms = client.time()[0] * 1000
    keys = [key(number) for number in range(count)]
    with client.pipeline(transaction=False) as pipe:
        for one in keys:
            pipe.set(f"lock:{one}", "somebody", px=600_000)
            pipe.zadd(INDEX, {f"lock:{one}": now_ms + 600_000})
        pipe.execute()
    return keys


def _process_of(key: str) -> str:
    found = inspector().get(f"lock:{key}")
    return next(one.holder.process for one in found.shares or [found] if one.holder)
