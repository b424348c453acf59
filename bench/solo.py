"""The cost of taking and releasing a lock that nobody else wants.

Each peer has a process of its own; the processes take turns in small batches, so that what else
happens on the machine meets all alike.
"""

from __future__ import annotations

import operator
import random
import time
from typing import TYPE_CHECKING, Any

from bench.figures import median, percentile
from bench.part import Bench, Figures, Outcome, say
from bench.peers import BASE, LOCKS, PEERS
from bench.workers import Crew, JobFailed, Pipe, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

TITLE = "Solo: acquire and release, nobody else there"
LEASE = 30
TURNS, UNMEASURED = 20, 4
# A batch of a slow library ends after so many seconds, and its round after so many in all.
BATCH_SECONDS, ROUND_SECONDS = 0.03, 1.5
# A new object for each turn, as ``with lock(key):`` in a view has it; or one object for all.
WAYS = ("new", "kept")


def job(pipe: Pipe, name: str) -> None:
    peer = PEERS[name]()
    kept = peer.lock(f"solo:{name}:kept", LEASE)
    makers: dict[str, Callable[[], Any]] = {
        "new": lambda: peer.lock(f"solo:{name}", LEASE),
        "kept": lambda: kept,
    }
    pipe.say("ready")
    while True:
        pipe.say(batch(makers[pipe.hear(None)]))


def batch(make: Callable[[], Any]) -> list[int]:
    """Return the nanoseconds of each turn."""
    clock = time.perf_counter_ns
    taken = []
    end = clock() + int(BATCH_SECONDS * 1e9)
    for number in range(TURNS + UNMEASURED):
        began = clock()
        with make():
            pass
        ended = clock()
        if number >= UNMEASURED or ended > end:
            taken.append(ended - began)
        if ended > end:
            break
    return taken


def run(bench: Bench) -> Outcome:
    outcome = Outcome()
    rounds, batches = bench.choose((2, 12), (5, 50))
    for number in range(rounds):
        say(f"  round {number + 1} of {rounds}")
        bench.observer.forget()
        with Crew() as crew:
            one_round(bench, crew, outcome, batches)
    return outcome


def one_round(bench: Bench, crew: Crew, outcome: Outcome, batches: int) -> None:
    workers: dict[str, Worker] = {}
    samples: dict[str, dict[str, list[int]]] = {}
    for name in bench.taking_part(("floor", *LOCKS)):
        if name not in outcome.failed:
            workers[name] = crew.start(job, name)
            samples[name] = {way: [] for way in WAYS}
    for name in list(workers):
        attempt(outcome, workers, name, lambda worker: worker.hear())
    for _ in range(batches):
        for way in WAYS:
            for name in random.sample(list(workers), len(workers)):
                if sum(map(sum, samples[name].values())) < ROUND_SECONDS * 1e9:
                    ask = operator.methodcaller("ask", way)
                    samples[name][way] += attempt(outcome, workers, name, ask) or []
    for name in workers:
        outcome.rounds.setdefault(name, []).append(figures(samples, name))


def attempt(
    outcome: Outcome, workers: dict[str, Worker], name: str, do: Callable[[Worker], Any]
) -> Any:
    """Return what ``do`` gives; a worker that fails is out."""
    try:
        return do(workers[name])
    except JobFailed as error:
        outcome.failed[name] = str(error)
        del workers[name]
        say(f"  {name} failed: {error}")


def figures(samples: dict[str, dict[str, list[int]]], name: str) -> Figures:
    found: Figures = {"samples": len(samples[name]["new"])}
    for way in WAYS:
        mine, base = samples[name][way], samples.get(BASE, {}).get(way)
        found[f"{way}_us"] = median(mine) / 1000
        found[f"{way}_p99_us"] = percentile(mine, 99) / 1000
        found[f"{way}_ratio"] = median(mine) / median(base) if base else None
    return found
