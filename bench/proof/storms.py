"""The same storms on this lock, on those of other libraries, and on none."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.part import say
from bench.peers import PEERS
from bench.proof.store import Findings, Store
from bench.workers import Crew, JobFailed, Pipe, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import RealServer

PROCESSES, LEASE = 4, 2
STEP = 0.01


class Row(NamedTuple):
    """A lock as it is used: ``fenced`` where the store gets its fence with each write."""

    title: str
    peer: str
    fenced: bool = False


ROWS = (
    Row("this lock, with its fence", "full", fenced=True),
    Row("this lock, fence not passed on", "full"),
    Row("redis-py", "redis-py"),
    Row("python-redis-lock, auto_renewal", "python-redis-lock-renewing"),
    Row("pottery Redlock, one master", "pottery"),
    Row("sherlock", "sherlock"),
    Row("no lock (control)", "nothing"),
)
OURS, CONTROL = ROWS[0], ROWS[-1]


class Storm(NamedTuple):
    """``work``: seconds of a turn, from and to. ``chance``: of ``fate`` in a turn.

    ``pause``: how long others than the first stay away between turns, at the most. ``trouble`` is
    made ``every`` so many seconds. ``forgets``: Redis loses the lock in it, which no lock in Redis
    can survive.
    """

    about: str
    work: tuple[float, float] = (0.0, 0.02)
    pause: float = 0.02
    fate: str = ""
    chance: float = 0.0
    trouble: Callable[[RealServer], object] | None = None
    every: float = 0.3
    forgets: bool = False


def cut(server: RealServer) -> None:
    """Close the connections of all."""
    server.admin.client_kill_filter(_type="normal", skipme=True)


STORMS = {
    "calm": Storm("nothing goes wrong"),
    "killed": Storm("holders are killed (`kill -9`)", fate="kill", chance=0.03),
    "long": Storm("holders work for 1.5 leases", fate="work", chance=0.1),
    "stopped": Storm("holders are stopped for 1.5 leases, then write", fate="stop", chance=0.1),
    "cut": Storm("all connections are closed, every 0.3 s", trouble=cut),
    "flush": Storm(
        "`FLUSHALL`, every second",
        (0.05, 0.3),
        pause=1.0,
        trouble=lambda server: server.admin.flushall(),
        every=1.0,
        forgets=True,
    ),
    "restart": Storm(
        "the server is killed and comes back empty, every 2 s",
        (0.05, 0.3),
        pause=1.0,
        trouble=lambda server: server.restart(),
        every=2.0,
        forgets=True,
    ),
}


def job(pipe: Pipe, row: Row, kind: str, folder: str, seed: int) -> None:
    """Take turns until killed. The first comes back at once, the others come as it happens."""
    peer, store, storm = PEERS[row.peer](), Store(Path(folder)), STORMS[kind]
    chance = random.Random(seed)  # noqa: S311 - to be repeatable, not secret
    pipe.say("ready")
    number = 0
    while True:
        number += 1
        turn = f"{seed}.{number}"
        try:
            with peer.lock("storm", LEASE) as held:
                store.note("granted", turn)
                fence = held.fence if row.fenced else None
                stay(storm, chance, partial(store.write, turn, fence))
        except Exception:  # noqa: BLE001 - whatever a library raises is counted
            store.note("error", turn)
            time.sleep(0.02)
        time.sleep(chance.uniform(0, storm.pause) if seed else 0.002)


def stay(storm: Storm, chance: random.Random, write: Callable[[], None]) -> None:
    """Write in steps for as long as the work takes, unless fate comes between."""
    seconds = chance.uniform(*storm.work)
    fate = storm.fate if chance.random() < storm.chance else ""
    write()
    if fate == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fate == "stop":
        # Another process lets this one go on.
        waker = f"sleep {1.5 * LEASE}; kill -CONT {os.getpid()}"
        subprocess.Popen(["/bin/sh", "-c", waker], stderr=subprocess.DEVNULL)
        os.kill(os.getpid(), signal.SIGSTOP)
    end = time.monotonic() + (1.5 * LEASE if fate == "work" else seconds)
    while time.monotonic() < end:
        time.sleep(STEP)
        write()
    write()


def run(server: RealServer, row: Row, kind: str, seconds: float) -> Findings:
    """Have the processes contend, and count."""
    storm = STORMS[kind]
    server.flush()
    with tempfile.TemporaryDirectory() as folder, Crew() as crew:

        def start(seed: int) -> Worker:
            return crew.start(job, row, kind, folder, seed)

        workers = [start(seed) for seed in range(PROCESSES)]
        for worker in workers:
            worker.hear()
        began = time.monotonic()
        weather(server, storm, workers, start, began + seconds)
        ended = time.monotonic()
        crew.dismiss()
        return Findings.read(Path(folder, "notes"), began, ended)


def weather(
    server: RealServer,
    storm: Storm,
    workers: list[Worker],
    start: Callable[[int], Worker],
    end: float,
) -> None:
    """Make the storm's trouble until ``end``; who is killed is followed by another."""
    due, seed = time.monotonic() + storm.every, len(workers)
    while (now := time.monotonic()) < end:
        for at, worker in enumerate(workers):
            if not worker.is_alive:
                workers[at] = start(seed)
                seed += 1
        if storm.trouble and now >= due:
            storm.trouble(server)
            due = time.monotonic() + storm.every
        time.sleep(0.02)


class LateRelease(NamedTuple):
    """What a release does when the lease is over and another has the lock."""

    frees_another: bool
    said: str


def release_late(pipe: Pipe, name: str) -> None:
    """Say what came of a release after the lease, with the lock in another's hands."""
    first, second, third = PEERS[name](), PEERS[name](), PEERS[name]()
    lease = 1
    late = first.lock("late", lease)
    late.__enter__()
    time.sleep(1.3 * lease)
    following: Any = second.lock("late", 60)
    following.__enter__()
    said = "nothing"
    try:
        late.__exit__(None, None, None)
    except Exception as error:  # noqa: BLE001 - whatever a library raises is the answer
        said = type(error).__name__
    pipe.say(LateRelease(third.attempt("late", 60), said))


def run_all(server: RealServer, seconds: float) -> dict[str, dict[str, Findings]]:
    """Return for each row the findings of each storm."""
    found: dict[str, dict[str, Findings]] = {row.title: {} for row in ROWS}
    for kind in STORMS:
        for row in ROWS:
            found[row.title][kind] = findings = run(server, row, kind, seconds)
            say(f"  {kind}, {row.title}: {findings}")
    return found


def late_releases(server: RealServer) -> dict[str, LateRelease]:
    """Return what a late release does, without renewals: a lease that is renewed does not end."""
    found = {}
    for name in ("plain", "redis-py", "python-redis-lock", "pottery", "sherlock", "nothing"):
        server.flush()
        with Crew() as crew, contextlib.suppress(JobFailed):
            found[PEERS[name].title] = crew.start(release_late, name).hear()
    return found
