"""A program that adds to a counter by reading and writing it, which takes a lock; then without one.

``python -m tests.redis.counting TIMES``: the server is the one of TEST_SERVER_URL.
"""

from __future__ import annotations

import contextlib
import sys

import django


def main(times: int) -> None:
    django.setup()
    from django_redis import get_redis_connection

    from django_setnx_lock import lock

    client = get_redis_connection()
    counter_lock = lock("counter", blocking_timeout=60)
    for how in ("locked", "free"):
        client.incr(f"ready {how}")
        # Starts with the others: the test opens the gate for good once all are here.
        # In short sleeps, as redis-py 8 answers for no longer than five seconds.
        while not client.blpop(f"gate {how}", timeout=1):
            pass
        client.lpush(f"gate {how}", 1)
        for _ in range(times):
            with counter_lock if how == "locked" else contextlib.nullcontext():
                seen = int(client.get(how) or 0)
                client.set(how, seen + 1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
