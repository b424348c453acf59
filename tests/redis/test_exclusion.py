"""Processes that add to one counter: what the lock is for."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.processes import eventually

if TYPE_CHECKING:
    from tests.servers import RealServer

pytestmark = pytest.mark.unmeasured
REAL = pytest.mark.parametrize("server", ["redis", "valkey"], indirect=True)
PROCESSES, TIMES = 3, 200


def count(server: RealServer, how: str) -> int:
    """Let the processes count, all at once, and return what they counted to."""
    client = server.client()
    environ = {
        **os.environ,
        "TEST_SERVER_URL": server.url,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
    }
    command = [sys.executable, "-m", "tests.redis.counting", str(TIMES), how]
    running = [subprocess.Popen(command, env=environ) for _ in range(PROCESSES)]
    try:
        eventually(lambda: int(client.get("ready") or 0) == PROCESSES, seconds=30)
        client.lpush("gate", 1)
        codes = [process.wait(timeout=50) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert codes == [0] * PROCESSES
    return int(client.get("counter") or 0)


@REAL
def test_under_the_lock_every_addition_counts(server: RealServer) -> None:
    assert count(server, "lock") == PROCESSES * TIMES
    assert not server.client().exists("lock:counter")


def test_without_the_lock_additions_are_lost(real_server: RealServer) -> None:
    assert 0 < count(real_server, "free") < PROCESSES * TIMES
