"""Processes that add to one counter: what the lock is for."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from tests.servers import RealServer

# One process of the tests runs those that look at the same count.
pytestmark = [pytest.mark.real, pytest.mark.unmeasured, pytest.mark.xdist_group("counted")]
PROCESSES, TIMES = 3, 100


def are_ready(client: redis.Redis, how: str) -> bool:
    return int(client.get(f"ready {how}") or 0) == PROCESSES


@pytest.fixture(scope="module")
def counted(server_kind: str, running_server: Callable[[str], RealServer]) -> dict[str, int]:
    """Let processes count, all at once: ``locked``, then ``free``. Gives what they counted to."""
    server = running_server(server_kind)
    server.flush()
    client = server.client()
    environ = {
        **os.environ,
        "TEST_SERVER_URL": server.url,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
    }
    command = [sys.executable, "-m", "tests.redis.counting", str(TIMES)]
    running = [subprocess.Popen(command, env=environ) for _ in range(PROCESSES)]
    try:
        for how in ("locked", "free"):
            eventually(partial(are_ready, client, how), seconds=30)
            client.lpush(f"gate {how}", 1)
        codes = [process.wait(timeout=50) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert codes == [0] * PROCESSES
    return {
        "locked": int(client.get("locked") or 0),
        "free": int(client.get("free") or 0),
        "left": int(client.exists("lock:counter")),
    }


def test_under_the_lock_every_addition_counts(counted: dict[str, int]) -> None:
    assert counted["locked"] == PROCESSES * TIMES
    assert not counted["left"]


def test_without_the_lock_additions_are_lost(counted: dict[str, int]) -> None:
    assert 0 < counted["free"] < PROCESSES * TIMES
