"""Processes that take one lock, overstay its lease and are killed while they hold it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.storming import longest_stall, overlaps
from tests.processes import figure

if TYPE_CHECKING:
    from tests.servers import RealServer

ROOT = Path(__file__).parents[2]
PROCESSES = 6

pytestmark = [pytest.mark.storm, pytest.mark.timeout(180)]


def storm(server: RealServer, seconds: float, mode: str) -> list[dict[str, Any]]:
    """The stays of all processes, one entry a fence (or process, unlocked), by their beginning."""
    end = time.monotonic() + seconds
    running: list[subprocess.Popen[bytes]] = []
    seed = 0
    while time.monotonic() < end:
        running = [process for process in running if process.poll() is None]
        while len(running) < PROCESSES:
            # Those that killed themselves are followed by others.
            seed += 1
            left = str(max(end - time.monotonic(), 0.1))
            command = [sys.executable, "-m", "tests.faults.storming", server.url, left]
            running.append(subprocess.Popen([*command, str(seed), mode], cwd=ROOT))
        time.sleep(0.05)
    for process in running:
        process.wait(timeout=30)
    notes = [json.loads(note) for note in server.client().lrange("stays", 0, -1)]
    longest = {(note["began"], note["fence"]): note for note in notes}
    return sorted(longest.values(), key=lambda stay: stay["began"])


def test_nobody_is_under_the_lock_together_with_somebody_else(real_server: RealServer) -> None:
    stays = storm(real_server, 30, "locked")

    figure(
        f"{len(stays)} stays, {overlaps(stays)} overlaps, "
        f"longest time without a holder {longest_stall(stays):.2f} s"
    )
    assert len(stays) > 200
    assert overlaps(stays) == 0
    fences = [stay["fence"] for stay in stays]
    assert fences == sorted(set(fences))


def test_without_the_lock_the_same_storm_overlaps(real_server: RealServer) -> None:
    stays = storm(real_server, 5, "unlocked")

    assert overlaps(stays) > 0
