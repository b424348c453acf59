"""Holders that are stopped past their leases, and write when others have had the lock since."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.db import connections

from tests.contrib.fencing.models import Seat
from tests.contrib.fencing.storming import LEASE, NOTES, late
from tests.processes import figure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RealServer

ROOT = Path(__file__).parents[3]
PROCESSES, SEATS = 8, 4
PATIENCE = 240  # seconds

pytestmark = [
    pytest.mark.storm,
    pytest.mark.timeout(PATIENCE + 60),
    pytest.mark.parametrize("database", ["postgres"], indirect=True),
]


@pytest.fixture
def noted(database: str) -> Iterator[str]:
    """The alias of a database that notes who wrote each seat."""
    connection = connections[database]
    for number in range(SEATS):
        Seat.objects.using(database).create(row=str(number), taken_by="0")
    with connection.cursor() as cursor:
        cursor.execute(NOTES)
    yield database
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE written; DROP FUNCTION note() CASCADE")


def storm(server: RealServer, alias: str, mode: str, pauses: int) -> Counter[str]:
    """How often the writes after a stop were made, refused, and of all the writes were late."""
    given = json.dumps(connections[alias].settings_dict)
    running = {}
    for seed in range(PROCESSES):
        command = [sys.executable, "-m", "tests.contrib.fencing.storming", given, str(seed), mode]
        running[seed] = subprocess.Popen(
            [*command, str(pauses)],
            cwd=ROOT,
            env={**os.environ, "TEST_SERVER_URL": server.url},
            stdout=subprocess.PIPE,
        )
    try:
        let_go_on_after_their_leases(list(running.values()))
        counts: Counter[str] = Counter()
        for process in running.values():
            said, _ = process.communicate(timeout=10)
            assert process.returncode == 0
            counts.update(json.loads(said))
    finally:
        for process in running.values():
            with process:
                process.kill()
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT array_agg(writer ORDER BY id) FROM written GROUP BY seat")
        counts["late"] = sum(late(writers) for (writers,) in cursor.fetchall())
    return counts


def let_go_on_after_their_leases(processes: list[subprocess.Popen[bytes]]) -> None:
    """Return when all have ended. Each that has stopped goes on when its lease is surely over."""
    deadline = time.monotonic() + PATIENCE
    stopped: dict[int, float] = {}
    while left := [one for one in processes if one.poll() is None]:
        now = time.monotonic()
        assert now < deadline
        for process in left:
            # One that has just ended has no state to tell.
            with contextlib.suppress(ChildProcessError):
                if os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG):
                    stopped[process.pid] = now
            if now - stopped.get(process.pid, now) > 2 * LEASE:
                del stopped[process.pid]
                process.send_signal(signal.SIGCONT)
        time.sleep(0.005)


def test_no_stale_write_gets_through(real_server: RealServer, noted: str) -> None:
    counts = storm(real_server, noted, "fenced", 1000)

    figure(f"after {counts['made'] + counts['refused']} stops: {dict(counts)}")
    assert counts["made"] + counts["refused"] >= 1000
    assert counts["refused"] > 100
    assert counts["late"] == 0


def test_without_fences_stale_writes_get_through(real_server: RealServer, noted: str) -> None:
    counts = storm(real_server, noted, "unfenced", 100)

    figure(f"after {counts['made']} stops: {dict(counts)}")
    assert counts["late"] > 0
