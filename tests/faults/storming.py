"""A process that takes and leaves one lock at random until its time is over.

Run as ``python -m tests.faults.storming URL SECONDS SEED MODE``. It notes each stay under the
lock in the Redis list ``stays``: when it began and ended, by the server's clock, its fence, and the
core of the process. A stay ends where the process still believes in its lease. MODE is ``locked``,
or ``unlocked`` for the control.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from itertools import pairwise
from typing import Any

import redis

from django_setnx_lock import LockBusy, LockError
from django_setnx_lock.core import LockHandle, RedisLock

NAME = "storm"


def server_now(client: Any) -> int:
    seconds, microseconds = client.time()
    return int(seconds) * 1_000_000 + int(microseconds)


def overlaps(stays: list[dict[str, Any]]) -> int:
    """How many stays began before the one before them had ended."""
    return sum(later["began"] < earlier["ended"] for earlier, later in pairwise(stays))


def longest_stall(stays: list[dict[str, Any]]) -> float:
    """Return the longest time in which nobody was under the lock, in seconds."""
    stalls = [later["began"] - earlier["ended"] for earlier, later in pairwise(stays)]
    return float(max(stalls)) / 1_000_000


class Stormer:
    def __init__(self, url: str, seed: int, mode: str) -> None:
        self.client = redis.Redis.from_url(url)
        self.notes = redis.Redis.from_url(url)
        self.random = random.Random(seed)  # noqa: S311 - to be repeatable, not secret
        self.locked = mode == "locked"

    def turn(self) -> None:
        """One turn: a stay that ends well, too late, or with kill -9 by ourselves."""
        lease = self.random.choice([0.05, 0.2, 1.0])
        if not self.locked:
            self.stay(None, lease)
            return
        try:
            held = RedisLock(self.client, NAME, lease).take(self.random.choice([0, 0.1, 1]))
        except LockBusy:
            return
        self.stay(held, lease)

    def stay(self, held: LockHandle | None, lease: float) -> None:
        began = server_now(self.notes)
        if held is not None and held.lost:
            return
        fate = self.random.random()
        if fate < 0.02:
            os.kill(os.getpid(), signal.SIGKILL)
        if fate < 0.1:
            # Past the lease: this stay must end by the local clock before somebody else's begins.
            self.note(began, held)
            time.sleep(lease)
            self.note(began, held)
        else:
            time.sleep(self.random.uniform(0, 0.004))
            self.note(began, held)
        if held is not None:
            with contextlib.suppress(LockError):
                held.release()

    def note(self, began: int, held: LockHandle | None) -> None:
        ended = server_now(self.notes)
        if held is None or held.remaining() > 0:
            fence = held.fence if held else 0
            stay = {"began": began, "ended": ended, "fence": fence}
            self.notes.rpush("stays", json.dumps(stay))


def main() -> None:
    url, seconds, seed, mode = sys.argv[1:]
    stormer = Stormer(url, int(seed), mode)
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        stormer.turn()


if __name__ == "__main__":
    main()
