"""A primary that another takes the place of while connections to it stay.

It goes on answering, as in maintenance: Redis makes it a replica only some ten seconds later. Or it
has vanished without a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import redis
from django_redis import get_redis_connection
from redis.asyncio.sentinel import Sentinel as AsyncSentinel

from django_setnx_lock import LockLost, LockUnavailable, lock
from django_setnx_lock.core import RedisLock
from tests.processes import Stopwatch, eventually, figure
from tests.redis.sentinels import SERVICE, Watched, cache_at, watched
from tests.redis.test_vanished_server import SPARE, warm
from tests.servers import RealServer, any_binary, server_binaries
from tests.support.drivers import Driver, Face, Tasks, Threads
from tests.support.locks import listeners, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_setnx_lock.core import LockHandle

# What is set up takes seconds.
pytestmark = [pytest.mark.xdist_group("planned"), pytest.mark.real]

# How long connections may go on at the old primary: a second, and what a busy machine adds.
SOON = 4.0


class Story(NamedTuple):
    """How many seconds after the Sentinels named the new primary each was there, and the errors.

    ``asked``, ``asked in asyncio``: one who takes locks all the time. ``native``: the same through
    a client of redis.asyncio. ``renewed``: one who holds a lock. ``waited``: two who wait, in a
    thread and in asyncio.
    """

    seconds: dict[str, float]
    met: list[Exception]


def fail_over(deployment: Watched) -> float:
    """Have the Sentinels make the replica the primary; tell when they name it."""
    eventually(deployment.fails_over, 30)
    eventually(deployment.names_another, 30)
    return time.monotonic()


class Asker:
    """Asks for one lock after the other, until ``old`` hears nothing of a grant.

    Not for the same: the release of one that the new primary knows may be lost.
    """

    def __init__(self, name: str, old: redis.Redis) -> None:
        self.name = name
        self.old = old
        self.warm = threading.Event()
        self.asked = 0
        self.met: list[Exception] = []

    def ask(self, driver: Driver, ports: Sequence[int] = ()) -> float:
        """Return when a lock was granted that ``old`` has not heard of.

        By a client of redis.asyncio, of the Sentinels at ``ports``, if there are any.
        """
        found: list[float] = []

        async def work() -> None:
            async with contextlib.AsyncExitStack() as stack:
                client: Any = get_redis_connection()
                if ports:
                    kind: Any = AsyncSentinel
                    watchers = kind([("127.0.0.1", port) for port in ports])
                    client = watchers.master_for(SERVICE)
                    for one in (*watchers.sentinels, client):
                        stack.push_async_callback(one.aclose)
                ends = time.monotonic() + 30
                while not await is_there(client):
                    assert time.monotonic() < ends, "never asked there"
                    await driver.sleep(0.02)
            found.append(time.monotonic())

        async def is_there(client: Any) -> bool:
            self.asked += 1
            lock = RedisLock(client, f"lock:{self.name} {self.asked}", blocking=False)
            try:
                async with Face(lock, driver).block() as held:
                    self.warm.set()
                    return bool(value_of(self.old, held.name) != held.token)
            except LockLost:
                # One of the last that the old primary granted: the new one never heard of it.
                return False
            except LockUnavailable as error:
                self.met.append(error)
                return False

        driver.run(work())
        return found[0]


def until_renewed(server: redis.Redis, held: LockHandle) -> float:
    """Return when the lease of ``held`` was renewed at ``server``."""
    left = remaining_ms(server, held.name)
    eventually(lambda: remaining_ms(server, held.name) > left)
    return time.monotonic()


def remaining_ms(server: redis.Redis, name: str) -> int:
    found: Any = server.pttl(name)
    return int(found)


def until_listening(server: RealServer, count: int) -> float:
    eventually(lambda: listeners(server) == count, 30)
    return time.monotonic()


async def wait_in_asyncio() -> bool:
    async with lock("waited in asyncio", blocking_timeout=30):
        return True


def wait() -> bool:
    with lock("waited", blocking_timeout=30):
        return True


@pytest.fixture(scope="module")
def story(server_kind: str) -> Story:
    with (
        watched(server_binaries()[server_kind]) as deployment,
        cache_at(deployment),
        ThreadPoolExecutor(8) as pool,
    ):
        old, (new,) = deployment.primary, deployment.replicas
        at_new = new.client(db=1)
        at_old = old.client(db=1)
        askers = [Asker("asked", at_old), Asker("asked in asyncio", at_old)]
        native = Asker("native", old.client())
        renewed = lock("renewed", timeout=4, renew=True, replicas=1).take(0)
        before = [
            lock(name, timeout=60, renew=False, replicas=1).take(0)
            for name in ("waited", "waited in asyncio")
        ]
        waiting = [pool.submit(wait), pool.submit(asyncio.run, wait_in_asyncio())]
        running = {
            "asked": pool.submit(askers[0].ask, Threads()),
            "asked in asyncio": pool.submit(askers[1].ask, Tasks()),
            "native": pool.submit(native.ask, Tasks(), deployment.ports),
        }
        for asker in (*askers, native):
            assert asker.warm.wait(20)
        until_listening(old, 2)
        until_renewed(at_old, renewed)

        try:
            named = fail_over(deployment)
            running["waited"] = pool.submit(until_listening, new, 2)
            running["renewed"] = pool.submit(until_renewed, at_new, renewed)
            seconds = {name: result.result(40) - named for name, result in running.items()}
        finally:
            for held in (renewed, *before):
                held.release()
        assert all(result.result(20) for result in waiting)
    figure(", ".join(f"{name} {took:.1f} s" for name, took in seconds.items()))
    return Story(seconds, [error for asker in (*askers, native) for error in asker.met])


@pytest.mark.parametrize("who", ["asked", "asked in asyncio", "native", "waited", "renewed"])
def test_connections_follow_the_sentinels_to_the_new_primary(story: Story, who: str) -> None:
    assert story.seconds[who] < SOON


def test_nobody_is_told_of_anything_meanwhile(story: Story) -> None:
    assert story.met == []


def until_granted(ask: Callable[[], object]) -> float:
    """Return how long it takes until ``ask`` raises nothing."""
    with Stopwatch() as watch:
        while watch.seconds < 30:
            try:
                ask()
            except LockUnavailable:
                continue
            return watch.seconds
    pytest.fail("no lock was granted")


async def use(count: int) -> None:
    held = await asyncio.gather(
        *(lock(f"used {number}", blocking_timeout=0).atake() for number in range(count))
    )
    await asyncio.gather(*(one.arelease() for one in held))


@pytest.mark.storm
@pytest.mark.alone
@pytest.mark.parametrize("is_async", [False, True])
def test_a_vanished_primary_is_left_within_three_seconds_whatever_was_used(
    is_async: bool,
) -> None:
    with watched(any_binary()) as deployment, cache_at(deployment):
        loop = asyncio.new_event_loop()
        try:
            if is_async:
                loop.run_until_complete(use(SPARE))
            else:
                warm(get_redis_connection())
            deployment.primary.pause()
            eventually(deployment.names_another, 40)

            took = until_granted(
                (lambda: loop.run_until_complete(use(1)))
                if is_async
                else lambda: lock("asked", blocking_timeout=0).take().release()
            )
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            deployment.primary.resume()
    figure(f"asyncio {is_async}: {took:.2f} s until a lock was granted")
    assert took < 3
