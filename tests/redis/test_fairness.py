"""Who gets the lock first of those who wait: what docs/redis.md says under "Fair or not"."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from django_setnx_lock.core import RedisLock, Redlock
from tests.processes import eventually, figure
from tests.redis.clusters import Cluster
from tests.redis.test_sentinel import client_of, watched_over
from tests.servers import RealServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytest.importorskip("bench", reason="a source distribution has no bench")
from bench.figures import Turn, most_overtaken

WAITERS, ROUNDS, WORK = 8, 3, 0.002


class Contest(NamedTuple):
    """``make``: makes the lock for one caller. ``queued``: how many are in its queue, if any."""

    make: Callable[[], RedisLock]
    queued: Callable[[], int] | None = None


@contextlib.contextmanager
def queueing(server: RealServer, folder: Path) -> Iterator[Contest]:
    yield queue_at(server, server.client())


@contextlib.contextmanager
def through_sentinel(server: RealServer, folder: Path) -> Iterator[Contest]:
    with watched_over(server, folder) as sentinel, client_of(sentinel) as client:
        yield queue_at(server, client)


def queue_at(server: RealServer | Cluster, client: Any) -> Contest:
    admin: Any = server.client()
    return Contest(
        lambda: RedisLock(client, "lock:a"), lambda: int(admin.zcard("{lock:a}:waiters"))
    )


@contextlib.contextmanager
def timestamps(server: RealServer, folder: Path) -> Iterator[Contest]:
    client = server.client()
    yield Contest(lambda: RedisLock(client, "lock:a", protocol="timestamp-ms"))


@contextlib.contextmanager
def hosted(server: RealServer, folder: Path) -> Iterator[Contest]:
    client = server.client()
    yield Contest(lambda: RedisLock(client, "lock:a", protocol="hosted"))


@contextlib.contextmanager
def redlock(server: RealServer, folder: Path) -> Iterator[Contest]:
    with RealServer(server.binary) as second, RealServer(server.binary) as third:
        clients = [one.client() for one in (server, second, third)]
        yield Contest(lambda: Redlock(clients, "lock:a", master_timeout=1))


def overtaken(contest: Contest) -> int:
    """Return by how many of those who came later one was overtaken at most.

    All of them wait when the lock is let go.
    """
    held = contest.make().take(10)
    turns: list[Turn] = []

    def take(number: int, wants: threading.Event) -> None:
        one = contest.make()
        wanted = time.monotonic()
        wants.set()
        got = one.take(30)
        began = time.monotonic()
        time.sleep(WORK)
        turns.append(Turn(number, wanted, began, time.monotonic()))
        got.release()

    with ThreadPoolExecutor(WAITERS) as pool:
        waiting = []
        for number in range(WAITERS):
            wants = threading.Event()
            waiting.append(pool.submit(take, number, wants))
            assert wants.wait(10)
            if contest.queued is not None:
                queued = contest.queued
                eventually(lambda: queued() == len(waiting))  # noqa: B023 - called at once
        held.release()
        for one in waiting:
            one.result(40)
    return most_overtaken(turns)


def worst(setting: Any, server: RealServer, folder: Path) -> int:
    with setting(server, folder) as contest:
        return worst_of(contest, setting.__name__)


def worst_of(contest: Contest, name: str) -> int:
    found = max(overtaken(contest) for _ in range(ROUNDS))
    figure(f"{name}: {found} of {WAITERS - 1} at most came before one who was earlier")
    return found


# On a busy machine a waiter may take so long to answer that it passes for dead.
@pytest.mark.usefixtures("nobody_looks")
@pytest.mark.parametrize("setting", [queueing, through_sentinel])
def test_who_comes_first_is_served_first(
    setting: Any, real_server: RealServer, tmp_path: Path
) -> None:
    assert worst(setting, real_server, tmp_path) == 0


@pytest.mark.usefixtures("nobody_looks")
def test_so_it_is_on_a_cluster(masters: Cluster) -> None:
    assert worst_of(queue_at(masters, masters.client()), "cluster") == 0


@pytest.mark.parametrize("setting", [timestamps, hosted, redlock])
def test_where_nobody_queues_it_is_chance(
    setting: Any, real_server: RealServer, tmp_path: Path
) -> None:
    assert worst(setting, real_server, tmp_path) > 0
