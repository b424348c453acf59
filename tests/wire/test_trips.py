"""How often a lock asks Redis, and on which connections."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

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


@pytest.fixture
def warm(proxy: Proxy) -> redis.Redis:
    """Give a client of a server that knows the scripts, with connections at hand."""
    client = proxy.client(retry=ONCE)
    with listed(client, "warm") as held, many(client, "xy"):
        held.check()
        with pytest.raises(LockBusy):
            listed(client, "warm").take(0)
    listed(client, "warm", min_hold=0.001).take(0).release()
    proxy.requests.clear()
    return client


def sent(proxy: Proxy) -> list[bytes]:
    """Return the first word of each command on the wire, and forget them."""
    words = b"".join(proxy.requests).split(b"\r\n")
    proxy.requests.clear()
    return [words[at + 2] for at, word in enumerate(words) if word.startswith(b"*")]


def test_a_lock_is_taken_in_one_trip_and_let_go_in_one(proxy: Proxy, warm: redis.Redis) -> None:
    for options in ({}, {"shared": True}, {"limit": 2}, {"min_hold": 0.001}):
        lock = listed(warm, "a", **options)
        lock.acquire()
        assert sent(proxy) == [b"EVALSHA"], options
        lock.release()
        assert sent(proxy) == [b"EVALSHA"], options


def test_a_busy_answer_is_one_trip(proxy: Proxy, warm: redis.Redis) -> None:
    with listed(warm, "a"):
        sent(proxy)
        assert listed(warm, "a").acquire(blocking=False) is False
        assert sent(proxy) == [b"EVALSHA"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_looking_after_locks_is_one_trip(proxy: Proxy, warm: redis.Redis, operation: str) -> None:
    for held, count in ((listed(warm, "a").take(0), 1), (many(warm, "bcd").take(0), 3)):
        proxy.requests.clear()

        OPERATIONS[operation](held)

        assert proxy.round_trips == 1
        assert sent(proxy) == [b"EVALSHA"] * count
        held.release()


def test_what_the_handle_knows_asks_nobody(proxy: Proxy, warm: redis.Redis) -> None:
    with listed(warm, "a") as held:
        sent(proxy)
        _ = held.fence, held.remaining(), held.lost, held.released, held.stop_requested
        assert proxy.round_trips == 0


def test_several_keys_are_taken_in_one_trip_and_let_go_in_one(
    proxy: Proxy, warm: redis.Redis
) -> None:
    with many(warm, "abcde"):
        assert sent(proxy) == [b"EVALSHA"]
    assert proxy.round_trips == 1
    assert sent(proxy) == [b"EVALSHA"] * 5


def test_where_one_of_several_is_busy_the_others_are_let_go_in_the_same_trip(
    proxy: Proxy, warm: redis.Redis, real_server: RealServer
) -> None:
    direct = real_server.client()
    with listed(direct, "c"):
        assert many(warm, "abcde").acquire(blocking=False) is False

        assert sent(proxy) == [b"EVALSHA"]
        assert held_names(direct, "abcde") == "c"


def sleepers(client: Any) -> list[str]:
    return [found["id"] for found in client.client_list() if "b" in found["flags"]]


def test_a_waiter_asks_twice_and_then_nothing_until_it_is_woken(
    proxy: Proxy, warm: redis.Redis, real_server: RealServer
) -> None:
    direct = real_server.client()
    held = listed(direct, "a").take(0)

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(listed(warm, "a").take, 20)
        # The first sleep carries the next request, and ends by itself.
        eventually(lambda: proxy.requests and b"BRPOP" in proxy.requests[-1])
        time.sleep(0.9)
        eventually(lambda: sleepers(direct))
        asked = sent(proxy)
        time.sleep(0.5)
        assert sent(proxy) == []
        held.release()
        job.result(20)

    listens = [b"EVAL", b"BRPOP"]
    # Without what a connection begins with.
    asked = [word for word in asked if word not in (b"HELLO", b"CLIENT")]
    assert asked == [b"EVALSHA", *listens, b"EVALSHA", *listens]
    assert sent(proxy) == [b"EVALSHA"]


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


def test_tasks_that_ask_at_once_share_one_connection(
    proxy: Proxy, warm: redis.Redis, real_server: RealServer
) -> None:
    def connections() -> int:
        stats: Any = real_server.client().info("stats")
        return int(stats["total_connections_received"])

    before = connections()
    taken = run_task(take_all(proxy.client()))

    assert len({held.fence for held in taken}) == MANY
    # Those that count are two.
    assert connections() - before <= 2


def test_what_is_wrong_with_one_of_them_is_told_of_that_one(
    proxy: Proxy, real_server: RealServer
) -> None:
    real_server.client().lpush("lock:50", "no lock")

    taken = run_task(take_all(proxy.client()))

    errors = [found for found in taken if not isinstance(found, LockHandle)]
    assert [(error.key, error.cause) for error in errors] == [("lock:50", "wrongtype")]


def test_answers_that_are_cut_off_cost_none_of_them_its_lock(
    proxy: Proxy, warm: redis.Redis, real_server: RealServer
) -> None:
    dropped = proxy.drop_next_reply(b"lock:")

    taken = run_task(take_all(warm))

    assert dropped.is_set()
    values = {real_server.client().get(f"lock:{number}") for number in range(MANY)}
    assert values == {held.token.encode() for held in taken}


def test_when_all_are_cancelled_nothing_is_left(
    proxy: Proxy, warm: redis.Redis, real_server: RealServer
) -> None:
    async def work() -> None:
        proxy.hold(b"lock:")
        tasks = [asyncio.create_task(take(warm, number)) for number in range(MANY)]
        await asyncio.to_thread(eventually, proxy.holds.is_set)
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)
        await asyncio.to_thread(proxy.let_go)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(answer) for answer in answers} == {asyncio.CancelledError}

    run_task(work())

    assert not [name for name in range(MANY) if real_server.client().exists(f"lock:{name}")]


def test_who_waits_for_its_answer_behind_others_has_its_own_time(
    proxy: Proxy, real_server: RealServer
) -> None:
    client = proxy.client(socket_timeout=0.5)

    async def work() -> list[Any]:
        proxy.hold(b"lock:")
        return await take_all(client)

    errors = run_task(work())
    proxy.let_go()

    assert {type(error) for error in errors} == {LockUnavailable}
    assert {error.cause for error in errors} == {"timeout"}
