"""What befalls the server, or the way to it, while somebody waits for a lock."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockLost, LockUnavailable
from django_setnx_lock.core import Inspector, LockHandle, RedisLock
from tests.processes import Stopwatch, eventually, figure, may_be_late
from tests.support.drivers import DRIVERS, Driver, Face
from tests.support.locks import command, holder, listeners, queue_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

REAL = pytest.mark.real
ONCE: dict[str, Any] = {"retry": Retry(NoBackoff(), 0)}


@contextlib.contextmanager
def waiting(server: RealServer, client: redis.Redis) -> Iterator[Future[LockHandle]]:
    """Have a thread that is asleep, waiting for ``lock:a``."""
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(RedisLock(client, "lock:a").take, 30)
        eventually(lambda: listeners(server) == 1)
        yield result


def kill_clients(server: RealServer) -> None:
    command(server.client(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def calls(server: RealServer) -> int:
    """Return how many scripts were run."""
    stats: Any = server.client().info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


@REAL
def test_a_waiter_finds_out_once_that_what_was_kept_for_waiters_has_died(
    server: RealServer,
) -> None:
    client = server.client(**ONCE)

    def take() -> None:
        with RedisLock(client, "lock:a", blocking_timeout=30):
            pass

    with ThreadPoolExecutor(8) as pool:
        with holder(server.client()):
            results = [pool.submit(take) for _ in range(8)]
            eventually(lambda: listeners(server) == 8)
        for taken in results:
            taken.result(10)
    held = holder(server.client())
    kill_clients(server)

    before = calls(server)
    with waiting(server, client) as result:
        after = calls(server)
        held.release()
        assert result.result(10).owned()

    # It asks, is cut off as it listens, asks again and listens.
    assert after - before <= 6


@REAL
def test_a_wait_goes_on_however_often_its_connection_is_cut_after_a_while(
    server: RealServer,
) -> None:
    held = holder(server.client())
    with waiting(server, server.client(**ONCE)) as result:
        for _ in range(2):
            # Some proxies cut what says nothing for long.
            time.sleep(1.1)
            kill_clients(server)
            eventually(lambda: listeners(server) == 1 or result.done())
        held.release()

        assert result.result(10).owned()


@REAL
@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_a_wait_goes_on_however_soon_its_connection_is_cut_again(
    server: RealServer, driver: Driver
) -> None:
    # As when a proxy is reloaded some times.
    held = holder(server.client(), 60)
    look = Inspector(server.client(), "lock:")
    taken: list[Any] = []

    async def take() -> None:
        lock = RedisLock(client, "lock:a", blocking_timeout=30)
        taken.append((await Face(lock, driver).take()).raw)

    client = server.client(**ONCE)
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(driver.run, take())
        began, cuts = time.monotonic(), 0
        while time.monotonic() < began + 2:
            eventually(lambda: listeners(server) == 1 or result.done())
            kill_clients(server)
            cuts += 1
        assert not result.done()
        eventually(lambda: look.get("lock:a").waiting == 1)
        held.release()
        result.result(10)

    assert taken[0].fence > held.fence
    # It pauses a little, so that a server that cuts at once is not asked without end.
    assert 2 < cuts < 20


@may_be_late(1)
@REAL
def test_when_all_keys_are_gone_a_waiter_has_the_lock_when_it_asks_next(
    server: RealServer, late: float
) -> None:
    lease = 3.0
    held = holder(server.client(), lease)
    with waiting(server, server.client()) as result, Stopwatch() as watch:
        server.client().flushall()
        following = result.result(10)

    figure(f"FLUSHALL behind a lease of {lease:g} s: followed after {watch.seconds * 1000:.0f} ms")
    assert watch.seconds < lease + late
    following.check()
    with pytest.raises(LockLost):
        held.release()


def flush_scripts(server: RealServer, proxy: Proxy) -> None:
    server.client().script_flush()


def stand_still(server: RealServer, proxy: Proxy) -> None:
    server.pause()
    time.sleep(0.3)
    server.resume()


@pytest.mark.parametrize("what", [flush_scripts, stand_still])
def test_a_wait_outlasts_it(
    proxy: Proxy, real_server: RealServer, what: Callable[[RealServer, Proxy], None]
) -> None:
    held = holder(real_server.client())
    with waiting(real_server, proxy.client(**ONCE)) as result:
        (waiter,) = queue_of(real_server.client())

        what(real_server, proxy)
        held.release()

        assert result.result(10).token == waiter


def stay_away(server: RealServer, proxy: Proxy) -> None:
    proxy.refuse()


def kill(server: RealServer, proxy: Proxy) -> None:
    server.kill()


@pytest.mark.parametrize("what", [stay_away, kill])
def test_a_wait_ends_in_the_one_error(
    proxy: Proxy, real_server: RealServer, what: Callable[[RealServer, Proxy], None]
) -> None:
    holder(real_server.client(**ONCE))
    with waiting(real_server, proxy.client(**ONCE)) as result:
        what(real_server, proxy)
        try:
            with pytest.raises(LockUnavailable) as caught:
                result.result(10)
        finally:
            if what is kill:
                real_server.start()

    assert caught.value.cause == "unreachable"
