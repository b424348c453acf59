"""The primary that a Sentinel names is killed and comes back, or the Sentinel does not."""

from __future__ import annotations

import contextlib
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.sentinel import Sentinel

from django_setnx_lock.core import MultiLock, RedisLock
from tests.processes import eventually
from tests.redis.sentinels import SERVICE, sentinel_of
from tests.servers import ONCE, RealServer, any_binary
from tests.support import seams
from tests.support.drivers import DRIVERS, Driver, Face
from tests.support.locks import listeners

if TYPE_CHECKING:
    from collections.abc import Iterator

drivers = pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
# What is waited for; somebody has the last.
KEYS = ("lock:a", "lock:b", "lock:c")


@pytest.fixture(scope="module")
def primary() -> Iterator[RealServer]:
    with RealServer(any_binary()) as server:
        yield server


@pytest.fixture(scope="module")
def found(primary: RealServer) -> Iterator[redis.Redis]:
    """Give a client of the primary that the Sentinel names."""
    with sentinel_of(primary) as port:
        client = client_at(port)
        yield client
        client.close()


def client_at(port: int) -> redis.Redis:
    """Return a client of the primary that the Sentinel at this port names."""
    sentinel: Any = Sentinel([("127.0.0.1", port)], sentinel_kwargs={"retry": ONCE})  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
    client: redis.Redis = sentinel.master_for(SERVICE, retry=ONCE, socket_timeout=2)
    eventually(lambda: answers(client))
    return client


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@drivers
@pytest.mark.parametrize("count", [1, 3])
def test_who_waits_has_the_locks_when_the_primary_is_back_empty(
    primary: RealServer,
    found: redis.Redis,
    caplog: pytest.LogCaptureFixture,
    count: int,
    driver: Driver,
) -> None:
    lock = MultiLock(found, KEYS) if count > 1 else RedisLock(found, KEYS[-1])

    async def wait() -> None:
        held = await Face(lock, driver).take(40)
        assert await held.owned()

    primary.flush()
    RedisLock(primary.client(), "lock:c", timeout=60).take(0)
    with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.DEBUG, "django_setnx_lock.lock"):
        waiting = pool.submit(driver.run, wait())
        eventually(lambda: listeners(primary) == 1)
        primary.kill()
        try:
            eventually(lambda: "through an outage" in caplog.text or waiting.done())
        finally:
            primary.start()
        waiting.result(30)


@drivers
def test_connections_are_kept_while_no_sentinel_answers(
    primary: RealServer, monkeypatch: pytest.MonkeyPatch, driver: Driver
) -> None:
    primary.flush()
    seams.ask_sentinels_always(monkeypatch)

    async def work() -> None:
        with contextlib.ExitStack() as stack:
            client = client_at(stack.enter_context(sentinel_of(primary)))
            for _ in range(2):
                await (await Face(RedisLock(client, "lock:a"), driver).take(0)).release()
                stack.close()
            client.close()

    driver.run(work())
