"""Threads and processes that take some of a few locks together never deadlock."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.many_storming import storm
from tests.processes import figure

if TYPE_CHECKING:
    from tests.servers import RealServer

ROOT = Path(__file__).parents[2]


def threads(server: RealServer, count: int, rounds: int, limit: float) -> Counter[str]:
    with ThreadPoolExecutor(count) as pool:
        results = [
            pool.submit(storm, server.client(), rounds, seed, limit) for seed in range(count)
        ]
        return sum((result.result(50) for result in results), Counter[str]())


def processes(server: RealServer, count: int, rounds: int) -> Counter[str]:
    command = [sys.executable, "-m", "tests.faults.many_storming", server.url, str(rounds)]
    running = [
        subprocess.Popen([*command, str(seed)], cwd=ROOT, stdout=subprocess.PIPE)
        for seed in range(count)
    ]
    said = [process.communicate(timeout=150)[0] for process in running]
    return sum((Counter(json.loads(one)) for one in said), Counter[str]())


def test_threads_that_want_the_same_in_any_order_all_have_their_turn(
    real_server: RealServer,
) -> None:
    assert threads(real_server, 6, 50, 40) == {"held": 300}


@pytest.mark.storm
@pytest.mark.timeout(180)
def test_so_do_processes_for_thousands_of_rounds(real_server: RealServer) -> None:
    counted = processes(real_server, 6, 1000)

    figure(f"{dict(counted)}")
    assert counted == {"held": 6000}
