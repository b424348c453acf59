"""A server that vanishes without a word while another one takes its address.

Its connections stay, and nothing is answered on them; a new one leads to the other server.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import RedisLock
from tests.servers import ONCE, RealServer, any_binary
from tests.support import seams
from tests.support.drivers import DRIVERS, Driver, Face

if TYPE_CHECKING:
    from collections.abc import Iterator

# How many connections are spare when it vanishes, and how long each keeps its caller.
SPARE, LIMIT = 12, 2.0
# A call asks once more, on a new connection.
AT_MOST_ONCE: tuple[list[str], ...] = ([], ["timeout"])


class Pair(NamedTuple):
    old: RealServer
    new: RealServer

    def client(self, retries: int = 0) -> redis.Redis:
        """Return a client of the unix socket of ``old``."""
        retry = Retry(NoBackoff(), retries) if retries else ONCE
        path = str(self.old.directory / "redis.sock")
        return redis.Redis(unix_socket_path=path, socket_timeout=LIMIT, retry=retry)

    def vanish(self) -> None:
        """Have ``old`` answer nothing, and its socket lead to ``new``."""
        self.old.pause()
        os.replace(self.new.directory / "redis.sock", self.old.directory / "redis.sock")


@pytest.fixture
def pair() -> Iterator[Pair]:
    binary = any_binary()
    with RealServer(binary) as old, RealServer(binary) as new:
        yield Pair(old, new)
        old.resume()


def warm(client: redis.Redis) -> None:
    """Have so many threads use a lock at the same moment, each on a connection of its own."""
    barrier = threading.Barrier(SPARE)

    def use(number: int) -> None:
        barrier.wait(20)
        RedisLock(client, f"lock:{number}").take(0).release()

    with ThreadPoolExecutor(SPARE) as pool:
        list(pool.map(use, range(SPARE)))


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
@pytest.mark.parametrize("options", [{}, {"replicas": 1}])
def test_a_vanished_server_is_asked_once_whatever_connections_are_spare(
    pair: Pair, options: dict[str, Any], driver: Driver
) -> None:
    met: list[str] = []

    async def work(client: redis.Redis) -> None:
        if driver.is_asyncio:
            held = await asyncio.gather(
                *(RedisLock(client, f"lock:{number}").atake(0) for number in range(SPARE))
            )
            await asyncio.gather(*(one.arelease() for one in held))
        else:
            warm(client)
        pair.vanish()
        for _ in range(SPARE + 1):
            try:
                lock = Face(RedisLock(client, "lock:a", **options), driver)
                await (await lock.take(0)).release()
            except LockUnavailable as error:
                # The new server has answered, and has none.
                if error.cause == "replicas":
                    break
                met.append(error.cause)
            else:
                break

    with pair.client() as client:
        driver.run(work(client))
    assert met in AT_MOST_ONCE


def test_a_client_that_sends_again_finds_it_vanished_once(pair: Pair) -> None:
    with pair.client(retries=1) as client:
        warm(client)
        pair.vanish()
        RedisLock(client, "lock:a").take(0).release()
        began = seams.clock.now()

        warm(client)

        assert seams.clock.now() - began < LIMIT
