"""Eight processes that want one lock again and again, and whether it ever let two in."""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.board import Board
from bench.figures import (
    Turn,
    arrivals,
    handovers,
    longest_wait,
    most_overtaken,
    most_overtaken_by_arrival,
    overlaps,
    percentile,
    span,
)
from bench.part import Bench, Figures, Outcome, say
from bench.peers import LOCKS, PEERS
from bench.wire import sent
from bench.workers import Crew, Pipe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.address import Observer

TITLE = "Contended: 8 processes, 5 ms of work each turn"
PROCESSES, TURNS, WORK = 8, 40, 0.005
LEASE = 30
# Long enough that the others come and wait meanwhile.
WARM = 0.02
# What a library does after a release, such as looking whether the next one came, is waited for.
AFTERWARDS = 0.2
# The libraries whose turns can be told apart at the server.
WITH_TOKENS = ("redis-py", "django-redis", "python-redis-lock", "plain", "next", "full")


def job(pipe: Pipe, name: str, who: int, turns: int, cap: float, path: Path) -> None:
    """Take ``turns`` turns, but begin none when ``cap`` seconds are over."""
    peer, board = PEERS[name](), Board(path)
    # Connections, those for waiting too, and scripts are there before the start.
    for _ in range(2):
        with peer.lock("warm", LEASE):
            time.sleep(WARM)
    pipe.say("ready")
    start = pipe.hear()
    before = sent()
    time.sleep(max(start - time.monotonic(), 0))
    taken: list[Turn] = []
    while len(taken) < turns and time.monotonic() < start + cap:
        wanted = time.monotonic()
        with peer.lock("contended", LEASE) as held:
            began = time.monotonic()
            seen = board.read()
            time.sleep(WORK)
            board.write(seen + 1)
            token = peer.token(held)
            ended = time.monotonic()
        taken.append(Turn(who, wanted, began, ended, token))
    pipe.say(taken)
    pipe.hear()
    pipe.say(sent() - before)


def run(bench: Bench) -> Outcome:
    outcome = Outcome()
    names = bench.taking_part((*LOCKS, "nothing"))
    rounds, turns, cap = bench.choose((1, 12, 3.0), (3, TURNS, 5.0))
    for number in range(rounds):
        say(f"  round {number + 1} of {rounds}")
        for name in random.sample(names, len(names)):
            outcome.add(name, partial(measure, bench, name, turns, cap))
    for name in bench.taking_part(WITH_TOKENS):
        outcome.add(name, partial(by_arrival, bench, name, turns, cap))
    return outcome


class Contest(NamedTuple):
    """What came of one contest: all turns, what they took, the number on the board at the end."""

    turns: list[Turn]
    written: int
    requests: int
    server_cpu: float
    server_calls: dict[str, int]

    def correctness(self) -> Figures:
        return {
            "overlaps": overlaps(self.turns),
            "lost_updates": len(self.turns) - self.written,
        }


def measure(bench: Bench, name: str, turns: int, cap: float, crew: Crew) -> Figures:
    contest = compete(bench.observer, crew, name, turns, cap)
    taken, count = contest.turns, len(contest.turns)
    waits = handovers(taken)
    return {
        "turns": count,
        **contest.correctness(),
        "handovers": len(waits),
        "handover_p50_ms": percentile(waits, 50) * 1000 if waits else None,
        "handover_p99_ms": percentile(waits, 99) * 1000 if waits else None,
        "total_over_ideal": span(taken) / (count * WORK),
        "most_overtaken": most_overtaken(taken),
        "longest_wait_s": longest_wait(taken),
        "requests_per_turn": contest.requests / count,
        "server_cpu_us_per_turn": contest.server_cpu / count * 1e6,
        "server_calls": contest.server_calls,
    }


def by_arrival(bench: Bench, name: str, turns: int, cap: float, crew: Crew) -> Figures:
    """Measure who overtook whom at the server. Being watched costs time, so nothing else is."""
    with monitoring(bench.observer.path) as monitored:
        contest = compete(bench.observer, crew, name, turns, cap)
    tokens = [turn.token for turn in contest.turns if turn.token]
    seen = arrivals(b"".join(monitored), tokens)
    return {
        **contest.correctness(),
        "most_overtaken_by_arrival": most_overtaken_by_arrival(contest.turns, seen),
    }


def compete(observer: Observer, crew: Crew, name: str, turns: int, cap: float) -> Contest:
    observer.forget()
    path = observer.path.with_name("board")
    Board.make(path)
    workers = [crew.start(job, name, who, turns, cap, path) for who in range(PROCESSES)]
    for worker in workers:
        worker.hear()
    time.sleep(AFTERWARDS)
    observer.forget()
    cpu = observer.cpu()
    start = time.monotonic() + 0.1
    for worker in workers:
        worker.say(start)
    taken: list[Turn] = [turn for worker in workers for turn in worker.hear(cap + 60)]
    time.sleep(AFTERWARDS)
    cpu = observer.cpu() - cpu
    requests = sum(worker.ask() for worker in workers)
    return Contest(taken, Board(path).read(), requests, cpu, observer.calls())


@contextmanager
def monitoring(path: Path) -> Iterator[list[bytes]]:
    """Collect what MONITOR says while the block runs; it is read only afterwards."""
    said: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(b"MONITOR\r\n")
        listener = threading.Thread(target=listen, args=(connection, said))
        listener.start()
        try:
            yield said
        finally:
            connection.shutdown(socket.SHUT_RDWR)
            listener.join()


def listen(connection: Any, said: list[bytes]) -> None:
    while chunk := connection.recv(1 << 20):
        said.append(chunk)
