"""Callers that hold locks and wait for each other: one of them is refused, and nobody else is."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockDeadlock
from django_setnx_lock.core import MultiLock
from django_setnx_lock.core.locks import parent_process
from django_setnx_lock.core.protocol import scripts
from tests.core.aio.helpers import run
from tests.core.helpers import INDEX, in_thread, listed, queue_of
from tests.processes import eventually, figure
from tests.support.seams import mutate

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_setnx_lock.core import RedisLock
    from tests.servers import RealServer

# A lock to hold, and one to take then.
Both = tuple[Any, Any]
EVERY = float(os.environ.get("DEADLOCK_EVERY", "0.2"))
LATE = EVERY + 3.0
LONG = [pytest.mark.storm, pytest.mark.timeout(7200)]
# How long it took until one was refused.
TOOK: list[float] = []


def known(client: Any, key: str, **options: Any) -> RedisLock:
    given = {"blocking_timeout": 20, "renew": True, "deadlock_timeout": EVERY, **options}
    return listed(client, key, **given)


def several(client: Any, *keys: str) -> MultiLock:
    options: dict[str, Any] = {
        "blocking_timeout": 20,
        "renew": True,
        "deadlock_timeout": EVERY,
    }
    names = [f"lock:{key}" for key in keys]
    return MultiLock(client, names, keys=keys, index=INDEX, **options)


def meet_in_a_knot(*callers: Both, within: float = LATE) -> list[LockDeadlock]:
    """Have each caller, in a thread, hold one lock and take the other when all do that."""
    ready = threading.Barrier(len(callers))

    def take(both: Both) -> LockDeadlock | None:
        first, second = both
        with first:
            ready.wait(10)
            began = time.monotonic()
            try:
                with second:
                    return None
            except LockDeadlock as error:
                TOOK.append(time.monotonic() - began)
                assert TOOK[-1] < within
                return error

    with ThreadPoolExecutor(len(callers)) as pool:
        return [error for error in pool.map(take, callers, timeout=60) if error is not None]


def ring(client: Any, count: int) -> list[Both]:
    return [
        (known(client, f"k{number}"), known(client, f"k{(number + 1) % count}"))
        for number in range(count)
    ]


def reader_and_writer(client: Any) -> list[Both]:
    reader = known(client, "a", shared=True), known(client, "b")
    return [reader, (known(client, "b"), known(client, "a"))]


def permits(client: Any) -> list[Both]:
    """Return callers that have all permits, and one that wants one and has what they want."""
    waiting = [(known(client, "p", limit=2), known(client, "b")) for _ in range(2)]
    return [*waiting, (known(client, "b"), known(client, "p", limit=2))]


def several_keys(client: Any) -> list[Both]:
    return [
        (several(client, "a", "b"), several(client, "c", "d")),
        (several(client, "c", "e"), several(client, "b", "f")),
    ]


KNOTS: dict[str, Callable[[Any], list[Both]]] = {
    "two": lambda client: ring(client, 2),
    "three": lambda client: ring(client, 3),
    "many": lambda client: ring(client, 9),
    "reader and writer": reader_and_writer,
    "permits": permits,
    "several keys": several_keys,
}


@pytest.mark.parametrize("knot", KNOTS.values(), ids=KNOTS)
def test_exactly_one_of_a_deadlock_is_refused(
    redis_client: redis.Redis, knot: Callable[[Any], list[Both]]
) -> None:
    assert len(meet_in_a_knot(*knot(redis_client))) == 1


def test_a_caller_with_some_of_several_keys_is_one_of_a_deadlock(
    redis_client: redis.Redis,
) -> None:
    has_a = threading.Event()

    def take_all() -> object:
        with several(redis_client, "a", "c"):
            return None

    def take_first() -> object:
        with known(redis_client, "c"):
            has_a.set()
            eventually(lambda: redis_client.exists("lock:a"))
            with known(redis_client, "a"):
                return None

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(take_first)
        assert has_a.wait(10)
        second = pool.submit(take_all)
        errors = [first.exception(10), second.exception(10)]

    assert [type(error) for error in errors if error] == [LockDeadlock]


async def meet_in_tasks(client: redis.Redis) -> list[LockDeadlock]:
    holding: list[str] = []
    both_hold = asyncio.Event()

    async def take(first: str, second: str) -> LockDeadlock | None:
        async with known(client, first):
            holding.append(first)
            if len(holding) == 2:
                both_hold.set()
            await both_hold.wait()
            began = time.monotonic()
            try:
                async with known(client, second):
                    return None
            except LockDeadlock as error:
                TOOK.append(time.monotonic() - began)
                return error

    found = await asyncio.gather(take("a", "b"), take("b", "a"))
    return [error for error in found if error is not None]


def test_two_tasks_find_it(real_server: RealServer) -> None:
    assert len(run(meet_in_tasks(real_server.client()))) == 1


# Arguments: the address of the server, its own key, that of the other, how many times.
HOLDER = """
import sys, time, redis
from tests.core.test_deadlocks import known
from django_setnx_lock import LockDeadlock
address, mine, other, times = sys.argv[1:]
client = redis.Redis.from_url(address)
for _ in range(int(times)):
    with known(client, mine, label=mine):
        client.rpush("holds:" + mine, 1)
        client.blpop("holds:" + other, timeout=20)
        began = time.monotonic()
        try:
            with known(client, other, label=mine):
                print("went on")
        except LockDeadlock as error:
            print("refused", time.monotonic() - began, *error.cycle, sep="|")
