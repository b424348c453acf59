"""Callers that wait and are cut off from the server, at random.

Tasks of an event loop, which are cancelled, too, and threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from django_setnx_lock import LockBusy, LockLost, LockUnavailable
from tests.processes import figure, run
from tests.support.locks import command, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_setnx_lock.core import RedisLock
    from tests.servers import RealServer

pytestmark = [pytest.mark.storm, pytest.mark.timeout(120)]
SECONDS, CALLERS, KEYS = 20.0, 60, "abcde"


class Storm:
    """Takes turns by ``kind``: in tasks or threads. The server hangs up on all now and then."""

    def __init__(self, server: RealServer, kind: str) -> None:
        self.random = random.Random(1)  # noqa: S311 - to be repeatable, not secret
        # Who is cut off at every try cannot know whether it has the lock, which is then nobody's
        # until its lease ends. On a machine that stands still, two cuts can meet one call.
        self.client = server.client(
            retry=Retry(NoBackoff(), 10), retry_on_error=[RedisConnectionError]
        )
        self.admin = server.client()
        self.changing = threading.Lock()
        self.inside: Counter[str] = Counter()
        self.overlaps = self.turns = self.refused = 0
        self.longest = 0.0
        self.ends = time.monotonic() + SECONDS
        if kind == "tasks":
            run(self.in_tasks(), 100)
        else:
            self.in_threads()

    def lock(self) -> RedisLock:
        # Who is not woken would sleep for as long as the lease of the one before.
        return listed(self.client, self.random.choice(KEYS), timeout=60, renew=False)

    @contextlib.contextmanager
    def counted(self, key: str, began: float) -> Iterator[float]:
        """Count a turn, and who else is in meanwhile. Gives how long it is to last."""
        with self.changing:
            self.longest = max(self.longest, time.monotonic() - began)
            self.inside[key] += 1
            self.overlaps += self.inside[key] > 1
        try:
            yield self.random.uniform(0, 0.004)
        finally:
            with self.changing:
                self.inside[key] -= 1
        self.turns += 1

    def until_cut(self) -> float:
        # The last time when nobody begins anew.
        return min(self.random.uniform(0.5, 1.5), max(self.ends - time.monotonic(), 0.0))

    def cut(self) -> None:
        command(self.admin, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def in_threads(self) -> None:
        with ThreadPoolExecutor(CALLERS) as pool:
            workers = [pool.submit(self.work_in_thread) for _ in range(CALLERS)]
            while time.monotonic() < self.ends:
                time.sleep(self.until_cut())
                self.cut()
            for worker in workers:
                worker.result(60)

    def work_in_thread(self) -> None:
        while (began := time.monotonic()) < self.ends:
            lock = self.lock()
            # Some wait for a short time only.
            patience = self.random.uniform(0, 0.2) if self.random.random() < 0.1 else 60
            try:
                with lock.take(patience), self.counted(lock.key, began) as seconds:
                    time.sleep(seconds)
            except (LockUnavailable, LockBusy, LockLost):
                self.refused += 1

    async def in_tasks(self) -> None:
        await asyncio.gather(self.cut_tasks(), *[self.work() for _ in range(CALLERS)])

    async def cut_tasks(self) -> None:
        while time.monotonic() < self.ends:
            await asyncio.sleep(self.until_cut())
            self.cut()

    async def work(self) -> None:
        while time.monotonic() < self.ends:
            turn = asyncio.create_task(self.turn_of_task())
            if self.random.random() < 0.1:
                await asyncio.wait({turn}, timeout=self.random.uniform(0, 0.2))
                turn.cancel()
            try:
                await turn
            except (LockUnavailable, LockBusy, LockLost):
                self.refused += 1
            except asyncio.CancelledError:
                pass

    async def turn_of_task(self) -> None:
        began, lock = time.monotonic(), self.lock()
        async with lock:
            with self.counted(lock.key, began) as seconds:
                await asyncio.sleep(seconds)


def story(server: RealServer, kind: str) -> Storm:
    storm = Storm(server, kind)
    storm.client.close()
    figure(
        f"{kind}: {storm.turns} turns, {storm.overlaps} overlaps, {storm.refused} refused, "
        f"longest wait {storm.longest:.2f} s"
    )
    return storm


@pytest.mark.parametrize("kind", ["tasks", "threads"])
def test_nobody_is_in_together_and_nobody_is_forgotten(real_server: RealServer, kind: str) -> None:
    storm = story(real_server, kind)

    assert storm.turns > 200
    assert storm.overlaps == 0
    assert storm.longest < 10
    assert not any(storm.admin.exists(f"lock:{key}") for key in KEYS)
