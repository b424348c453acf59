"""What one server can do: cycles a second, and the CPU time it spends on each.

Clients need more time than the server, so with few cores they are the limit. The CPU time of the
server tells what it could do with more of them.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from bench.figures import Turn, overlaps
from bench.part import Bench, Figures, Outcome, say
from bench.peers import PEERS
from bench.workers import Crew, JobFailed, Pipe, Worker

if TYPE_CHECKING:
    from bench.peers import Peer

TITLE = "Capacity: one server, 1 to 8 processes, 1 to 10,000 names, up to 1,000 waiters"
CYCLING = ("floor", "redis-py", "python-redis-lock", "plain", "full")
WAITING = ("redis-py", "python-redis-lock", "plain", "full", "nothing")
PROCESSES = (1, 2, 4, 8)
NAMES = (1, 100, 10_000)
# What all processes together take turns at.
ALL_NAMES = 10_000
WAITERS, WAITING_PROCESSES = (10, 1000), 2
LEASE = 60
# How long waiters by the thousand may take to connect and queue.
SETTLE = {10: 0.3, 1000: 4.0}


def cycle(pipe: Pipe, name: str, who: int) -> None:
    """Take and release locks until the end of a time, whenever asked; say how many."""
    peer = PEERS[name](large=True)
    for number in range(2):
        with peer.lock(f"warm:{who}:{number}", LEASE):
            pass
    pipe.say("ready")
    while True:
        names, start, end = pipe.hear(None)
        order = itertools.cycle(random.sample(range(names), names))
        time.sleep(max(start - time.monotonic(), 0))
        count = 0
        while time.monotonic() < end:
            with peer.lock(f"name:{next(order)}", LEASE):
                pass
            count += 1
        pipe.say(count)


def wait_in_threads(pipe: Pipe, name: str, first: int, count: int) -> None:
    """Let threads take turns at one lock; say which of them began between two moments."""
    peer = PEERS[name](large=True)
    with peer.lock("warm", LEASE):
        pass
    waiters = Waiters(peer, first, count)
    gate = peer.lock("queue", LEASE) if first == 0 else None
    if gate:
        gate.__enter__()
    pipe.say("ready")
    pipe.hear()
    waiters.start()
    start, end = pipe.hear()
    time.sleep(max(start - time.monotonic(), 0))
    if gate:
        gate.__exit__(None, None, None)
    time.sleep(max(end - time.monotonic(), 0))
    waiters.refuse_errors()
    pipe.say([turn for turn in waiters.taken if start <= turn.began < end])


class Waiters:
    """Threads that want one lock again and again, so that the queue stays as long as it is."""

    def __init__(self, peer: Peer, first: int, count: int) -> None:
        self.taken: list[Turn] = []
        self._errors: list[str] = []
        self._peer, self._stopped = peer, False
        self._threads = [
            threading.Thread(target=self._take_turns, args=(first + number,), daemon=True)
            for number in range(count)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _take_turns(self, who: int) -> None:
        try:
            while not self._stopped:
                wanted = time.monotonic()
                with self._peer.lock("queue", LEASE):
                    began = time.monotonic()
                    # Another thread may go on: who comes in meanwhile is seen.
                    time.sleep(0)
                    self.taken.append(Turn(who, wanted, began, time.monotonic()))
        except Exception as error:  # noqa: BLE001 - any error of a library is an outcome to report
            self._errors.append(f"{type(error).__name__}: {error}")

    def stop(self, seconds: float) -> None:
        """Let each end with the turn that it waits for, within ``seconds`` for all."""
        self._stopped = True
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))

    def refuse_errors(self) -> None:
        """Raise RuntimeError when some could not wait."""
        if self._errors:
            count = f"{len(self._errors)} of {len(self._threads)} threads failed"
            raise RuntimeError(f"{count}: {self._errors[0]}")


def run(bench: Bench) -> Outcome:
    outcome = Outcome()
    rounds, seconds = bench.choose((1, 0.15), (2, 0.5))
    waiters = bench.choose(WAITERS[:1], WAITERS)
    for number in range(rounds):
        say(f"  round {number + 1} of {rounds}")
        for name in bench.taking_part(CYCLING):
            outcome.add(name, partial(measure_cycles, bench, name, seconds))
        for name in bench.taking_part(WAITING):
            for count in waiters if number == 0 else WAITERS[:1]:
                outcome.add(name, partial(measure_waiters, bench, name, count, seconds))
    return outcome


def measure_cycles(bench: Bench, name: str, seconds: float, crew: Crew) -> Figures:
    workers = [crew.start(cycle, name, who) for who in range(max(PROCESSES))]
    for worker in workers:
        worker.hear()
    found: Figures = {}
    for count in PROCESSES:
        used = cycles(bench, workers[:count], ALL_NAMES, seconds)
        found[f"cycles_per_s_{count}"] = used["per_s"]
        found[f"server_busy_percent_{count}"] = used["busy"] * 100
        found[f"server_us_{count}"] = used["cpu_us"]
    for names in NAMES:
        used = cycles(bench, workers[:1], names, seconds)
        found[f"server_us_{names}_names"] = used["cpu_us"]
    return found


def cycles(bench: Bench, workers: list[Worker], names: int, seconds: float) -> Figures:
    """Return what so many processes did with so many names, and what the server spent on it."""
    observer = bench.observer
    observer.forget()
    start = time.monotonic() + 0.02
    for worker in workers:
        worker.say((names, start, start + seconds))
    time.sleep(max(start - time.monotonic(), 0))
    cpu = observer.cpu()
    count = sum(worker.hear() for worker in workers)
    cpu = observer.cpu() - cpu
    return {"per_s": count / seconds, "busy": cpu / seconds, "cpu_us": cpu / count * 1e6}


def measure_waiters(bench: Bench, name: str, count: int, seconds: float, crew: Crew) -> Figures:
    observer = bench.observer
    observer.forget()
    clients, memory = observer.clients(), observer.memory()
    share = count // WAITING_PROCESSES
    # One more, which has the lock.
    shares = [share + 1, *[share] * (WAITING_PROCESSES - 1)]
    firsts = [0, *itertools.accumulate(shares[:-1])]
    workers = [
        crew.start(wait_in_threads, name, *pair) for pair in zip(firsts, shares, strict=True)
    ]
    for worker in workers:
        worker.hear()
    for worker in workers:
        worker.say("wait")
    time.sleep(SETTLE[count])
    clients, memory = observer.clients() - clients, observer.memory() - memory
    start = time.monotonic() + 0.05
    for worker in workers:
        worker.say((start, start + seconds))
    time.sleep(max(start - time.monotonic(), 0))
    cpu = observer.cpu()
    time.sleep(max(start + seconds - time.monotonic(), 0))
    cpu = observer.cpu() - cpu
    taken: list[Turn] = [turn for worker in workers for turn in worker.hear()]
    if not taken:
        raise JobFailed(f"with {count} waiters nobody had a turn within {seconds:g} s")
    return {
        f"turns_per_s_{count}_waiters": len(taken) / seconds,
        f"server_us_{count}_waiters": cpu / len(taken) * 1e6,
        f"connections_{count}_waiters": clients,
        f"bytes_per_waiter_{count}_waiters": memory / count,
        "turns": len(taken),
        "overlaps": overlaps(taken),
    }
