"""What the parts do with a lock, and how they count; with the control, which lets everybody in."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench import __main__ as program
from bench import report
from bench.address import URL_VARIABLE, Observer
from bench.board import Board
from bench.capacity import Waiters
from bench.figures import handovers, overlaps
from bench.footprint import busy, cycles, free, keep, keys_of, names
from bench.peers import Nothing, Peer, Plain, RedisPy
from bench.tasks import TASKS, one_turn, queued, turns_of_all
from tests.processes import eventually
from tests.servers import RealServer

LEASE = 30
ROOT = Path(__file__).parents[2]
TEXT = ROOT.joinpath("bench", "README.md").read_text()
# Importing it sets Django up for another project.
PRELOAD = ROOT.joinpath("bench", "preload.py").read_text()


@pytest.fixture
def bench_server(real_server: RealServer, monkeypatch: pytest.MonkeyPatch) -> RealServer:
    """Give the server on which the adapters find themselves."""
    monkeypatch.setenv(URL_VARIABLE, real_server.unix_url)
    return real_server


@pytest.fixture
def plain(bench_server: RealServer) -> Plain:
    return Plain()


@pytest.fixture
def observer(bench_server: RealServer) -> Observer:
    path = re.fullmatch(r"unix://([^?]+).*", bench_server.unix_url)
    assert path is not None
    return Observer(Path(path[1]))


def test_each_part_has_a_table_is_loaded_before_and_is_in_the_docs() -> None:
    parts = set(program.PARTS)

    assert set(report.TABLES) == parts
    assert {part for part in parts if f'"{part}"' not in PRELOAD} == set()
    assert {part for part in parts if f"`{part}`" not in TEXT} == set()
    sections = {title.replace("-", "").lower() for title in re.findall("\n### (.*)", TEXT)}
    assert sections == parts


def test_tasks_that_lock_do_not_overlap_and_hand_on(plain: Plain) -> None:
    turns = asyncio.run(turns_of_all(plain, 2, 20))

    assert len(turns) == 2 * TASKS
    assert overlaps(turns) == 0
    assert handovers(turns)


def test_tasks_without_a_lock_overlap(bench_server: RealServer) -> None:
    assert overlaps(asyncio.run(turns_of_all(Nothing(), 2, 20))) > 0


def test_no_task_begins_a_turn_after_the_end(bench_server: RealServer) -> None:
    assert asyncio.run(turns_of_all(Nothing(), 5, 0)) == []


async def refused_or_queued(peer: Peer, path: Path, found: Callable[[], bool]) -> None:
    """Let a task wait for a lock until it is found to."""
    async with peer.lock_of_task("a", LEASE, refused=lambda: None):
        waiting = asyncio.create_task(one_turn(peer, "a", 1, 0, Board(path)))
        deadline = time.monotonic() + 20
        while not found():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
    await waiting


def test_a_waiting_task_of_this_project_is_counted_at_the_server(
    plain: Plain, observer: Observer, tmp_path: Path
) -> None:
    Board.make(tmp_path / "board")
    board = Board(tmp_path / "board")
    queues = [plain.queue("a")]
    seen = [queued(observer, queues, board), queued(observer, [*queues, plain.queue("b")], board)]

    asyncio.run(
        refused_or_queued(plain, tmp_path / "board", lambda: queued(observer, queues, board) == 1)
    )

    assert seen == [0, 0]
    assert board.read() == 0


def test_a_waiting_task_of_a_library_that_polls_counts_itself_once(
    bench_server: RealServer, observer: Observer, tmp_path: Path
) -> None:
    Board.make(tmp_path / "board")
    board = Board(tmp_path / "board")

    async def work() -> None:
        peer = RedisPy()
        await refused_or_queued(
            peer, tmp_path / "board", lambda: queued(observer, [None], board) == 1
        )
        await peer.client_of_tasks.aclose()

    asyncio.run(work())

    assert board.read() == 1


def test_a_busy_lock_is_had_by_nobody(plain: Plain) -> None:
    kept: list[object] = []
    keep(kept, plain, 1)

    # Another lock object: no lock is entered again.
    assert busy(RedisPy(), 5) == 0
    assert free(kept, plain, 1) == 1
    assert busy(RedisPy(), 1) == 1


def test_without_a_lock_every_attempt_succeeds(bench_server: RealServer) -> None:
    assert busy(Nothing(), 5) == 5


def test_cycles_use_one_name_and_names_many(plain: Plain, observer: Observer) -> None:
    # A script that the server does not know yet is sent twice, for which a key stays.
    cycles(plain, 1)
    observer.client.flushdb()

    cycles(plain, 5)
    of_one = observer.client.dbsize()
    names(plain, 5)

    assert (of_one, observer.client.dbsize()) == (1, 6)


def test_keys_whose_time_is_over_are_not_left(observer: Observer) -> None:
    observer.client.set("stays", 1)
    observer.client.set("goes", 1, px=1)

    eventually(lambda: observer.client.pttl("goes") == -2)

    assert keys_of(observer, 0) == 1
    assert keys_of(observer, 9) == 0


@pytest.mark.parametrize(("kind", "overlapping"), [(Plain, False), (Nothing, True)])
def test_threads_in_a_queue_take_turns_and_what_overlaps_is_seen(
    bench_server: RealServer, kind: type[Peer], overlapping: bool
) -> None:
    waiters = Waiters(kind(large=True), 0, 4)

    waiters.start()
    eventually(lambda: len(waiters.taken) >= 40)
    waiters.stop(20)

    waiters.refuse_errors()
    assert (overlaps(waiters.taken) > 0) is overlapping
