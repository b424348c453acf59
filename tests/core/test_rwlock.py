"""Many readers or one writer, and permits: threads that really wait."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core import RedisLock, RWLock
from tests.core.helpers import queue_of
from tests.processes import eventually

if TYPE_CHECKING:
    import redis

    from tests.servers import RealServer

REAL = pytest.mark.real


def most_at_once(locks: list[RedisLock], rounds: int) -> int:
    """Return how many threads had a lock at the same time, at most."""
    inside, most, guard = 0, 0, threading.Lock()

    def work(one: RedisLock) -> None:
        nonlocal inside, most
        for _ in range(rounds):
            with one:
                with guard:
                    inside += 1
                    most = max(most, inside)
                threading.Event().wait(0.002)
                with guard:
                    inside -= 1

    with ThreadPoolExecutor(len(locks)) as pool:
        for done in [pool.submit(work, one) for one in locks]:
            done.result(60)
    return most


@REAL
def test_no_more_than_the_limit_are_inside(server: RealServer) -> None:
    client = server.client()
    locks = [RedisLock(client, "lock:a", limit=3, blocking_timeout=30) for _ in range(8)]

    assert most_at_once(locks, 15) == 3


@REAL
def test_those_who_write_are_inside_alone(server: RealServer) -> None:
    both = RWLock(server.client(), "lock:a", blocking_timeout=30)

    assert most_at_once([both.write() for _ in range(4)], 15) == 1


@REAL
def test_a_reader_is_never_inside_with_a_writer(server: RealServer) -> None:
    client = server.client()
    both = RWLock(client, "lock:a", blocking_timeout=30)
    state: dict[str, int] = {"readers": 0, "writers": 0, "wrong": 0, "together": 0}
    guard = threading.Lock()

    def work(one: RedisLock, kind: str) -> None:
        for _ in range(20):
            with one:
                with guard:
                    state[kind] += 1
                    readers, writers = state["readers"], state["writers"]
                    state["wrong"] += writers > 1 or bool(writers and readers)
                    state["together"] = max(state["together"], readers)
                threading.Event().wait(0.001)
                with guard:
                    state[kind] -= 1

    with ThreadPoolExecutor(6) as pool:
        jobs: list[Any] = [pool.submit(work, both.read(), "readers") for _ in range(4)]
        jobs += [pool.submit(work, both.write(), "writers") for _ in range(2)]
        for job in jobs:
            job.result(60)

    assert state["wrong"] == 0
    assert state["together"] > 1


@REAL
def test_who_waits_is_woken_and_does_not_ask_in_between(server: RealServer) -> None:
    client = server.client()
    with ThreadPoolExecutor(1) as pool, RedisLock(client, "lock:a", shared=True):
        waiting = pool.submit(RedisLock(client, "lock:a").take, 20)
        eventually(lambda: len(queue_of(client)) == 1)
        before: Any = server.client().info("commandstats")
        threading.Event().wait(0.5)
        after: Any = server.client().info("commandstats")
    waiting.result(10).release()

    assert after["cmdstat_evalsha"]["calls"] - before["cmdstat_evalsha"]["calls"] <= 1


@REAL
def test_a_killed_reader_is_followed_when_its_lease_is_over(server: RealServer) -> None:
    client = server.client()
    # Not renewed: as one whose process was killed.
    RedisLock(client, "lock:a", 0.5, shared=True).take(0)

    held = RedisLock(client, "lock:a", 10).take(5)

    held.release()


def test_options_of_one_may_differ(redis_client: redis.Redis) -> None:
    both = RWLock(redis_client, "lock:a", timeout=10)

    assert both.read(timeout=5).timeout == 5
    assert both.write().timeout == 10
    assert both.key == "lock:a"
