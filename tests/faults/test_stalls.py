"""Servers that stand still for longer than their callers wait, and go on."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import MultiLock, RedisLock
from tests.support.drivers import DRIVERS, Driver, Face

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


def stall(server: RealServer, began: float) -> int:
    """Have it go on after three times what callers wait; say how many of the keys are locked."""
    time.sleep(max(began + 3 * TIMEOUT - time.monotonic(), 0))
    server.resume()
    watch = server.client()
    # What it has been sent before is carried out before the second of these.
    watch.ping()
    watch.ping()
    return int(watch.exists(*KEYS))


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=pytest.mark.matrix if number % 2 else ())
        for number, way in enumerate(WAYS)
    ],
)
def test_no_key_is_left_that_nobody_holds(
    real_server: RealServer, client: redis.Redis, way: str, driver: Driver
) -> None:
    lock = Face(WAYS[way](client), driver)
    began = 0.0

    async def work() -> None:
        nonlocal began
        async with lock.block():
            pass
        began = time.monotonic()
        real_server.pause()
        with pytest.raises(LockUnavailable) as caught:
            # As it is set, and without waiting if it says nothing else.
            await lock.take(lock.blocking_timeout or 0)
        assert caught.value.cause == "timeout"

    driver.run(work())
    assert stall(real_server, began) == 0


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
