"""Processes that contend for one lock while what keeps it fails: a server, a cluster, five masters.

Each storm prints how many stays there were under the lock, how many were at the same time as
another, and the longest time in which nobody had it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.faults.outage_storming import LEASE, NAME
from tests.processes import eventually, figure
from tests.redis.clusters import Cluster
from tests.servers import RealServer, any_binary
from tests.support.locks import command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
SECONDS = 10.0
# What is written is on the disk before it is answered, and there again after a start.
WRITES_ALL = ("--appendonly", "yes", "--appendfsync", "always")

pytestmark = [pytest.mark.storm, pytest.mark.alone, pytest.mark.timeout(120)]


class Storm(NamedTuple):
    """``stays``: of each, when it began and when it ended, by their beginning."""

    stays: list[tuple[float, float]]

    @property
    def overlaps(self) -> int:
        """How many pairs of stays were at the same time."""
        return sum(
            later[0] < stay[1]
            for number, stay in enumerate(self.stays)
            for later in itertools.takewhile(
                lambda later: later[0] < stay[1],  # noqa: B023 - used up at once
                self.stays[number + 1 :],
            )
        )

    @property
    def double_grants(self) -> list[float]:
        """How long another still believed in the lock when it was granted."""
        ends = itertools.accumulate((stay[1] for stay in self.stays), max)
        pairs = zip(ends, self.stays[1:], strict=False)
        return [end - later[0] for end, later in pairs if later[0] < end]

    @property
    def stall(self) -> float:
        """The longest time in which nobody had the lock."""
        ends = itertools.accumulate((stay[1] for stay in self.stays), max)
        return max(later[0] - end for end, later in zip(ends, self.stays[1:], strict=False))

    def tell(self, about: str) -> None:
        doubles = self.double_grants
        most = f" of {max(doubles):.2f} s at most" if doubles else ""
        figure(
            f"{about}: {len(self.stays)} grants, {self.overlaps} overlaps, "
            f"{len(doubles)} double grants{most}, longest stall {self.stall:.2f} s"
        )


def storm(folder: Path, kinds: list[str], urls: list[str], work: Callable[[], object]) -> Storm:
    """Have a process of each of the ``kinds`` contend; ``work`` is done after two seconds."""
    program = [sys.executable, "-m", "tests.faults.outage_storming"]
    running = [
        subprocess.Popen(
            [*program, kind, str(folder), str(SECONDS), str(seed), *urls],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, kind in enumerate(kinds)
    ]
    try:
        eventually(lambda: len(list(folder.glob("ready-*"))) == len(kinds), 60)
        folder.joinpath("go").touch()
        time.sleep(2)
        work()
        said = [process.communicate(timeout=SECONDS + 60)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    # A raw error of redis-py would have ended one.
    assert [process.returncode for process in running] == [0] * len(kinds)
    lines = [line.split() for text in said for line in text.splitlines()]
    return Storm(sorted((float(began), float(left)) for began, left in lines))


def every(seconds: float, work: Callable[[], object], for_seconds: float = 6.0) -> None:
    end = time.monotonic() + for_seconds
    while time.monotonic() < end:
        work()
        time.sleep(seconds)


def kill(server: RealServer) -> None:
    server.kill()
    time.sleep(0.5)
    server.start()


def stop(server: RealServer) -> None:
    """End it in order, as a service manager does, and start it again."""
    server.client().shutdown()
    kill(server)


def freeze(server: RealServer) -> None:
    """Have it stand still for longer than a lease."""
    server.pause()
    time.sleep(1.5 * LEASE)
    server.resume()


def pause(server: RealServer) -> None:
    every(2, lambda: command(server.client(), "CLIENT PAUSE", 700))


def cut(server: RealServer) -> None:
    order = "CLIENT KILL", "TYPE", "normal", "SKIPME", "yes"
    every(0.3, functools.partial(command, server.client(), *order))


def forget_scripts(server: RealServer) -> None:
    every(0.1, server.client().script_flush)


@pytest.mark.parametrize("what", [kill, stop, freeze, pause, cut, forget_scripts])
def test_one_server_that_forgets_nothing_has_one_holder(
    tmp_path: Path, what: Callable[[RealServer], None]
) -> None:
    with RealServer(any_binary(), *WRITES_ALL) as server:
        kinds = ["thread"] * 4 + ["tasks"] * 2
        found = storm(tmp_path, kinds, [server.url], lambda: what(server))

    found.tell(f"one server, {what.__name__}")
    assert len(found.stays) > 50
    assert found.double_grants == []


def test_one_server_that_comes_back_empty_has_two_until_the_first_hears_of_it(
    tmp_path: Path,
) -> None:
    with RealServer(any_binary()) as server:
        kinds = ["thread"] * 4 + ["tasks"] * 2
        found = storm(tmp_path, kinds, [server.url], lambda: every(1, server.restart))

    found.tell("one server, restart, empty")
    assert len(found.stays) > 50
    assert all(seconds <= LEASE for seconds in found.double_grants)


@pytest.fixture
def replicated() -> Iterator[Cluster]:
    """Give a cluster of three primaries, of which the one that has the lock has a replica."""
    with Cluster(any_binary()) as cluster, contextlib.ExitStack() as stack:
        home = cluster.owner_of(cluster.slot_of(NAME))
        stack.enter_context(cluster.replica_of(home))
        yield cluster


def kill_node(cluster: Cluster) -> None:
    cluster.owner_of(cluster.slot_of(NAME)).kill()


def freeze_node(cluster: Cluster) -> None:
    """Have it stand still until its replica has taken over, and go on."""
    node = cluster.owner_of(cluster.slot_of(NAME))
    node.pause()
    time.sleep(5)
    node.resume()


def reshard(cluster: Cluster) -> None:
    slot = cluster.slot_of(NAME)
    every(0.3, lambda: cluster.move(slot, pause=0.03))


KINDS = ["cluster"] * 4 + ["cluster-tasks"] * 2


def test_a_cluster_whose_slot_moves_has_one_holder(tmp_path: Path) -> None:
    with Cluster(any_binary()) as cluster:
        found = storm(tmp_path, KINDS, cluster.urls, lambda: reshard(cluster))

    found.tell("cluster, reshard")
    assert len(found.stays) > 50
    assert found.double_grants == []


@pytest.mark.parametrize("what", [kill_node, freeze_node])
def test_a_cluster_that_fails_over_has_two_for_a_lease_at_most(
    tmp_path: Path, replicated: Cluster, what: Callable[[Cluster], None]
) -> None:
    # The node that fails is not the one that clients begin with.
    home = replicated.owner_of(replicated.slot_of(NAME))
    urls = [node.url for node in replicated.nodes if node is not home]
    found = storm(tmp_path, KINDS, urls, lambda: what(replicated))

    found.tell(f"cluster, {what.__name__}")
    assert len(found.stays) > 50
    assert all(seconds <= LEASE for seconds in found.double_grants)


def kill_two(servers: list[RealServer]) -> None:
    """Kill two, which come back, empty, when what they had granted is over."""
    for server in servers[:2]:
        server.kill()
    time.sleep(1.5 * LEASE)
    for server in servers[:2]:
        server.start()


def freeze_two(servers: list[RealServer]) -> None:
    _freeze(servers[:2])


def freeze_three(servers: list[RealServer]) -> None:
    _freeze(servers[:3])


def _freeze(servers: list[RealServer]) -> None:
    for server in servers:
        server.pause()
    time.sleep(1.5 * LEASE)
    for server in servers:
        server.resume()


def cut_all(servers: list[RealServer]) -> None:
    clients = itertools.cycle([server.client() for server in servers])
    order = "CLIENT KILL", "TYPE", "normal", "SKIPME", "yes"
    every(0.1, lambda: command(next(clients), *order))


@pytest.mark.parametrize("what", [kill_two, freeze_two, freeze_three, cut_all])
def test_five_masters_have_one_holder(
    tmp_path: Path, what: Callable[[list[RealServer]], None]
) -> None:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(RealServer(any_binary())) for _ in range(5)]
        urls = [server.url for server in servers]
        found = storm(tmp_path, ["redlock"] * 6, urls, lambda: what(servers))

    found.tell(f"redlock, {what.__name__}")
    assert len(found.stays) > 50
    assert found.double_grants == []
