"""Servers that stand still for longer than their callers wait, and go on."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import MultiLock, RedisLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from tests.servers import RealServer

TIMEOUT = 0.2
KEYS = "lock:a", "lock:b"
# What each caller takes, before the server stands still and then.
WAYS: dict[str, Callable[[Any], Any]] = {
    "one": lambda client: RedisLock(client, "lock:a"),
    "waits": lambda client: RedisLock(client, "lock:a", blocking_timeout=TIMEOUT),
    "several": lambda client: MultiLock(client, KEYS),
    "shared": lambda client: RedisLock(client, "lock:a", shared=True),
    "permits": lambda client: RedisLock(client, "lock:a", limit=2),
    "timestamp": lambda client: RedisLock(client, "lock:a", protocol="timestamp-ms"),
    "hosted": lambda client: RedisLock(client, "lock:a", protocol="hosted"),
}


@pytest.fixture(params=["gives up", "tries again"])
def client(real_server: RealServer, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """Give a client that has a time limit, and retries or none; its server goes on at the end."""
    retries = int(request.param == "tries again")
    yield real_server.client(socket_timeout=TIMEOUT, retry=Retry(NoBackoff(), retries))
    real_server.resume()


def take(lock: Any) -> None:
    """Take ``lock`` as it is set, without waiting if it says nothing else."""
    lock.take(lock.blocking_timeout or 0)


def stall(server: RealServer, began: float) -> int:
    """Have it go on after three times what callers wait; say how many of the keys are locked."""
    time.sleep(max(began + 3 * TIMEOUT - time.monotonic(), 0))
    server.resume()
    watch = server.client()
    # What it has been sent before is carried out before the second of these.
    watch.ping()
    watch.ping()
    return int(watch.exists(*KEYS))


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=pytest.mark.matrix if number % 2 else ())
        for number, way in enumerate(WAYS)
    ],
)
def test_no_key_is_left_that_nobody_holds(
    real_server: RealServer, client: redis.Redis, way: str
) -> None:
    lock = WAYS[way](client)
    with lock:
        pass
    began = time.monotonic()
    real_server.pause()

    with pytest.raises(LockUnavailable) as caught:
        take(lock)

    assert stall(real_server, began) == 0
    assert caught.value.cause == "timeout"


@pytest.mark.parametrize("way", ["one", "several", "shared"])
def test_in_asyncio_no_key_is_left_that_nobody_holds(
    real_server: RealServer, client: redis.Redis, way: str
) -> None:
    lock = WAYS[way](client)

    async def work() -> float:
        async with lock:
            pass
        began = time.monotonic()
        real_server.pause()
        with pytest.raises(LockUnavailable) as caught:
            await lock.atake(0)
        assert caught.value.cause == "timeout"
        return began

    assert stall(real_server, asyncio.run(work())) == 0


@pytest.mark.usefixtures("client")
def test_a_task_that_is_cancelled_while_the_server_stands_still_leaves_no_key(
    real_server: RealServer,
) -> None:
    # It is to be cancelled long before it gives up.
    client = real_server.client(socket_timeout=50 * TIMEOUT)

    async def work() -> float:
        async with RedisLock(client, "lock:a"):
            pass
        began = time.monotonic()
        real_server.pause()
        taking = asyncio.create_task(RedisLock(client, "lock:a").atake(0))
        await asyncio.sleep(TIMEOUT / 4)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        return began

    assert stall(real_server, asyncio.run(work())) == 0


def test_no_key_of_many_threads_is_left(real_server: RealServer, client: redis.Redis) -> None:
    def ask(key: str) -> str:
        with pytest.raises(LockUnavailable) as caught:
            RedisLock(client, key).take(0)
        return caught.value.cause

    with ThreadPoolExecutor(8) as pool:
        keys = [f"lock:{number}" for number in range(8)]
        held = list(pool.map(lambda key: RedisLock(client, key).take(0), keys))
        list(pool.map(lambda one: one.release(), held))
        began = time.monotonic()
        real_server.pause()
        causes = list(pool.map(ask, keys))

    stall(real_server, began)
    assert set(causes) == {"timeout"}
    assert real_server.client().exists(*keys) == 0
