"""A program whose threads share one lock at random: readers, writers, and those with a permit.

``python -m tests.redis.sharing URL SECONDS SEED``. Each stay is noted in the Redis list ``stays``:
of which kind, when it was asked for, and when it began and ended, by the one clock of the machine;
it ends where the lock is still believed in. A wait that did not end in time is noted in ``late``.
Now and then it kills itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time

import redis

from django_setnx_lock import LockBusy, LockError
from django_setnx_lock.core import LockHandle, RedisLock

NAME = "sharing"
LIMIT = 3
THREADS = 4
KINDS = ("read", "read", "write", "permit", "permit")
# Longer than a lease, a look and what a group's waiters sleep at most.
IN_TIME = 15.0


class Sharer(threading.Thread):
    def __init__(self, url: str, end: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.client = redis.Redis.from_url(url)
        self.notes = redis.Redis.from_url(url)
        self.random = random.Random(seed)  # noqa: S311 - to be repeatable, not secret
        self.end = end

    def run(self) -> None:
        while time.monotonic() < self.end:
            self.turn(self.random.choice(KINDS))

    def turn(self, kind: str) -> None:
        lease = self.random.choice([0.1, 0.3, 1.0])
        lock = RedisLock(
            self.client,
            NAME,
            lease,
            renew=self.random.random() < 0.3,
            reentrant=kind == "read",
            shared=kind == "read",
            limit=LIMIT if kind == "permit" else None,
        )
        patience = self.random.choice([0.0, 0.05, IN_TIME, IN_TIME])
        asked = time.monotonic()
        try:
            held = lock.take(patience)
        except LockBusy:
            if patience == IN_TIME:
                self.notes.rpush("late", f"{kind} after {time.monotonic() - asked:.1f} s")
            return
        self.stay(held, kind, asked)
        with contextlib.suppress(LockError):
            held.release()

    def stay(self, held: LockHandle, kind: str, asked: float) -> None:
        began = time.monotonic()
        if held.remaining() <= 0:
            return
        if self.random.random() < 0.01:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.random.choice([0.0, 0.002, 0.01, 0.05]))
        ended = time.monotonic()
        if held.remaining() > 0:
            stay = {"kind": kind, "asked": asked, "began": began, "ended": ended}
            self.notes.rpush("stays", json.dumps({**stay, "fence": held.fence}))


def main() -> None:
    url, seconds, seed = sys.argv[1:]
    end = time.monotonic() + float(seconds)
    sharers = [Sharer(url, end, int(seed) * THREADS + number) for number in range(THREADS)]
    for sharer in sharers:
        sharer.start()
    for sharer in sharers:
        sharer.join()


if __name__ == "__main__":
    main()
