"""A thousand locks held by one process, which renews them."""

from __future__ import annotations

import time
from functools import partial

from bench.holding import hold, spent
from bench.part import Bench, Figures, Outcome
from bench.peers import PEERS
from bench.workers import Crew

TITLE = "Many: 1,000 locks held and renewed by one process"
LOCKS = 1000


def run(bench: Bench) -> Outcome:
    outcome = Outcome()
    # Every library's renewals come round at least twice.
    lease, seconds = bench.choose((3, 4.5), (6, 16.0))
    for name in bench.taking_part(name for name, peer in PEERS.items() if peer.renews):
        outcome.add(name, partial(measure, bench, name, lease, seconds))
    return outcome


def measure(bench: Bench, name: str, lease: int, seconds: float, crew: Crew) -> Figures:
    observer = bench.observer
    observer.forget()
    locks = [f"many:{number}" for number in range(LOCKS)]
    worker = crew.start(hold, name, locks, lease)
    began, keys = worker.hear()
    observer.client.config_resetstat()
    server_cpu = observer.cpu()
    before = worker.ask()
    time.sleep(seconds)
    used, after = spent(before, worker.ask()), worker.ask()
    server_cpu = observer.cpu() - server_cpu
    calls = observer.calls()
    scripts = sum(calls.get(command, 0) for command in ("evalsha", "eval", "fcall"))
    cycles = scripts / LOCKS
    return {
        "lease_s": lease,
        "threads": after["threads"],
        "rss_mb": after["rss_mb"],
        "taken_in_s": began[-1] - began[0],
        "renewals": scripts,
        "cycles": cycles,
        "requests_per_cycle": used["requests"] / cycles if cycles else None,
        "cpu_ms_per_cycle": used["cpu"] / cycles * 1000 if cycles else None,
        "cpu_percent": used["cpu"] / used["at"] * 100,
        "server_cpu_percent": server_cpu / used["at"] * 100,
        "lost": LOCKS - int(observer.client.exists(*keys)),
    }
