"""A program that adds to a shared counter by reading and writing it, which takes a lock.

``python -m tests.redis.counting TIMES lock|free``: the server is the one of TEST_SERVER_URL.
"""

from __future__ import annotations

import contextlib
import sys

import django


def main(times: int, *, locked: bool) -> None:
    django.setup()
    from django_setnx_lock import lock
    from django_setnx_lock.connection import get_client

    client = get_client()
    counter_lock = lock("counter", blocking_timeout=60)
    client.incr("ready")
    # Starts with the others: the test opens the gate for good once all are here.
    # In short sleeps, as redis-py 8 answers for no longer than five seconds.
    while not client.blpop("gate", timeout=1):
        pass
    client.lpush("gate", 1)
    for _ in range(times):
        with counter_lock if locked else contextlib.nullcontext():
            seen = int(client.get("counter") or 0)
            client.set("counter", seen + 1)


if __name__ == "__main__":
    main(int(sys.argv[1]), locked=sys.argv[2] == "lock")
