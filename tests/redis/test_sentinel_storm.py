"""Processes that contend for one lock while Sentinels fail over.

Its primary is killed; or another one is named while it goes on, as in maintenance; or it stands
still for a while, as a virtual machine does that is moved, and goes on when another one is named.
"""

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
from tests.servers import any_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PROCESSES, CROWD = 8, 20
# Those of a crowd that connect when another primary is named: some always do.
LATE = range(CROWD // 2)
WHOLE, CUT, MOVED = 20, 25, 26
# For how long the primary stands still, and how long two may go on at once after the move.
FROZEN, AFTER = 3.0, 1.5

# Twenty processes keep the processors busy, and what they see is timed.
pytestmark = [pytest.mark.storm, pytest.mark.alone, pytest.mark.timeout(180)]


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
        then = max((later.began - stay.ended for stay, later in pairwise(self.after)), default=0.0)
        figure(
            f"{about}: {len(self.stays)} stays, {len(self.after)} of them after the kill; "
            f"{self.overlaps} overlaps; next grant {pause:.1f} s after the kill, "
            f"longest time without a holder {longest:.1f} s, after that grant {then:.1f} s"
        )


class Move(NamedTuple):
    """``since``: when another primary was named, and the old one was awake."""

    stays: list[Stay]
    since: float

    @property
    def overlaps(self) -> list[float]:
        """When each stay began that another was not over for, in seconds after the move."""
        found, end = [], float("-inf")
        for stay in self.stays:
            if stay.began < end:
                found.append(stay.began - self.since)
            end = max(end, stay.ended)
        return found

    def tell(self, about: str) -> None:
        found = self.overlaps
        when = f", {found[0]:.1f} to {found[-1]:.1f} s after the move" if found else ""
        after = [stay for stay in self.stays if stay.began > self.since]
        # Until the first of them, too.
        pause = max(
            later.began - stay.ended
            for stay, later in pairwise(self.stays)
            if later.began > self.since
        )
        figure(
            f"{about}: {len(self.stays)} stays, {len(after)} of them after the move; "
            f"{len(found)} double grants{when}; longest time without a holder then {pause:.1f} s"
        )


def move(folder: Path, how: str, replicas: int, *, is_strict: bool) -> Move:
    """Have the processes contend, move the primary, and give what they did.

    ``is_strict``: whether primaries refuse writes that no replica hears of.
    """
    with watched(any_binary(), replicas=2) as deployment:
        for server in (deployment.primary, *deployment.replicas):
            client = server.client()
            client.config_set("min-replicas-to-write", int(is_strict))
            client.config_set("min-replicas-max-lag", 1)
        processes = list(started(deployment, folder, MOVED, replicas, CROWD, LATE))
        try:
            since = moved(deployment, folder, how)
            lines = [process.communicate(timeout=MOVED + 60)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
    assert [process.returncode for process in processes] == [0] * CROWD
    stays = [Stay(*map(float, line.split())) for text in lines for line in text.splitlines()]
    return Move(sorted(stays), since)


def moved(deployment: Watched, folder: Path, how: str) -> float:
    """Have another primary named while the processes contend; tell when that was done."""
    client = deployment.primary.client(db=1)
    eventually(lambda: client.exists("lock:storm"), 30)
    time.sleep(3)
    if how == "planned":
        eventually(deployment.fails_over, 30)
        eventually(deployment.names_another, 30)
        folder.joinpath("late").touch()
        return time.monotonic()
    deployment.primary.pause()
    end = time.monotonic() + FROZEN
    eventually(deployment.names_another, 30)
    folder.joinpath("late").touch()
    # Those who write stays are not to stand still with it.
    time.sleep(max(end - time.monotonic(), 0))
    deployment.primary.resume()
    return time.monotonic()


def storm(folder: Path, replicas: int, *, is_cut: bool) -> Storm:
    """Have the processes contend, kill the primary, and give what they did.

    ``is_cut``: whether the replica hears of nothing for a time before.
    """
    seconds = CUT if is_cut else WHOLE
    with watched(any_binary()) as deployment:
        processes = list(started(deployment, folder, seconds, replicas, PROCESSES))
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
    deployment: Watched,
    folder: Path,
    seconds: float,
    replicas: int,
    count: int,
    late: range = range(0),
) -> Iterator[subprocess.Popen[str]]:
    """Give so many processes, of which those ``late`` begin when the test says so."""
    program = "tests.redis.sentinel_storming"
    for number in range(count):
        sign = "late" if number in late else "go"
        yield subprocess.Popen(
            [sys.executable, "-m", program, str(folder), str(seconds), str(replicas), sign],
            cwd=ROOT,
            env={**os.environ, **deployment.variables},
            stdout=subprocess.PIPE,
            text=True,
        )
    # To start them takes longer than some of the storms on a machine that is busy.
    eventually(lambda: len(list(folder.glob("ready-*"))) == count, 60)
    folder.joinpath("go").touch()


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


def test_with_replicas_there_is_one_holder_at_a_time(tmp_path: Path) -> None:
    found = storm(tmp_path, 1, is_cut=False)

    found.tell("replicas=1")
    assert found.overlaps == 0
    assert len(found.stays) > 100
    assert len(found.after) > 20


def test_with_replicas_there_is_one_though_the_replica_hears_nothing(tmp_path: Path) -> None:
    found = storm(tmp_path, 1, is_cut=True)

    found.tell("replicas=1, replication cut before the kill")
    assert found.overlaps == 0
    assert len(found.after) > 20


def test_without_replicas_a_grant_that_no_replica_heard_of_makes_two(tmp_path: Path) -> None:
    found = storm(tmp_path, 0, is_cut=True)

    found.tell("no replicas asked for, replication cut before the kill")
    assert found.overlaps > 0


def test_without_replicas_it_is_told_how_many_there_were(tmp_path: Path) -> None:
    found = storm(tmp_path, 0, is_cut=False)

    found.tell("no replicas asked for")
    assert len(found.after) > 20


MOVES = pytest.mark.parametrize("how", ["planned", "frozen"])


@MOVES
def test_without_replicas_two_have_it_for_a_second_after_another_primary_was_named(
    tmp_path: Path, how: str
) -> None:
    found = move(tmp_path, how, 0, is_strict=False)

    found.tell(f"{how}, no replicas asked for")
    assert len(found.stays) > 100
    assert all(seconds <= AFTER for seconds in found.overlaps)


@MOVES
@pytest.mark.parametrize("replicas", [0, 2])
def test_where_a_primary_needs_a_replica_to_write_there_is_one_holder_at_a_time(
    tmp_path: Path, how: str, replicas: int
) -> None:
    found = move(tmp_path, how, replicas, is_strict=True)

    found.tell(f"{how}, replicas={replicas}, min-replicas-to-write 1")
    assert len(found.stays) > 100
    assert found.overlaps == []
