"""How soon the next holder is in after the holder was killed with -9."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from bench.figures import median
from bench.holding import hold, wait_staggered
from bench.part import Bench, Figures, Outcome, say
from bench.peers import LOCKS, PEERS
from bench.workers import Crew, JobFailed

if TYPE_CHECKING:
    from bench.address import Observer

TITLE = "Take-over: after kill -9 of a holder with a lease of 2 s"
LOCKS_EACH, LEASE = 5, 2
# The waiters come one after another while the lease runs, as they do in life.
STAGGER, KILLED_AFTER = 0.3, 1.6
# The peers begin one after another, so that they do not all wake at once.
APART = 0.37
PATIENCE = LEASE * 4
# The server tells what is left of a lease in whole milliseconds.
ROUNDING = 0.002


def run(bench: Bench) -> Outcome:
    outcome = Outcome()
    rounds = bench.choose(1, 3)
    for number in range(rounds):
        say(f"  round {number + 1} of {rounds}")
        one_round(bench, outcome)
    return outcome


class Trial:
    """A holder of a few locks, and somebody who waits for each of them."""

    def __init__(self, crew: Crew, name: str) -> None:
        locks = [f"takeover:{name}:{number}" for number in range(LOCKS_EACH)]
        self.has_lease = PEERS[name].has_lease
        self.waiters = crew.start(wait_staggered, name, locks, LEASE, STAGGER, PATIENCE)
        self.waiters.hear()
        self._holder = crew.start(hold, name, locks, LEASE)
        began, self._keys = self._holder.hear()
        self.waiters.say("go")
        self._due = began[0] + KILLED_AFTER
        self.ends: list[float] = []

    def kill_when_due(self, observer: Observer) -> None:
        """Kill the holder if its time has come, and note when each of its leases ends."""
        if not self.ends and time.monotonic() >= self._due:
            killed = time.monotonic()
            self._holder.kill()
            self.ends = [killed] * LOCKS_EACH
            if self.has_lease:
                self.ends = [observer.lease_end(key) or killed for key in self._keys]


def one_round(bench: Bench, outcome: Outcome) -> None:
    bench.observer.forget()
    names = [name for name in bench.taking_part(LOCKS) if name not in outcome.failed]
    trials: dict[str, Trial] = {}
    with Crew() as crew:
        begin = time.monotonic()
        for number, name in enumerate(names):
            wait_until(begin + number * APART, trials, bench.observer)
            try:
                trials[name] = Trial(crew, name)
            except JobFailed as error:
                outcome.failed[name] = str(error)
        while not all(trial.ends for trial in trials.values()):
            wait_until(time.monotonic() + 0.01, trials, bench.observer)
        for name, trial in trials.items():
            outcome.note(name, partial(figures, trial))


def wait_until(moment: float, trials: dict[str, Trial], observer: Observer) -> None:
    """Wait, and kill the holders whose time comes meanwhile."""
    while True:
        for trial in trials.values():
            trial.kill_when_due(observer)
        if (left := moment - time.monotonic()) <= 0:
            break
        time.sleep(min(left, 0.005))


def figures(trial: Trial) -> Figures:
    began = trial.waiters.hear(PATIENCE + LEASE)
    pairs = zip(began, trial.ends, strict=True)
    delays = [start - end for start, end in pairs if start is not None]
    if not delays:
        raise JobFailed(f"nobody was in within {PATIENCE} s")
    return {
        "median_ms": median(delays) * 1000,
        "worst_ms": max(delays) * 1000,
        "early": sum(delay < -ROUNDING for delay in delays),
        "failures": began.count(None),
        "delays_ms": [delay * 1000 for delay in delays],
    }
