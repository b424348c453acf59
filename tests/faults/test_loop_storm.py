"""Tasks of one event loop that wait, are cancelled and are cut off from the server, at random."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry

from django_setnx_lock.core.errors import LockBusy, LockLost, LockUnavailable
from django_setnx_lock.core.locks.listener import Listener
from tests.core.aio.helpers import run
from tests.core.helpers import command, listed

if TYPE_CHECKING:
    from tests.servers import RealServer

pytestmark = [pytest.mark.storm, pytest.mark.timeout(120)]
SECONDS, TASKS, KEYS = 20.0, 60, "abcde"


class Storm:
    """``cuts``: whether the server hangs up on everybody now and then."""

    def __init__(self, server: RealServer, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - to be repeatable, not secret
        self.client = server.client(
            retry=Retry(NoBackoff(), 1), retry_on_error=[RedisConnectionError]
        )
        self.admin = server.client()
        self.inside: Counter[str] = Counter()
        self.overlaps = self.turns = self.refused = 0
        self.longest = 0.0
        self.ends = time.monotonic() + SECONDS

    async def turn(self, key: str) -> None:
        began = time.monotonic()
        # Who is not woken would sleep for as long as the lease of the one before.
        async with listed(self.client, key, timeout=60, renew=False):
            self.longest = max(self.longest, time.monotonic() - began)
            self.inside[key] += 1
            self.overlaps += self.inside[key] > 1
            try:
                await asyncio.sleep(self.random.uniform(0, 0.004))
            finally:
                self.inside[key] -= 1
        self.turns += 1

    async def work(self) -> None:
        while time.monotonic() < self.ends:
            turn = asyncio.create_task(self.turn(self.random.choice(KEYS)))
            if self.random.random() < 0.1:
                await asyncio.wait({turn}, timeout=self.random.uniform(0, 0.2))
                turn.cancel()
            try:
                await turn
            except (LockUnavailable, LockBusy, LockLost):
                self.refused += 1
            except asyncio.CancelledError:
                pass

    async def hang_up(self) -> None:
        while time.monotonic() < self.ends - 2:
            await asyncio.sleep(self.random.uniform(0.5, 1.5))
            command(self.admin, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    async def all(self) -> None:
        await asyncio.gather(self.hang_up(), *[self.work() for _ in range(TASKS)])


def story(server: RealServer) -> Storm:
    storm = Storm(server, 1)
    with contextlib.closing(storm.client):
        run(storm.all(), 100)
    told = f"{storm.turns} turns, {storm.refused} refused, longest wait {storm.longest:.2f} s"
    print(told)  # noqa: T201 - the figures of the run
    return storm


def test_nobody_is_in_together_and_nobody_is_forgotten(real_server: RealServer) -> None:
    storm = story(real_server)

    assert storm.turns > 200
    assert storm.overlaps == 0
    assert storm.longest < 10
    assert not any(storm.admin.exists(f"lock:{key}") for key in KEYS)


def test_without_being_woken_by_a_cut_somebody_is_forgotten(
    real_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By a private name, as nothing else leaves them asleep.
    monkeypatch.setattr(Listener, "_cut_off", lambda *_: None)

    assert story(real_server).longest > 10
