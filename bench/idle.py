"""What waiting costs: fifty threads behind a lock that stays held, and its renewal."""

from __future__ import annotations

import time

from bench.holding import hold, spent, wait_idly
from bench.part import Bench, Figures, Outcome, say
from bench.peers import LOCKS, PEERS
from bench.workers import Crew, JobFailed, Worker

TITLE = "Idle: 50 waiters behind a lock with a lease of 30 s"
WAITERS, LEASE = 50, 30
# For holders that nobody renews: longer than this part takes.
UNRENEWED = 120
# Till all of them wait, and have warned of it.
SETTLE = 6.0


def run(bench: Bench) -> Outcome:
    """Let all peers wait at once: what each sends is counted in its own processes."""
    outcome = Outcome()
    # A whole lease, so that every renewal and whatever waiters do now and then is in it.
    seconds = bench.choose(4.0, LEASE)
    bench.observer.forget()
    with Crew() as crew:
        pairs = {}
        for name in bench.taking_part(LOCKS):
            say(f"  {name}")
            try:
                pairs[name] = start(crew, name)
            except JobFailed as error:
                outcome.failed[name] = str(error)
        time.sleep(SETTLE)
        before = {name: look(outcome, name, pair) for name, pair in pairs.items()}
        time.sleep(seconds)
        for name, pair in pairs.items():
            after = look(outcome, name, pair)
            if name not in outcome.failed:
                outcome.rounds[name] = [figures(before[name], after)]
    return outcome


def start(crew: Crew, name: str) -> tuple[Worker, Worker]:
    lock = f"idle:{name}"
    holder = crew.start(hold, name, [lock], LEASE if PEERS[name].renews else UNRENEWED)
    holder.hear()
    waiters = crew.start(wait_idly, name, [lock] * WAITERS, LEASE)
    waiters.hear()
    return holder, waiters


def look(outcome: Outcome, name: str, pair: tuple[Worker, Worker]) -> list[dict[str, float]]:
    if name in outcome.failed:
        return []
    try:
        return [worker.ask() for worker in pair]
    except JobFailed as error:
        outcome.failed[name] = str(error)
        return []


def figures(before: list[dict[str, float]], after: list[dict[str, float]]) -> Figures:
    holder, waiters = (spent(*pair) for pair in zip(before, after, strict=True))
    return {
        "seconds": waiters["at"],
        "requests_per_s": (holder["requests"] + waiters["requests"]) / waiters["at"],
        "waiters_requests_per_s": waiters["requests"] / waiters["at"],
        "waiters_cpu_percent": waiters["cpu"] / waiters["at"] * 100,
        "threads": after[1]["threads"],
    }
