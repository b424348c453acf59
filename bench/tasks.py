"""The tasks of one event loop: how they hand a lock on, and what thousands of them that wait take.

Whether all wait is asked of the server where it has a queue; elsewhere each task counts itself on a
board when it was refused once.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.board import Board
from bench.figures import Turn, handovers, overlaps, percentile
from bench.part import Bench, Figures, Outcome, say
from bench.peers import PEERS
from bench.workers import Crew, JobFailed, Pipe

if TYPE_CHECKING:
    from bench.address import Observer
    from bench.peers import Peer

TITLE = "Tasks: one event loop with 8 that take turns, then with 3,000 that wait"
# The libraries that have a lock for asyncio.
WITH_TASKS = ("redis-py", "pottery", "plain", "next", "full")
# pottery tells neither in Redis nor in its methods that somebody waits.
IN_CROWDS = ("redis-py", "plain", "next", "full")
TASKS, TURNS, WORK = 8, 40, 0.005
# No lease of a crowd ends meanwhile, with or without renewal.
CROWD, QUICK_CROWD, LEASE = 3000, 500, 120
# How long a crowd may take to come, and how long after it is looked at, in seconds.
QUEUED_WITHIN, QUICK_QUEUED_WITHIN, SETTLE = 8.0, 4.0, 0.2


def take_turns(pipe: Pipe, name: str, turns: int, cap: float) -> None:
    """Let tasks take ``turns`` turns each at one lock, but begin none after ``cap`` seconds."""
    pipe.say(asyncio.run(turns_of_all(PEERS[name](), turns, cap)))


async def turns_of_all(peer: Peer, turns: int, cap: float) -> list[Turn]:
    taken: list[Turn] = []
    # Connections and scripts are there before the start.
    await asyncio.gather(*(one_turn(peer, "warm", who, 0) for who in range(TASKS)))
    end = time.monotonic() + cap

    async def task(who: int) -> None:
        for _ in range(turns):
            if time.monotonic() >= end:
                break
            turn = await one_turn(peer, "tasks", who, WORK)
            taken.append(turn)

    await asyncio.gather(*map(task, range(TASKS)))
    return taken


async def one_turn(
    peer: Peer, lock: str, who: int, work: float, board: Board | None = None
) -> Turn:
    def refused() -> None:
        if board is not None:
            board.write(board.read() + 1)

    wanted = time.monotonic()
    async with peer.lock_of_task(lock, LEASE, refused=refused):
        began = time.monotonic()
        await asyncio.sleep(work)
        ended = time.monotonic()
    return Turn(who, wanted, began, ended)


def gather(pipe: Pipe, name: str, tasks: int, locks: int, cap: float, path: Path) -> None:
    """Hold ``locks`` locks and let ``tasks`` wait for them; when told to, let them in.

    Says where the queues are once the locks are held, when the first began to wait, and at last the
    turns that were taken within ``cap`` seconds, of each lock.
    """
    asyncio.run(Throng(pipe, PEERS[name](large=True), tasks, locks, Board(path)).meet(cap))


class Throng:
    """Tasks that wait for locks which another task holds."""

    def __init__(self, pipe: Pipe, peer: Peer, tasks: int, locks: int, board: Board) -> None:
        self.pipe, self.peer, self.tasks, self.board = pipe, peer, tasks, board
        self.locks = [f"crowd:{number}" for number in range(locks)]
        self.taken: dict[str, list[Turn]] = {lock: [] for lock in self.locks}

    async def meet(self, cap: float) -> None:
        held = {}
        for lock in self.locks:
            held[lock] = self.peer.lock_of_task(lock, LEASE, refused=lambda: None)
            await held[lock].__aenter__()
        wanted = time.monotonic()
        self.pipe.say([self.peer.queue(lock) for lock in self.locks])
        await asyncio.to_thread(self.pipe.hear, None)
        self.pipe.say(time.monotonic())
        waiting = [asyncio.create_task(self.wait(who)) for who in range(self.tasks)]
        await asyncio.to_thread(self.pipe.hear, None)
        end = time.monotonic() + cap
        for lock in self.locks:
            # Where the loop is busy with those that wait, each release takes long.
            if time.monotonic() > end:
                break
            self.taken[lock].append(Turn(-1, wanted, wanted, time.monotonic()))
            await held[lock].__aexit__(None, None, None)
        done, late = await asyncio.wait(waiting, timeout=max(end - time.monotonic(), 0))
        for task in done:
            task.result()  # raises what went wrong
        self.pipe.say((list(self.taken.values()), len(late)))

    async def wait(self, who: int) -> None:
        lock = self.locks[who % len(self.locks)]
        self.taken[lock].append(await one_turn(self.peer, lock, who, 0, self.board))


def run(bench: Bench) -> Outcome:
    outcome = Outcome()
    rounds, turns, cap = bench.choose((1, 12, 0.5), (2, TURNS, 2.0))
    for number in range(rounds):
        say(f"  round {number + 1} of {rounds}")
        for name in bench.taking_part((*WITH_TASKS, "nothing")):
            outcome.add(name, partial(measure_turns, bench, name, turns, cap))
    for name in bench.taking_part(IN_CROWDS):
        for kind in ("one", "each"):
            outcome.add(name, partial(measure_crowd, bench, name, kind))
    return outcome


def measure_turns(bench: Bench, name: str, turns: int, cap: float, crew: Crew) -> Figures:
    bench.observer.forget()
    taken: list[Turn] = crew.start(take_turns, name, turns, cap).hear(cap + 60)
    return {"turns": len(taken), "overlaps": overlaps(taken), **handed_on("", handovers(taken))}


def handed_on(prefix: str, seconds: list[float]) -> Figures:
    return {
        f"{prefix}handover_p{percent}_ms": percentile(seconds, percent) * 1000 if seconds else None
        for percent in (50, 99)
    }


def measure_crowd(bench: Bench, name: str, kind: str, crew: Crew) -> Figures:
    """Measure a crowd at one lock, or with a lock for each. What hinders it is told in words.

    A crowd that a library cannot serve leaves it its other figures.
    """
    try:
        return {"crowd": crowd_of(bench), **crowded(bench, name, kind, crew)}
    except JobFailed as error:
        say(f"  {name} failed with {crowd_of(bench):,} tasks ({kind}): {error}")
        return {"crowd": crowd_of(bench), f"{kind}_failed": str(error)}


def crowd_of(bench: Bench) -> int:
    return int(bench.choose(QUICK_CROWD, CROWD))


def crowded(bench: Bench, name: str, kind: str, crew: Crew) -> Figures:
    observer, tasks = bench.observer, crowd_of(bench)
    locks = tasks if kind == "each" else 1
    patience, cap = bench.choose((QUICK_QUEUED_WITHIN, 0.25), (QUEUED_WITHIN, 3.0))
    observer.forget()
    path = observer.path.with_name("board")
    Board.make(path)
    clients = observer.clients()
    worker = crew.start(gather, name, tasks, locks, cap, path)
    queues = worker.hear()
    memory = observer.memory()
    began = worker.ask("wait")
    queued, most = until_queued(observer, queues, Board(path), tasks, began + patience)
    if queued is None:
        # A task that failed says why.
        worker.ask("go", patience)
        raise JobFailed(f"not all waited after {patience:g} s")
    time.sleep(SETTLE)
    found: Figures = {
        f"{kind}_queued_s": queued - began,
        f"{kind}_connections": observer.clients() - clients,
        f"{kind}_most_connections": most - clients,
        f"{kind}_bytes_per_waiter": (observer.memory() - memory) / tasks,
    }
    taken, late = worker.ask("go", cap * 2 + 60)
    return {
        **found,
        **handed_on(f"{kind}_", [one for turns in taken for one in handovers(turns)]),
        f"{kind}_late": late,
        "turns": tasks - late,
        "overlaps": sum(map(overlaps, taken)),
    }


def until_queued(
    observer: Observer, queues: list[Any], board: Board, tasks: int, deadline: float
) -> tuple[float | None, int]:
    """Wait until all tasks are queued, and return when that was (None if it takes too long).

    Also return the most connections that the server was seen with meanwhile.
    """
    most = observer.clients()
    while queued(observer, queues, board) < tasks:
        if time.monotonic() > deadline:
            return None, most
        time.sleep(0.02)
        most = max(most, observer.clients())
    return time.monotonic(), most


def queued(observer: Observer, queues: list[Any], board: Board) -> int:
    if None in queues:
        return board.read()
    if len(queues) == 1:
        return int(observer.client.zcard(queues[0]))
    return int(observer.client.exists(*queues))
