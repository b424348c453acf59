"""Thousands of locks that are let go in one transaction, beside those that are free at once.

Both ways take turns in one process, in another order each round. Before the commit another process
tries some of the locks: it must get none of those that wait for it, and all of the others.
"""

from __future__ import annotations

import itertools
import random
import time
from functools import partial
from importlib import import_module

from django.db import transaction

from bench.bars import MEASURED
from bench.part import Bench, Figures, Outcome, say
from bench.peers import PEERS
from bench.workers import Crew, Pipe, Worker

LOCKS, STEP = 6000, 1000
TITLE = f"Transaction: {LOCKS:,} different locks let go in one atomic()"
WAYS = ("commit", "exit")
LEASE, TRIED = 30, 200


def job(pipe: Pipe, name: str) -> None:
    """Take and let go locks in one transaction, one way, whenever asked.

    Says the seconds of each thousand; when answered it commits, and says how long that took.
    """
    PEERS[name]()
    lock = import_module("django_setnx_lock").lock
    clock = time.perf_counter
    pipe.say("ready")
    while True:
        way = pipe.hear(None)
        marks = [clock()]
        with transaction.atomic():
            for number in range(LOCKS):
                with lock(key(way, number), timeout=LEASE, until_commit=way == "commit"):
                    pass
                if number % STEP == STEP - 1:
                    marks.append(clock())
            pipe.say([after - before for before, after in itertools.pairwise(marks)])
            pipe.hear()
            began = clock()
        pipe.say(clock() - began)


def key(way: str, number: int) -> str:
    return f"transaction:{way}:{number}"


def rival(pipe: Pipe, name: str) -> None:
    """Say how many of the locks heard can be had at once."""
    PEERS[name]()
    lock = import_module("django_setnx_lock").lock
    pipe.say("ready")
    while True:
        had = 0
        for one in pipe.hear(None):
            rivals = lock(one, timeout=LEASE)
            if rivals.acquire(blocking=False):
                rivals.release()
                had += 1
        pipe.say(had)


def run(bench: Bench) -> Outcome:
    outcome = Outcome()
    for name in bench.taking_part((MEASURED,)):
        with Crew() as crew:
            workers = crew.start(job, name), crew.start(rival, name)
            for worker in workers:
                worker.hear()
            rounds = bench.choose(3, 9)
            for number in range(rounds):
                say(f"  round {number + 1} of {rounds}")
                bench.observer.forget()
                ways = WAYS if number % 2 else WAYS[::-1]
                outcome.note(name, partial(one_round, *workers, ways))
    return outcome


def one_round(worker: Worker, other: Worker, ways: tuple[str, ...]) -> Figures:
    found: Figures = {"turns": LOCKS}
    seconds: dict[str, float] = {}
    for way in ways:
        steps = worker.ask(way)
        had = other.ask([key(way, number) for number in random.sample(range(LOCKS), TRIED)])
        commit = worker.ask()
        seconds[way] = sum(steps) + commit
        if way == "commit":
            found |= {"overlaps": had, "commit_s": commit, "last_to_first": steps[-1] / steps[0]}
        else:
            # The control: what is let go at once can be had.
            found["failures"] = TRIED - had
        found[f"{way}_s_per_1000"] = seconds[way] / LOCKS * 1000
    found["to_exit"] = seconds["commit"] / seconds["exit"]
    return found
