"""Eight processes that contend for one lock while its primary is killed and Sentinels fail over."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.processes import eventually, figure
from tests.redis.sentinel_storming import LEASE
from tests.redis.sentinels import Watched, watched
from tests.servers import server_binaries

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PROCESSES = 8
WHOLE, CUT = 20, 25

pytestmark = [pytest.mark.storm, pytest.mark.timeout(180)]


class Stay(NamedTuple):
    """From the grant until the holder let go or learned that the lock was lost."""

    began: float
    ended: float


class Storm(NamedTuple):
    stays: list[Stay]
    killed: float

    @property
    def overlaps(self) -> int:
        """How many pairs of stays were at the same time."""
        count = 0
        for number, stay in enumerate(self.stays):
            for later in self.stays[number + 1 :]:
                if later.began >= stay.ended:
                    break
                count += 1
        return count

    @property
    def after(self) -> list[Stay]:
        """Those that began when the primary was gone."""
        return [stay for stay in self.stays if stay.began > self.killed]

    def tell(self, about: str) -> None:
        pause = min((stay.began for stay in self.after), default=float("inf")) - self.killed
        longest = max(later.began - stay.ended for stay, later in pairwise(self.stays))
        figure(
            f"{about}: {len(self.stays)} stays, {len(self.after)} of them after the kill; "
            f"{self.overlaps} overlaps; next grant {pause:.1f} s after the kill, "
            f"longest time without a holder {longest:.1f} s"
        )


def storm(folder: Path, kind: str, replicas: int, *, is_cut: bool) -> Storm:
    """Have the processes contend, kill the primary, and give what they did.

    ``is_cut``: whether the replica hears of nothing for a time before.
    """
    binaries = server_binaries()
    if kind not in binaries:
        pytest.skip(f"no {kind} server on this machine")
    seconds = CUT if is_cut else WHOLE
    with watched(binaries[kind]) as deployment:
        processes = list(started(deployment, folder, seconds, replicas))
        try:
            killed = strike(deployment, folder, replicas, is_cut=is_cut)
            lines = [process.communicate(timeout=seconds + 60)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
    assert [process.returncode for process in processes] == [0] * PROCESSES
    stays = [Stay(*map(float, line.split())) for text in lines for line in text.splitlines()]
    return Storm(sorted(stays), killed)


def started(
    deployment: Watched, folder: Path, seconds: float, replicas: int
) -> Iterator[subprocess.Popen[str]]:
    program = "tests.redis.sentinel_storming"
    for _ in range(PROCESSES):
        yield subprocess.Popen(
            [sys.executable, "-m", program, str(folder), str(seconds), str(replicas)],
            cwd=ROOT,
            env={**os.environ, **deployment.variables},
            stdout=subprocess.PIPE,
            text=True,
        )


def strike(deployment: Watched, folder: Path, replicas: int, *, is_cut: bool) -> float:
    """Kill the primary while one of the processes stays, if one is let; tell when."""
    client = deployment.primary.client(db=1)
    eventually(lambda: client.exists("lock:storm"), 30)
    time.sleep(3)
    if is_cut:
        # Until whatever the replica knows of is over there. For ten seconds it can be promoted.
        deployment.cut_off()
        time.sleep(LEASE + 0.5)
    if not is_cut or not replicas:
        folder.joinpath("stay").touch()
        eventually(folder.joinpath("staying").exists)
    killed = time.monotonic()
    deployment.primary.kill()
    (new,) = deployment.replicas
    eventually(lambda: deployment.primary_port() == new.port, 40)
    # Another one to acknowledge locks, which is empty and must not come back as a primary.
    deployment.primary.options = ("--replicaof", "127.0.0.1", str(new.port))
    deployment.primary.start()
    return killed


@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_with_replicas_there_is_one_holder_at_a_time(tmp_path: Path, kind: str) -> None:
    found = storm(tmp_path, kind, 1, is_cut=False)

    found.tell(f"{kind}, replicas=1")
    assert found.overlaps == 0
    assert len(found.stays) > 100
    assert len(found.after) > 20


def test_with_replicas_there_is_one_though_the_replica_hears_nothing(tmp_path: Path) -> None:
    found = storm(tmp_path, "valkey", 1, is_cut=True)

    found.tell("valkey, replicas=1, replication cut before the kill")
    assert found.overlaps == 0
    assert len(found.after) > 20


def test_without_replicas_a_grant_that_no_replica_heard_of_makes_two(tmp_path: Path) -> None:
    found = storm(tmp_path, "valkey", 0, is_cut=True)

    found.tell("valkey, no replicas asked for, replication cut before the kill")
    assert found.overlaps > 0


def test_without_replicas_it_is_told_how_many_there_were(tmp_path: Path) -> None:
    found = storm(tmp_path, "redis", 0, is_cut=False)

    found.tell("redis, no replicas asked for")
    assert len(found.after) > 20
