"""Processes that read, write and have permits of one lock at once, and are stopped and killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.processes import figure
from tests.redis.sharing import LIMIT

if TYPE_CHECKING:
    from tests.servers import RealServer

ROOT = Path(__file__).parents[2]
PROCESSES = 3
Stay = dict[str, Any]

pytestmark = [pytest.mark.unmeasured, pytest.mark.timeout(180)]


def storm(server: RealServer, seconds: float) -> list[Stay]:
    """Return the stays of all processes."""
    end = time.monotonic() + seconds
    chance = random.Random(0)  # noqa: S311 - to be repeatable, not secret
    running: list[subprocess.Popen[bytes]] = []
    seed = 0
    try:
        while time.monotonic() < end:
            running = [process for process in running if process.poll() is None]
            while len(running) < PROCESSES:
                # Those that killed themselves are followed by others.
                seed += 1
                left = str(max(end - time.monotonic(), 0.1))
                command = [sys.executable, "-m", "tests.redis.sharing", server.url, left]
                running.append(subprocess.Popen([*command, str(seed)], cwd=ROOT))
            time.sleep(0.05)
            if chance.random() < 0.1:
                _stop_for(chance.choice([0.05, 0.2, 0.5]), chance.choice(running))
        for process in running:
            process.wait(timeout=60)
    finally:
        for process in running:
            process.kill()
            process.wait()
    return [json.loads(note) for note in server.client().lrange("stays", 0, -1)]


def _stop_for(seconds: float, process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    process.send_signal(signal.SIGCONT)


def together(stays: list[Stay]) -> list[str]:
    """What was under the lock at once and must not have been, one entry a beginning."""
    moments = [(stay["ended"], 0, stay["kind"]) for stay in stays]
    moments += [(stay["began"], 1, stay["kind"]) for stay in stays]
    inside: Counter[str] = Counter()
    found = []
    for _, is_beginning, kind in sorted(moments):
        inside[kind] += 1 if is_beginning else -1
        if not is_beginning:
            continue
        kinds = +inside
        if len(kinds) > 1 or kinds["write"] > 1 or kinds["permit"] > LIMIT:
            found.append(", ".join(f"{number} {one}" for one, number in kinds.items()))
    return found


def fences_back(stays: list[Stay]) -> int:
    """How many have a fence below that of one who had left when they asked."""
    moments = [(stay["ended"], 0, stay["fence"]) for stay in stays]
    moments += [(stay["asked"], 1, stay["fence"]) for stay in stays]
    last = found = 0
    for _, is_asking, fence in sorted(moments):
        if is_asking:
            found += fence < last
        else:
            last = max(last, fence)
    return found


@pytest.mark.storm
def test_those_who_share_a_lock_are_in_it_with_their_like_only_and_each_gets_in(
    real_server: RealServer,
) -> None:
    stays = storm(real_server, 40)

    kinds = Counter(stay["kind"] for stay in stays)
    late = real_server.client().lrange("late", 0, -1)
    figure(
        f"{len(stays)} stays: {dict(kinds)}, "
        f"{len(together(stays))} overlaps, {len(late)} too late, "
        f"longest wait {max(stay['began'] - stay['asked'] for stay in stays):.2f} s"
    )
    assert together(stays) == []
    assert late == []
    assert min(kinds[kind] for kind in ("read", "write", "permit")) >= 100
    assert fences_back(stays) == 0


@pytest.mark.parametrize(
    ("stays", "found"),
    [
        ("read 0 2, read 1 3", 0),
        ("read 0 2, write 2 3", 0),
        ("read 0 2, write 1 3", 1),
        ("write 0 2, write 1 3", 1),
        ("permit 0 9, permit 1 9, permit 2 9", 0),
        ("permit 0 9, permit 1 9, permit 2 9, permit 3 9", 1),
    ],
)
def test_what_is_together_is_seen(stays: str, found: int) -> None:
    parts = [stay.split() for stay in stays.split(", ")]

    seen = together([{"kind": k, "began": int(b), "ended": int(e)} for k, b, e in parts])

    assert len(seen) == found
