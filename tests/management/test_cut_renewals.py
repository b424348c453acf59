"""When renewals no longer get through, the command is dead before anybody else can get the lock."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.faults.proxy import Proxy
from tests.management.forking import Forking, lines
from tests.processes import figure, is_running
from tests.servers import RealServer

LEASE = 3
# With a process in the background; every second one ignores what asks it to end.
COMMAND = 'trap "$1" TERM; sleep 60 & echo $2 $$ $! >>"$0"; wait; wait'
THROUGH = """
from django.test import override_settings
from tests.settings import caches
override_settings(CACHES=caches({url!r})).enable()
"""


class Runs:
    """Some commands at once, each under a lock of its own, reached through the proxy."""

    def __init__(self, forking: Forking, proxy: Proxy, log: Path, count: int) -> None:
        log.write_text("")
        self.with_locks = [
            forking.start(
                *("--timeout", str(LEASE), f"run-{number}", "sh", "-c", COMMAND, str(log)),
                "" if number % 2 else "exit",
                f"lock:run-{number}",
                first=THROUGH.format(url=proxy.url),
            )
            for number in range(count)
        ]
        self.names = {
            int(pid): name for name, *pids in map(str.split, lines(log, count)) for pid in pids
        }

    def least_left(self, server: RealServer) -> float:
        """Return what was left of a lease, in seconds, when the last of its processes died."""
        client, alive, least = server.client(), dict(self.names), float(LEASE)
        while alive:
            for pid in [pid for pid in alive if not is_running(pid)]:
                # Below zero when there is none any more.
                least = min(least, float(client.pttl(alive.pop(pid))) / 1000)
            time.sleep(0.001)
        return least


@pytest.mark.parametrize(
    ("batches", "count"),
    [
        pytest.param(1, 3, id="3 commands"),
        pytest.param(10, 5, marks=[pytest.mark.storm, pytest.mark.alone], id="50 commands"),
    ],
)
def test_the_command_is_dead_before_its_lease_ends(
    forking: Forking, real_server: RealServer, tmp_path: Path, batches: int, count: int
) -> None:
    margins = []
    for batch in range(batches):
        real_server.flush()
        with Proxy(real_server.port) as proxy:
            runs = Runs(forking, proxy, tmp_path / "log", count)
            (proxy.hold if batch % 2 else proxy.refuse)()
            margins.append(runs.least_left(real_server))
            assert {with_lock.wait() for with_lock in runs.with_locks} == {76}

    figure(f"all dead before the lease ended; smallest margin {min(margins) * 1000:.0f} ms")
    assert min(margins) > 0