"""


def meet_in_processes(server: RealServer, times: int) -> list[list[str]]:
    """Return what two processes say of each of so many deadlocks, in pairs of lines."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", HOLDER, server.url, *keys, str(times)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for keys in (("a", "b"), ("b", "a"))
    ]
    said = [one.communicate(timeout=30 + times * LATE)[0].splitlines() for one in started]
    return [sorted(pair, key=len) for pair in zip(*said, strict=True)]


def test_two_processes_find_it_and_the_error_draws_it(real_server: RealServer) -> None:
    ((went_on, refused),) = meet_in_processes(real_server, 1)

    assert went_on == "went on"
    _, _, mine, other = refused.split("|")
    key, wanted = ("a", "b") if "(a)" in mine else ("b", "a")
    assert mine.endswith(f"({key}) holds '{key}' and waits for '{wanted}'")
    assert other.endswith(f"({wanted}) holds '{wanted}' and waits for '{key}'")


def in_threads(knot: Callable[[Any], list[Both]]) -> Callable[[RealServer, int], list[int]]:
    def meet(server: RealServer, times: int) -> list[int]:
        client = server.client()
        return [len(meet_in_a_knot(*knot(client))) for _ in range(times)]

    return meet


def in_tasks(server: RealServer, times: int) -> list[int]:
    client = server.client()

    async def meet() -> list[int]:
        return [len(await meet_in_tasks(client)) for _ in range(times)]

    return run(meet(), 30 + times * LATE)


def in_processes(server: RealServer, times: int) -> list[int]:
    refused = [
        [line.split("|")[1] for line in pair if line.startswith("refused")]
        for pair in meet_in_processes(server, times)
    ]
    TOOK.extend(float(took) for each in refused for took in each)
    return list(map(len, refused))


WAYS = {
    **{name: in_threads(knot) for name, knot in KNOTS.items()},
    "two tasks": in_tasks,
    "two processes": in_processes,
}


@pytest.mark.storm
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("meet", WAYS.values(), ids=WAYS)
def test_exactly_one_is_refused_each_time(
    real_server: RealServer, meet: Callable[[RealServer, int], list[int]]
) -> None:
    times = int(os.environ.get("DEADLOCK_ROUNDS", "50"))

    found = meet(real_server, times)

    took = max(TOOK[-times:])
    figure(f"{times} deadlocks, {took:.3f} s at most, refused in each: {sorted(set(found))}")
    assert len(found) == times
    assert set(found) == {1}


def test_the_error_is_a_busy_one_and_comes_home_from_a_worker(redis_client: redis.Redis) -> None:
    (error,) = meet_in_a_knot(*ring(redis_client, 2))

    assert isinstance(error, LockBusy)
    assert error.holder is not None
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (again.cycle, str(again)) == (error.cycle, str(error))
    assert error.cycle[0].waits_for == error.key


def test_a_caller_behind_a_deadlock_is_not_refused(redis_client: redis.Redis) -> None:
    behind = known(redis_client, "other"), known(redis_client, "k0")

    (error,) = meet_in_a_knot(*ring(redis_client, 2), behind)

    assert {step.holds for step in error.cycle} == {"k0", "k1"}


def test_a_reader_behind_a_waiting_writer_is_in_its_deadlock(redis_client: redis.Redis) -> None:
    """The writer holds nothing: it waits for one reader, who waits for the other."""
    queued = threading.Event()

    def write() -> None:
        eventually(lambda: redis_client.exists("lock:a"))
        queued.set()
        with known(redis_client, "a"):
            pass

    def read_behind() -> bool:
        with known(redis_client, "b"):
            assert queued.wait(10)
            eventually(lambda: len(queue_of(redis_client)) == 1)
            return is_refused(known(redis_client, "a", shared=True))

    def read() -> bool:
        with known(redis_client, "a", shared=True):
            eventually(lambda: redis_client.exists("lock:b"))
            return is_refused(known(redis_client, "b"))

    with ThreadPoolExecutor(3) as pool:
        writer = pool.submit(write)
        readers = [pool.submit(one) for one in (read_behind, read)]
        assert writer.result(30) is None
        assert sum(one.result(30) for one in readers) == 1


def is_refused(lock: Any) -> bool:
    try:
        with lock:
            return False
    except LockDeadlock:
        return True


