"""A process that takes and leaves one lock, whatever becomes of the servers, for its time.

Run as ``python -m tests.faults.outage_storming KIND FOLDER SECONDS SEED URL...``. KIND is
``thread`` or ``tasks`` (of asyncio) on the one server at URL, ``cluster`` or ``cluster-tasks``, of
which URL is a node, or ``redlock`` on all of them. The process writes ``ready-SEED`` in FOLDER, and
begins when there is the file ``go``. It prints each stay under the lock, one a line: when it was
granted, and when the holder last believed in it, in seconds on the clock of the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from django_setnx_lock import LockError
from django_setnx_lock.core import RedisLock, Redlock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from django_setnx_lock.core import LockHandle

NAME, LEASE, TASKS = "lock:storm", 2.0, 3


class Stormer:
    """Takes turns at the lock that ``new`` makes of its options."""

    def __init__(self, new: Callable[..., RedisLock], seconds: float, seed: int) -> None:
        self.new = new
        self.random = random.Random(seed)  # noqa: S311 - to be repeatable, not secret
        self.end = time.monotonic() + seconds

    def lock(self) -> RedisLock:
        wait, renew = self.random.choice([0.0, 1.0, 10.0]), self.random.random() < 0.5
        return self.new(blocking_timeout=wait, renew=renew)

    def steps(self, held: LockHandle) -> Generator[None, None, None]:
        """Stay for a time, in steps, while the holder believes in the lock; print the stay."""
        granted = left = time.monotonic()
        # Some are under the lock when a server fails.
        seconds = LEASE * 0.7 if self.random.random() < 0.01 else self.random.uniform(0, 0.02)
        end = granted + seconds
        while (now := time.monotonic()) < end and held.remaining() > 0:
            left = now
            yield
        if left > granted:
            sys.stdout.write(f"{granted!r} {left!r}\n")

    def in_thread(self) -> None:
        while time.monotonic() < self.end:
            try:
                with self.lock() as held:
                    for _ in self.steps(held):
                        time.sleep(0.001)
            except LockError:
                time.sleep(0.02)

    async def in_task(self) -> None:
        while time.monotonic() < self.end:
            try:
                async with self.lock() as held:
                    # The task of a lock that is lost is cancelled.
                    with contextlib.closing(self.steps(held)) as steps:
                        for _ in steps:
                            await asyncio.sleep(0.001)
            except LockError:
                await asyncio.sleep(0.02)

    async def in_tasks(self) -> None:
        await asyncio.gather(*[self.in_task() for _ in range(TASKS)])


def maker(kind: str, urls: list[str]) -> Callable[..., RedisLock]:
    """Return what makes the lock of its options."""
    limits: Any = {"socket_timeout": 1, "socket_connect_timeout": 1}
    if kind == "redlock":
        masters = [redis.Redis.from_url(url, **limits) for url in urls]
        return lambda **options: Redlock(masters, NAME, LEASE, **options)
    one = redis.RedisCluster if kind.startswith("cluster") else redis.Redis
    client = one.from_url(urls[0], **limits)
    return lambda **options: RedisLock(client, NAME, LEASE, **options)


def main() -> None:
    kind, folder, seconds, seed, *urls = sys.argv[1:]
    new = maker(kind, urls)
    Path(folder, f"ready-{seed}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    stormer = Stormer(new, float(seconds), int(seed))
    if kind.endswith("tasks"):
        asyncio.run(stormer.in_tasks())
    else:
        stormer.in_thread()


if __name__ == "__main__":
    main()
