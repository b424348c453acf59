"""Three legacy clients and three of ours on one name: nobody is let in beside another.

Counted by the server's clock, while nobody stays beyond his lease.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.storming import longest_stall, overlaps
from tests.legacy.contending import contend
from tests.processes import figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.servers import RealServer

ROOT = Path(__file__).parents[2]
EACH = 3


def results(server: RealServer, kinds: Sequence[str]) -> tuple[list[dict[str, Any]], int]:
    """The stays, by their beginning, and how many updates of the counter were lost."""
    client = server.client()
    stays = [json.loads(stay) for stay in client.lrange("stays", 0, -1)]
    stays.sort(key=lambda stay: stay["began"])
    lost = len(stays) - int(client.get("counter") or 0)
    turns = {kind: sum(stay["who"] == kind for stay in stays) for kind in kinds}
    figure(
        f"turns: {turns}, {overlaps(stays)} overlaps, {lost} lost updates, "
        f"longest time without a holder {longest_stall(stays):.2f} s"
    )
    return stays, lost


def in_threads(
    server: RealServer, seconds: float, unit: str, kinds: Sequence[str]
) -> tuple[list[dict[str, Any]], int]:
    with ThreadPoolExecutor(len(kinds) * EACH) as pool:
        running = [
            pool.submit(contend, server.client(), seconds, kind, unit)
            for kind in kinds
            for _ in range(EACH)
        ]
    for one in running:
        one.result()
    return results(server, kinds)


def in_processes(
    server: RealServer, seconds: float, unit: str, kinds: Sequence[str]
) -> tuple[list[dict[str, Any]], int]:
    command = [sys.executable, "-m", "tests.legacy.contending", server.url, str(seconds)]
    running = [
        subprocess.Popen([*command, kind, unit], cwd=ROOT) for kind in kinds for _ in range(EACH)
    ]
    assert [process.wait(timeout=seconds + 60) for process in running] == [0] * len(running)
    return results(server, kinds)


@pytest.mark.real
@pytest.mark.parametrize("unit", ["s", "ms"])
def test_they_exclude_one_another(server: RealServer, unit: str) -> None:
    stays, lost = in_threads(server, 1.5, unit, ["legacy", "ours"])

    assert {stay["who"] for stay in stays} == {"legacy", "ours"}
    assert (overlaps(stays), lost) == (0, 0)


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_beside_those_that_take_no_lock_updates_are_lost(
    real_server: RealServer, unit: str
) -> None:
    stays, lost = in_threads(real_server, 0.5, unit, ["careless", "ours"])

    assert overlaps(stays) > 0
    assert lost > 0


@pytest.mark.storm
@pytest.mark.timeout(180)
@pytest.mark.real
@pytest.mark.parametrize("unit", ["s", "ms"])
def test_they_do_so_for_a_minute(server: RealServer, unit: str) -> None:
    stays, lost = in_processes(server, 60, unit, ["legacy", "ours"])

    assert len(stays) > 500
    assert {stay["who"] for stay in stays} == {"legacy", "ours"}
    assert (overlaps(stays), lost) == (0, 0)
