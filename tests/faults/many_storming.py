"""A caller that takes some of a few locks together, again and again, in any order.

Run as ``python -m tests.faults.many_storming URL ROUNDS SEED``; it prints what became of it.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from typing import Any

import redis

from django_setnx_lock import LockBusy
from django_setnx_lock.core import MultiLock

KEYS = "abcde"


def storm(client: Any, rounds: int, seed: int, limit: float) -> Counter[str]:
    """Count ``held``, ``busy`` (in vain for ``limit`` seconds), and ``together``: two in one."""
    chance = random.Random(seed)  # noqa: S311 - to be repeatable, not secret
    counted: Counter[str] = Counter()
    for _ in range(rounds):
        keys = chance.sample(KEYS, chance.choice([2, 2, 3, 4]))
        lock = MultiLock(client, [f"lock:{key}" for key in keys], blocking_timeout=limit)
        try:
            with lock as held:
                marks = [f"in:{key}" for key in keys]
                alone = [client.set(mark, seed, nx=True) for mark in marks]
                counted["held"] += 1
                counted["together"] += not all(alone)
                client.delete(*marks)
                held.check()
        except LockBusy:
            counted["busy"] += 1
    return counted


def main() -> None:
    url, rounds, seed = sys.argv[1:]
    client = redis.Redis.from_url(url)
    counted = storm(client, int(rounds), int(seed), 30)
    sys.stdout.write(json.dumps(counted))


if __name__ == "__main__":
    main()
