"""A process that takes and leaves one lock, through Sentinels, until its time is over.

Run as ``python -m tests.redis.sentinel_storming FOLDER SECONDS REPLICAS SIGN``. It prints each stay
under the lock, one a line: when it was granted, and when the process let go or learned that the
lock was lost, in seconds on the clock of the machine. It begins, having written ``ready-PID`` in
FOLDER, when there is the file SIGN. Who takes the lock when there is the file
``stay`` in FOLDER removes it, writes ``staying``, and keeps the lock for STAY seconds. Locks are
renewed; without REPLICAS they are not, so that nobody is told of a loss before others have it.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import time
from pathlib import Path

import django

STAY, LEASE = 8.0, 6.0


class Stormer:
    def __init__(self, folder: Path, replicas: int) -> None:
        self.folder = folder
        self.replicas = replicas

    def turn(self) -> None:
        """One turn: a stay, or none when somebody else keeps the lock, or Redis cannot say."""
        from django_setnx_lock import LockBusy, LockLost, LockUnavailable, lock

        wait = random.choice([0.0, 1.0, 10.0])  # noqa: S311 - no secret
        one = lock("storm", timeout=LEASE, replicas=self.replicas, renew=bool(self.replicas))
        try:
            held = one.take(wait)
        except (LockBusy, LockUnavailable):
            # Raw errors end the process, and so fail the test.
            time.sleep(0.02)
            return
        granted = time.monotonic()
        end = granted + (STAY if self.is_to_stay() else random.uniform(0, 0.02))  # noqa: S311 - no secret
        while time.monotonic() < end and not held.lost:
            time.sleep(0.001)
        left = time.monotonic()
        sys.stdout.write(f"{granted!r} {left!r}\n")
        with contextlib.suppress(LockLost, LockUnavailable):
            held.release()

    def is_to_stay(self) -> bool:
        try:
            self.folder.joinpath("stay").unlink()
        except FileNotFoundError:
            return False
        self.folder.joinpath("staying").touch()
        return True


def main() -> None:
    folder, seconds, replicas, sign = sys.argv[1:]
    django.setup()
    stormer = Stormer(Path(folder), int(replicas))
    Path(folder, f"ready-{os.getpid()}").touch()
    while not Path(folder, sign).exists():
        time.sleep(0.01)
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        stormer.turn()


if __name__ == "__main__":
    main()
