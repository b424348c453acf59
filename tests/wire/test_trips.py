"""How often a lock asks Redis, and on which connections."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import redis

from django_setnx_lock import LockBusy, LockUnavailable
from django_setnx_lock.core import LockHandle, RedisLock
from tests.processes import eventually
from tests.processes import run as run_task
from tests.servers import ONCE
from tests.support.locks import held_names, listed, many

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

MANY = 60
OPERATIONS: dict[str, Callable[[Any], object]] = {
    "check": lambda held: held.check(),
    "owned": lambda held: held.owned(),
    "extend": lambda held: held.extend(1),
    "reacquire": lambda held: held.reacquire(),
}


class Line(NamedTuple):
    """``warm``: a client through the proxy, with connections; ``direct``: one beside it."""

    proxy: Proxy
    warm: redis.Redis
    direct: redis.Redis

    def sent(self) -> list[bytes]:
        """Return the first word of each command on the wire, and forget them."""
        words = b"".join(self.proxy.requests).split(b"\r\n")
        self.proxy.requests.clear()
        return [words[at + 2] for at, word in enumerate(words) if word.startswith(b"*")]


@pytest.fixture
def line(proxy: Proxy, real_server: RealServer) -> Line:
    """Give a line to a server that knows the scripts."""
    client = proxy.client(retry=ONCE)
    with listed(client, "warm") as held, many(client, "xy"):
        held.check()
        with pytest.raises(LockBusy):
            listed(client, "warm").take(0)
    listed(client, "warm", min_hold=0.001).take(0).release()
    proxy.requests.clear()
    return Line(proxy, client, real_server.client())


def test_a_lock_is_taken_in_one_trip_and_let_go_in_one(line: Line) -> None:
    for options in ({}, {"shared": True}, {"limit": 2}, {"min_hold": 0.001}):
        lock = listed(line.warm, "a", **options)
        lock.acquire()
        assert line.sent() == [b"EVALSHA"], options
        lock.release()
        assert line.sent() == [b"EVALSHA"], options


def test_a_busy_answer_is_one_trip(line: Line) -> None:
    with listed(line.warm, "a"):
        line.sent()
        assert listed(line.warm, "a").acquire(blocking=False) is False
        assert line.sent() == [b"EVALSHA"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_looking_after_locks_is_one_trip(line: Line, operation: str) -> None:
    for held, count in ((listed(line.warm, "a").take(0), 1), (many(line.warm, "bcd").take(0), 3)):
        line.proxy.requests.clear()

        OPERATIONS[operation](held)

        assert line.proxy.round_trips == 1
        assert line.sent() == [b"EVALSHA"] * count
        held.release()


def test_what_the_handle_knows_asks_nobody(line: Line) -> None:
    with listed(line.warm, "a") as held:
        line.sent()
        _ = held.fence, held.remaining(), held.lost, held.released, held.stop_requested
        assert line.proxy.round_trips == 0


def test_several_keys_are_taken_in_one_trip_and_let_go_in_one(line: Line) -> None:
    with many(line.warm, "abcde"):
        assert line.sent() == [b"EVALSHA"]
    assert line.proxy.round_trips == 1
    assert line.sent() == [b"EVALSHA"] * 5


def test_where_one_of_several_is_busy_the_others_are_let_go_in_the_same_trip(line: Line) -> None:
    with listed(line.direct, "c"):
        assert many(line.warm, "abcde").acquire(blocking=False) is False

        assert line.sent() == [b"EVALSHA"]
        assert held_names(line.direct, "abcde") == "c"


def sleepers(client: Any) -> list[str]:
    return [found["id"] for found in client.client_list() if "b" in found["flags"]]


def test_a_waiter_asks_twice_and_then_nothing_until_it_is_woken(line: Line) -> None:
    held = listed(line.direct, "a").take(0)

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(listed(line.warm, "a").take, 20)
        # The first sleep carries the next request, and ends by itself.
        eventually(lambda: line.proxy.requests and b"BRPOP" in line.proxy.requests[-1])
        time.sleep(0.9)
        eventually(lambda: sleepers(line.direct))
        asked = line.sent()
        time.sleep(0.5)
        assert line.sent() == []
        held.release()
        job.result(20)

    listens = [b"EVAL", b"BRPOP"]
    # Without what a connection begins with.
    asked = [word for word in asked if word not in (b"HELLO", b"CLIENT")]
    assert asked == [b"EVALSHA", *listens, b"EVALSHA", *listens]
    assert line.sent() == [b"EVALSHA"]


def test_the_connection_of_a_waiter_serves_the_next_one(real_server: RealServer) -> None:
    client, direct = real_server.client(), real_server.client()
    connections: list[str] = []
    for _ in range(3):
        held = listed(direct, "a").take(0)
        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(listed(client, "a").take, 20)
            connections += eventually(lambda: sleepers(direct))
            held.release()
            job.result(20).release()

    assert len(set(connections)) == 1


# The tasks of an event loop


async def take(client: Any, number: int) -> LockHandle:
    return await RedisLock(client, f"lock:{number}", 30).atake(0)


async def take_all(client: Any) -> list[Any]:
    asking = [take(client, number) for number in range(MANY)]
    return await asyncio.gather(*asking, return_exceptions=True)


def test_tasks_that_ask_at_once_share_one_connection(line: Line) -> None:
    def connections() -> int:
        stats: Any = line.direct.info("stats")
        return int(stats["total_connections_received"])

    before = connections()
    taken = run_task(take_all(line.proxy.client()))

    assert len({held.fence for held in taken}) == MANY
    assert connections() - before == 1


def test_what_is_wrong_with_one_of_them_is_told_of_that_one(line: Line) -> None:
    line.direct.lpush("lock:50", "no lock")

    taken = run_task(take_all(line.proxy.client()))

    errors = [found for found in taken if not isinstance(found, LockHandle)]
    assert [(error.key, error.cause) for error in errors] == [("lock:50", "wrongtype")]


def test_answers_that_are_cut_off_cost_none_of_them_its_lock(line: Line) -> None:
    dropped = line.proxy.drop_next_reply(b"lock:")

    taken = run_task(take_all(line.warm))

    assert dropped.is_set()
    values = {line.direct.get(f"lock:{number}") for number in range(MANY)}
    assert values == {held.token.encode() for held in taken}


def test_when_all_are_cancelled_nothing_is_left(line: Line) -> None:
    async def work() -> None:
        line.proxy.hold(b"lock:")
        tasks = [asyncio.create_task(take(line.warm, number)) for number in range(MANY)]
        await asyncio.to_thread(eventually, line.proxy.holds.is_set)
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)
        await asyncio.to_thread(line.proxy.let_go)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(answer) for answer in answers} == {asyncio.CancelledError}

    run_task(work())

    assert not [name for name in range(MANY) if line.direct.exists(f"lock:{name}")]


def test_who_waits_for_its_answer_behind_others_has_its_own_time(line: Line) -> None:
    client = line.proxy.client(socket_timeout=0.5)

    async def work() -> list[Any]:
        line.proxy.hold(b"lock:")
        return await take_all(client)

    errors = run_task(work())
    line.proxy.let_go()

    assert {type(error) for error in errors} == {LockUnavailable}
    assert {error.cause for error in errors} == {"timeout"}
