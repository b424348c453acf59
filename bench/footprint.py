"""What locks leave in Redis: after many cycles of one name, busy answers, and many names."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.part import Bench, Figures, Outcome, say
from bench.peers import PEERS
from bench.workers import Crew, Pipe
from example_project.server import connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.address import Observer
    from bench.peers import Peer

TITLE = "Footprint: what 20,000 cycles, 20,000 busy answers and 20,000 names leave in Redis"
TIMES, QUICK_TIMES = 20_000, 1000
TAKING_PART = ("redis-py", "django-redis", "python-redis-lock", "sherlock", "plain", "next", "full")
LEASE = 30
# How many of each are left alone, and for how long, in seconds: the longest a lock keeps anything.
LEFT_ALONE, LATER = 200, 61.0


def job(pipe: Pipe, name: str) -> None:
    """Do one thing as often as told, whenever asked; say how often a lock was had."""
    peer = PEERS[name](large=True)
    with peer.lock("warm", LEASE):
        pass
    kept: list[Any] = []
    ways: dict[str, Callable[[Peer, int], int]] = {
        "cycles": cycles,
        "busy": busy,
        "names": names,
        "held": partial(keep, kept),
        "free": partial(free, kept),
    }
    pipe.say("ready")
    while True:
        way, times = pipe.hear(None)
        pipe.say(ways[way](peer, times))


def cycles(peer: Peer, times: int) -> int:
    for _ in range(times):
        with peer.lock("cycle", LEASE):
            pass
    return times


def busy(peer: Peer, times: int) -> int:
    """Try to take the first of the locks that another process keeps."""
    return sum(peer.attempt("held:0", LEASE) for _ in range(times))


def names(peer: Peer, times: int) -> int:
    for number in range(times):
        with peer.lock(f"name:{number}", LEASE):
            pass
    return times


def keep(kept: list[Any], peer: Peer, times: int) -> int:
    for number in range(times):
        lock = peer.lock(f"held:{number}", LEASE)
        kept.append((lock, lock.__enter__()))
    return times


def free(kept: list[Any], peer: Peer, times: int) -> int:
    for lock, _ in kept:
        lock.__exit__(None, None, None)
    return len(kept)


def run(bench: Bench) -> Outcome:
    outcome = Outcome()
    times = bench.choose(QUICK_TIMES, TIMES)
    names_of_all = bench.taking_part(TAKING_PART)
    left_alone = {} if bench.quick else leave_alone(bench, outcome, names_of_all)
    for name in (*names_of_all, *bench.taking_part(("nothing",))):
        outcome.add(name, partial(measure, bench, name, times))
    for name, (database, when) in left_alone.items():
        if name not in outcome.failed:
            time.sleep(max(when + LATER - time.monotonic(), 0))
            outcome.rounds[name].append({"keys_later": keys_of(bench.observer, database)})
    bench.observer.client.flushall()
    return outcome


def leave_alone(bench: Bench, outcome: Outcome, chosen: list[str]) -> dict[str, tuple[int, float]]:
    """Do a little of everything and put what it leaves aside; return into which database, and when.

    Times run there as they do elsewhere, and nobody comes by.
    """
    say(f"  what is left {LATER:g} s later")
    found = {}
    bench.observer.client.flushall()
    for database, name in enumerate(chosen, 1):
        with Crew() as crew:
            outcome.note(name, partial(exercise, bench.observer, name, crew))
        bench.observer.client.swapdb(0, database)
        found[name] = database, time.monotonic()
    return found


def exercise(observer: Observer, name: str, crew: Crew) -> Figures:
    worker, holder = crew.start(job, name), crew.start(job, name)
    worker.hear()
    holder.hear()
    holder.ask(("held", 1))
    for way in ("cycles", "busy", "names"):
        worker.ask((way, LEFT_ALONE))
    holder.ask(("free", 1))
    return {}


def measure(bench: Bench, name: str, times: int, crew: Crew) -> Figures:
    observer = bench.observer
    found: Figures = {"times": times}
    worker, holder = crew.start(job, name), crew.start(job, name)
    worker.hear()
    holder.hear()
    observer.client.flushdb()
    worker.ask(("cycles", times))
    found["keys_after_cycles"] = observer.client.dbsize()

    observer.client.flushdb()
    holder.ask(("held", 1))
    before = without_heartbeats(observer)
    # The attempts had what another process held.
    found["overlaps"] = worker.ask(("busy", times))
    found["keys_of_busy"] = without_heartbeats(observer) - before

    for way, figure in (("names", "name"), ("held", "held")):
        observer.client.flushdb()
        memory = observer.memory()
        worker.ask((way, times))
        found[f"keys_per_{figure}"] = observer.client.dbsize() / times
        found[f"bytes_per_{figure}"] = (observer.memory() - memory) / times
    return found


def without_heartbeats(observer: Observer) -> int:
    """Return how many keys there are but for the one of each process that holds locks for long.

    On a slow machine the holder's comes while others ask.
    """
    return observer.client.dbsize() - len(observer.client.keys("*:process:*"))


def keys_of(observer: Observer, database: int) -> int:
    """Return how many keys a database has, without those whose time is over."""
    with connect(observer.path, db=database) as client:
        return sum(1 for _ in client.scan_iter(count=1000))
