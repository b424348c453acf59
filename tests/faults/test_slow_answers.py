"""Answers that are slow on their way: a lease ends here before it ends in Redis all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core import MultiLock, RedisLock
from tests.processes import eventually, in_thread
from tests.support import seams
from tests.support.drivers import DRIVERS, Driver, Face
from tests.support.renewals import end_of, is_longer

if TYPE_CHECKING:
    import redis

    from django_setnx_lock.core import LockHandle
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

NAMES = "lock:a", "lock:b"
SLOW = 0.3
# More than what Redis may round.
SLACK = SLOW / 2
Slow = Callable[[], object]
KINDS: dict[str, Callable[..., Any]] = {
    "one": lambda client, **options: RedisLock(client, NAMES[0], timeout=20, **options),
    "several": lambda client, **options: MultiLock(client, NAMES, timeout=20, **options),
}
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def client(proxy: Proxy) -> redis.Redis:
    """Give a client that is connected already, at a server that knows the script."""
    client = proxy.client()
    with RedisLock(client, "lock:before"):
        pass
    return client


@pytest.fixture
def in_redis(real_server: RealServer) -> Callable[[], float]:
    """Give what tells the seconds that are left there, of the lease that ends first."""
    direct: Any = real_server.client()
    return lambda: min(direct.pttl(name) for name in direct.keys("lock:?")) / 1000 + SLACK


@pytest.fixture
def slow(proxy: Proxy) -> Slow:
    """Give what has the answers be slow from then on."""
    return lambda: proxy.delay_replies(SLOW)


@kinds
@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_of_a_lock_that_was_taken(
    client: redis.Redis, slow: Slow, in_redis: Callable[[], float], kind: str, driver: Driver
) -> None:
    async def work() -> None:
        slow()
        held = await Face(KINDS[kind](client), driver).take(0)
        there = in_redis()
        assert 0 < held.remaining() <= there

    driver.run(work())


def adopted(client: redis.Redis, slow: Slow) -> LockHandle:
    lock = RedisLock(client, "lock:a", timeout=20)
    ticket = lock.take(0).give_away()
    slow()
    return lock.adopt(ticket)


def had_again(client: redis.Redis, slow: Slow) -> LockHandle:
    """Have what is held around the process."""
    lock = RedisLock(client, "lock:a", timeout=20, reentrant=True)
    # Taken in a thread that is over: the one who holds it is another process.
    above: LockHandle = in_thread(lambda: lock.take(0))
    with seams.started_under(above):
        slow()
        held = lock.take(0)
    assert held.fence == above.fence
    return held


@pytest.mark.parametrize("how", [adopted, had_again])
def test_of_a_lock_that_was_taken_over(
    client: redis.Redis,
    slow: Slow,
    in_redis: Callable[[], float],
    how: Callable[[redis.Redis, Slow], LockHandle],
) -> None:
    held = how(client, slow)

    there = in_redis()
    assert 0 < held.remaining() <= there


@kinds
@pytest.mark.parametrize(
    ("how", "least"),
    [
        (lambda held: held.extend(30), 20),
        (lambda held: held.extend(30, replace_ttl=True), 20),
        (lambda held: held.reacquire(), 0),
    ],
    ids=["extend", "lengthen", "reacquire"],
)
def test_of_one_that_was_extended(
    client: redis.Redis,
    slow: Slow,
    in_redis: Callable[[], float],
    kind: str,
    how: Callable[[Any], object],
    least: float,
) -> None:
    held = KINDS[kind](client).take(0)
    slow()

    how(held)

    there = in_redis()
    assert least < held.remaining() <= there


@kinds
def test_of_one_that_was_renewed(
    proxy: Proxy, client: redis.Redis, in_redis: Callable[[], float], kind: str
) -> None:
    with KINDS[kind](client, renew=True) as held:
        handles = list(held.values()) if kind == "several" else [held]
        ends = [end_of(one) for one in handles]
        proxy.delay_replies(SLOW)

        seams.renew_now(*handles)

        eventually(lambda: all(map(is_longer, handles, ends)))
        there = in_redis()
        assert 0 < held.remaining() <= there
        proxy.delay_replies(0)
