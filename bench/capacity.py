"""What one server can do: cycles a second, and the CPU time it spends on each.

Clients need more time than the server, so with few cores they are the limit. The CPU time of the
server tells what it could do with more of them. It depends on what else the machine does, so the
libraries take turns in short spells.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from bench.figures import Turn, overlaps
from bench.part import Bench, Figures, Outcome, say
from bench.peers import BASE, PEERS
from bench.workers import Crew, JobFailed, Pipe, Worker

if TYPE_CHECKING:
    from bench.peers import Peer

TITLE = "Capacity: one server, 1 to 8 processes, 1 to 10,000 names, up to 1,000 waiters"
CYCLING = ("floor", "redis-py", "python-redis-lock", "plain", "next", "full")
WAITING = ("redis-py", "python-redis-lock", "plain", "next", "full", "nothing")
PROCESSES = (1, 2, 4, 8)
NAMES = (1, 100, 10_000)
WAITERS, WAITING_PROCESSES = (10, 1000), 2
LEASE = 60
# How long waiters take to connect and queue, in seconds.
SETTLE = {10: 0.3, 1000: 3.0}


# One process has a number of cycles: where the machine does other things, a time might have few.
CYCLES, PATIENCE = 400, 20.0


class Spell(NamedTuple):
    """So many processes that take and release so many names, for a while or so many times each."""

    processes: int
    names: int
    cycles: int | None = None


SPELLS = (
    *(Spell(processes, max(NAMES)) for processes in PROCESSES),
    # With few clients the server sleeps between two requests. To wake takes CPU time, too, and how
    # much is a matter of chance.
    Spell(max(PROCESSES), NAMES[1]),
    Spell(1, NAMES[0], CYCLES),
)


def cycle(pipe: Pipe, name: str, who: int) -> None:
    """Take and release locks until a time or a count, whenever asked; say how many."""
    peer = PEERS[name](large=True)
    for number in range(2):
        with peer.lock(f"warm:{who}:{number}", LEASE):
            pass
    pipe.say("ready")
    while True:
        spell, start, end = pipe.hear(None)
        # No two processes meet.
        names = range(who, spell.names, spell.processes)
        order = itertools.cycle(random.sample(names, len(names)))
        time.sleep(max(start - time.monotonic(), 0))
        count = 0
        while count != spell.cycles and time.monotonic() < end:
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
    bench.observer.forget()
    with Crew() as crew:
        workers = hire(bench, crew, outcome)
        rounds = bench.choose(1, 5)
        for number in range(rounds):
            say(f"  cycles, round {number + 1} of {rounds}")
            one_round(bench, workers, outcome)
    for number in range(bench.choose(1, 2)):
        for name in bench.taking_part(WAITING):
            # The longest queue takes seconds to form, and shows what it costs in one round.
            for count in WAITERS if number == 0 and not bench.quick else WAITERS[:1]:
                outcome.add(name, partial(measure_waiters, bench, name, count))
    return outcome


def hire(bench: Bench, crew: Crew, outcome: Outcome) -> dict[str, list[Worker]]:
    """Return processes of each library that are ready."""
    workers = {
        name: [crew.start(cycle, name, who) for who in range(max(PROCESSES))]
        for name in bench.taking_part(CYCLING)
    }
    for name in list(workers):
        try:
            for worker in workers[name]:
                worker.hear()
        except JobFailed as error:
            outcome.failed[name] = str(error)
            del workers[name]
            say(f"  {name} failed: {error}")
    return workers


def one_round(bench: Bench, workers: dict[str, list[Worker]], outcome: Outcome) -> None:
    seconds = bench.choose(0.08, 0.2)
    found: dict[str, Figures] = {name: {} for name in workers}
    for spell in SPELLS:
        for name in random.sample(list(workers), len(workers)):
            if name in outcome.failed:
                continue
            try:
                found[name] |= cycles(bench, workers[name], spell, seconds)
            except JobFailed as error:
                outcome.failed[name] = str(error)
                say(f"  {name} failed: {error}")
    base = found.get(BASE, {}).get("server_us_100_names")
    for name, figures in found.items():
        if name not in outcome.failed:
            figures["server_ratio"] = figures["server_us_100_names"] / base if base else None
            outcome.rounds.setdefault(name, []).append(figures)


def cycles(bench: Bench, workers: list[Worker], spell: Spell, seconds: float) -> Figures:
    """Return what came of a spell, and what the server spent on it."""
    workers = workers[: spell.processes]
    seconds = PATIENCE if spell.cycles else seconds
    start = time.monotonic() + 0.01
    for worker in workers:
        worker.say((spell, start, start + seconds))
    time.sleep(max(start - time.monotonic(), 0))
    cpu = bench.observer.cpu()
    count = sum(worker.hear() for worker in workers)
    cpu = bench.observer.cpu() - cpu
    if not count:
        raise JobFailed(f"no cycle within {seconds:g} s")
    used = cpu / count * 1e6
    found: Figures = {}
    if spell.names == max(NAMES):
        found[f"cycles_per_s_{spell.processes}"] = count / seconds
        found[f"server_busy_percent_{spell.processes}"] = cpu / seconds * 100
        found[f"server_us_{spell.processes}"] = used
    if spell.names != max(NAMES) or spell.processes == max(PROCESSES):
        found[f"server_us_{spell.names}_names"] = used
    return found


def measure_waiters(bench: Bench, name: str, count: int, crew: Crew) -> Figures:
    observer, seconds = bench.observer, bench.choose(0.3, 0.6)
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
    return {
        f"turns_per_s_{count}_waiters": len(taken) / seconds,
        f"server_us_{count}_waiters": cpu / len(taken) * 1e6 if taken else None,
        f"connections_{count}_waiters": clients,
        f"bytes_per_waiter_{count}_waiters": memory / count,
        "turns": len(taken),
        "overlaps": overlaps(taken),
    }
