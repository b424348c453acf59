"""A pool of two connections and fifty threads that wait: releases and renewals meanwhile."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.figures import Turn, overlaps, percentile
from bench.part import Bench, Figures, Outcome
from bench.peers import LOCKS, PEERS
from bench.workers import Crew, Pipe

if TYPE_CHECKING:
    from bench.peers import Peer

TITLE = "Pool: 2 connections, 50 waiting threads"
THREADS, LEASE = 50, 30
RENEWALS, BETWEEN = 100, 0.005
SETTLE = 1.0
# How long they go on taking turns, and how much longer they are waited for, in seconds.
CAP, QUICK_CAP = 6.0, 2.0


class Crowd:
    """Threads that share one small pool and take turns at one lock."""

    def __init__(self, peer: Peer, turns: int) -> None:
        self.peer, self.turns = peer, turns
        self.taken: list[Turn] = []
        self.releases: list[float] = []
        self.renewals: list[float] = []
        self.errors: list[str] = []
        self.end = float("inf")
        self.threads = [
            threading.Thread(target=self.take_turns, args=(who,), daemon=True)
            for who in range(THREADS)
        ]

    def take_turns(self, who: int) -> None:
        try:
            for _ in range(self.turns):
                if time.monotonic() < self.end:
                    self.take_turn(who)
        except Exception as error:  # noqa: BLE001 - any error of a library is an outcome to report
            self.errors.append(f"{type(error).__name__}: {error}")

    def take_turn(self, who: int) -> None:
        wanted = time.monotonic()
        lock = self.peer.lock("pool", LEASE)
        held = lock.__enter__()
        began = time.monotonic()
        self.renew(held)
        ended = time.monotonic()
        self.release(lock)
        self.taken.append(Turn(who, wanted, began, ended))

    def renew(self, held: Any) -> None:
        if self.peer.extends:
            before = time.monotonic()
            self.peer.renew(held)
            self.renewals.append(time.monotonic() - before)

    def release(self, lock: Any) -> None:
        before = time.monotonic()
        lock.__exit__(None, None, None)
        self.releases.append(time.monotonic() - before)


def job(pipe: Pipe, name: str, turns: int, cap: float) -> None:
    """Hold the lock, renewing it, while all wait; then let them have their turns."""
    crowd = Crowd(PEERS[name](small=True), turns)
    lock = crowd.peer.lock("pool", LEASE)
    held = lock.__enter__()
    for thread in crowd.threads:
        thread.start()
    time.sleep(SETTLE)
    for _ in range(RENEWALS if crowd.peer.extends else 0):
        crowd.renew(held)
        time.sleep(BETWEEN)
    crowd.end = time.monotonic() + cap
    crowd.release(lock)
    for thread in crowd.threads:
        thread.join(max(crowd.end + cap - time.monotonic(), 0))
    if crowd.errors:
        failed = f"{len(crowd.errors)} of {THREADS} threads failed"
        raise RuntimeError(f"{failed}: {crowd.errors[0]}")
    pipe.say((crowd.taken, crowd.releases, crowd.renewals))


def run(bench: Bench) -> Outcome:
    outcome = Outcome()
    rounds, turns, cap = bench.choose((1, 2, QUICK_CAP), (2, 6, CAP))
    for _ in range(rounds):
        for name in bench.taking_part(LOCKS):
            outcome.add(name, partial(measure, bench, name, turns, cap))
    return outcome


def measure(bench: Bench, name: str, turns: int, cap: float, crew: Crew) -> Figures:
    bench.observer.forget()
    taken, releases, renewals = crew.start(job, name, turns, cap).hear(cap * 2 + 60)
    found: Figures = {"turns": len(taken), "overlaps": overlaps(taken)}
    for what, times in (("release", releases), ("renewal", renewals)):
        for percent in (50, 99):
            value = percentile(times, percent) * 1000 if times else None
            found[f"{what}_p{percent}_ms"] = value
    return found