def test_where_a_permit_becomes_free_there_is_no_deadlock(redis_client: redis.Redis) -> None:
    enough = threading.Event()

    def use_permit() -> None:
        with known(redis_client, "p", limit=2):
            enough.wait(5 * EVERY)

    with ThreadPoolExecutor(1) as pool:
        free = pool.submit(use_permit)
        eventually(lambda: redis_client.exists("lock:p"))
        assert meet_in_a_knot(*permits(redis_client)[1:]) == []
        assert free.result(10) is None


def test_a_wait_that_ended_is_no_part_of_a_deadlock(redis_client: redis.Redis) -> None:
    """What stands there of it for a while is not believed."""
    assert stale_wait_is_believed(redis_client) is False


def test_control_without_the_queue_it_would_be(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch, "DEADLOCK", "if is_queued(waits_for, token) then", "if true then")
    mutate(monkeypatch, "DEADLOCK", "if not is_queued(name, token) then", "if false then")

    assert stale_wait_is_believed(redis_client) is True


def stale_wait_is_believed(client: redis.Redis) -> bool:
    """Say whether a caller is refused for another who has given up waiting, and works."""
    waited, done = threading.Event(), threading.Event()

    def hold_and_give_up() -> None:
        with known(client, "a"):
            with pytest.raises(LockBusy):
                known(client, "b").take(2 * EVERY)
            waited.set()
            # The search is to come within this, however busy the machine is.
            done.wait(EVERY + 1.0)

    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        stack.enter_context(known(client, "b"))
        other = pool.submit(hold_and_give_up)
        assert waited.wait(10)
        refused = is_refused(known(client, "a"))
        done.set()
        other.result(10)
    return refused


def test_what_is_said_of_a_wait_is_soon_gone(redis_client: redis.Redis) -> None:
    """Also of one that was killed."""
    meet_in_a_knot(*ring(redis_client, 3))

    assert redis_client.keys("*:waits:*")
    eventually(lambda: not redis_client.keys("*:waits:*"), 2 * EVERY + 0.5 + 4)


def test_a_caller_that_waits_for_itself_is_not_refused(redis_client: redis.Redis) -> None:
    """Another thread may let the lock go."""
    held = known(redis_client, "a").take()
    timer = threading.Timer(3 * EVERY, held.release)
    timer.start()

    assert not is_refused(known(redis_client, "a"))

    timer.join()


@pytest.mark.parametrize("holds_another", [True, False])
def test_who_holds_nothing_else_looks_for_nothing(
    real_server: RealServer, holds_another: bool
) -> None:
    client = real_server.client()
    holds = in_thread(known(client, "a").take)
    client.script_flush()

    if holds_another:
        with known(client, "b"), pytest.raises(LockBusy):
            known(client, "a").take(4 * EVERY)
    else:
        with pytest.raises(LockBusy):
            known(client, "a").take(4 * EVERY)

    # By its private name: the server knows a script from when it was first sent.
    assert client.script_exists(scripts.DEADLOCK.sha) == [holds_another]
    holds.release()


def test_the_main_thread_holds_what_is_held_around_its_process(
    real_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = real_server.client()
    around = in_thread(known(client, "a").take)
    monkeypatch.setenv(parent_process.VARIABLE, parent_process.described(around.grant, {}))
    parent_process.forget()
    holds_b = threading.Event()

    def other() -> bool:
        with known(client, "b"):
            holds_b.set()
            return is_refused(known(client, "a"))

    try:
        with ThreadPoolExecutor(1) as pool:
            elsewhere = pool.submit(other)
            assert holds_b.wait(10)
            mine = is_refused(known(client, "b"))
            around.release()
            assert mine + elsewhere.result(30) == 1
    finally:
        parent_process.forget()


@pytest.mark.parametrize("seconds", [2.0, pytest.param(60.0, marks=LONG)])
def test_none_is_reported_where_all_take_them_in_one_order(
    real_server: RealServer, seconds: float
) -> None:
    client = real_server.client()
    seconds = float(os.environ.get("DEADLOCK_STORM", "0")) or seconds
    end = time.monotonic() + seconds

    def work(number: int) -> tuple[int, int]:
        rng = random.Random(number)  # noqa: S311 - no secret
        taken = waits = 0
        while time.monotonic() < end:
            keys = sorted(rng.sample("abcdef", rng.randint(1, 4)))
            with ExitStack() as stack:
                for key in keys:
                    how: dict[str, Any] = rng.choice([{}, {}, {"shared": True}])
                    if key == "f":
                        how = {"limit": 2}
                    lock = known(client, key, blocking_timeout=60, **how)
                    began = time.monotonic()
                    stack.enter_context(lock)
                    waits += time.monotonic() - began > EVERY
                time.sleep(rng.choice([0, 0.01, EVERY]))
                taken += len(keys)
        return taken, waits

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(work, range(8), timeout=seconds + 100))

    taken, waits = (sum(one) for one in zip(*done, strict=True))
    figure(f"{taken} locks in one order, {waits} waits that looked for a deadlock: none found")
    assert waits
