"""A client that takes a lock, adds one to a counter and lets go, until its time is over.

Run as ``python -m tests.legacy.contending URL SECONDS KIND UNIT``. KIND is ``legacy``, ``ours``, or
``careless`` for the control, which takes no lock. Each stay is noted in the Redis list ``stays``:
whose it was, when it began and ended by the server's clock.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import redis

from django_setnx_lock.core import RedisLock
from tests.faults.storming import server_now
from tests.legacy.clients import KINDS, SUFFIX

NAME = "job"


def enter(kind: str, unit: str, client: Any) -> Any:
    """Take the lock; what gives it back, or None when it was not had."""
    if kind == "careless":
        return lambda: None
    one: Any
    if kind == "legacy":
        one = KINDS[unit](client, NAME)
        return one.release if one.acquire() else None
    one = RedisLock(client, NAME + SUFFIX, 10, blocking_timeout=10, protocol=f"timestamp-{unit}")
    return one.release if one.acquire() else None


def contend(client: Any, seconds: float, kind: str, unit: str) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        leave = enter(kind, unit, client)
        if leave is None:
            continue
        began = server_now(client)
        counter = int(client.get("counter") or 0)
        # Long enough for others to come in between.
        time.sleep(0.001)
        client.set("counter", counter + 1)
        stay = {"who": kind, "began": began, "ended": server_now(client)}
        client.rpush("stays", json.dumps(stay))
        leave()
        time.sleep(0.002)


def main() -> None:
    url, seconds, kind, unit = sys.argv[1:]
    client = redis.Redis.from_url(url)
    contend(client, float(seconds), kind, unit)


if __name__ == "__main__":
    main()
