"""Waiters that are killed where they stand in the queue."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock.core import RedisLock
from tests.processes import Stopwatch, eventually, figure, may_be_late
from tests.support.locks import holder, listeners, queue_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RealServer

REAL = pytest.mark.real
CLAIM = 1.0
# With a longer lease it may have the lock as its first sleep ends, for that: it stops as a holder.
WAITING = """
import sys, redis
from django_setnx_lock.core import RedisLock
RedisLock(redis.Redis(port=int(sys.argv[1])), "lock:a", 2).take()
"""


@contextlib.contextmanager
def silent_waiters(
    server: RealServer, count: int, how: signal.Signals = signal.SIGKILL
) -> Iterator[None]:
    """Have ``count`` processes in the queue that were killed, or else stopped."""
    processes = []
    client = server.client()
    try:
        for number in range(count):
            command = [sys.executable, "-c", WAITING, str(server.port)]
            processes.append(subprocess.Popen(command))
            eventually(lambda: len(queue_of(client)) > number)  # noqa: B023 - asked at once
        eventually(lambda: listeners(server) == count)
        for process in processes:
            process.send_signal(how)
        # The connections of those that are stopped stay as they are.
        left = 0 if how == signal.SIGKILL else count
        eventually(lambda: listeners(server) == left)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait(10)


def time_to_follow(server: RealServer, silent: int, how: signal.Signals) -> float:
    """Return how long after the release the one behind so many silent waiters has the lock."""
    client = server.client()
    held = holder(client, 30)
    with silent_waiters(server, silent, how), ThreadPoolExecutor(1) as pool:
        before = listeners(server)
        result = pool.submit(RedisLock(client, "lock:a").take, 20)
        eventually(lambda: listeners(server) == before + 1)
        with Stopwatch() as watch:
            held.release()
            following = result.result(20)
    following.check()
    following.release()
    return watch.seconds


@may_be_late(1)
@REAL
@pytest.mark.parametrize("killed", [1, pytest.param(3, marks=pytest.mark.matrix)])
def test_who_is_behind_killed_waiters_has_the_lock_within_a_claim_each(
    server: RealServer, killed: int, late: float
) -> None:
    took = time_to_follow(server, killed, signal.SIGKILL)

    figure(f"{killed} killed at the head of the queue: followed after {took * 1000:.0f} ms")
    assert took < killed * CLAIM + late


@may_be_late(1)
@REAL
def test_who_is_behind_a_waiter_that_stands_still_has_the_lock_after_its_claim(
    server: RealServer, late: float
) -> None:
    took = time_to_follow(server, 1, signal.SIGSTOP)

    figure(f"one stopped at the head of the queue: followed after {took * 1000:.0f} ms")
    assert took < 2 * CLAIM + late
