"""Answers that are slow on their way: a lease ends here before it ends in Redis all the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core import MultiLock, RedisLock
from tests.processes import eventually, in_thread
from tests.support import seams
from tests.support.renewals import end_of, is_longer

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis

    from django_setnx_lock.core import LockHandle
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

NAMES = "lock:a", "lock:b"
SLOW = 0.3
# More than what Redis may round.
SLACK = SLOW / 2
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


@kinds
def test_of_a_lock_that_was_taken(
    proxy: Proxy, client: redis.Redis, in_redis: Callable[[], float], kind: str
) -> None:
    proxy.delay_replies(SLOW)

    held = KINDS[kind](client).take(0)

    there = in_redis()
    assert 0 < held.remaining() <= there


def test_of_a_lock_that_was_taken_in_asyncio(proxy: Proxy, in_redis: Callable[[], float]) -> None:
    proxy.delay_replies(SLOW)

    async def work() -> tuple[float, float]:
        held = await RedisLock(proxy.client(), "lock:a", timeout=20).atake(0)
        there = in_redis()
        return held.remaining(), there

    here, there = asyncio.run(work())
    assert 0 < here <= there


def test_of_a_lock_that_was_taken_over(
    proxy: Proxy, client: redis.Redis, in_redis: Callable[[], float]
) -> None:
    lock = RedisLock(client, "lock:a", timeout=20)
    ticket = lock.take(0).give_away()
    proxy.delay_replies(SLOW)

    held = lock.adopt(ticket)

    there = in_redis()
    assert 0 < held.remaining() <= there


def test_of_a_lock_that_is_held_around_the_process(
    proxy: Proxy,
    client: redis.Redis,
    in_redis: Callable[[], float],
) -> None:
    lock = RedisLock(client, "lock:a", timeout=20, reentrant=True)
    # Taken in a thread that is over: the one who holds it is another process.
    above: LockHandle = in_thread(lambda: lock.take(0))
    with seams.started_under(above):
        proxy.delay_replies(SLOW)

        held = lock.take(0)

    there = in_redis()
    assert held.fence == above.fence
    assert 0 < held.remaining() <= there


@kinds
@pytest.mark.parametrize("replace_ttl", [False, True])
def test_of_one_that_was_extended(
    proxy: Proxy,
    client: redis.Redis,
    in_redis: Callable[[], float],
    kind: str,
    *,
    replace_ttl: bool,
) -> None:
    held = KINDS[kind](client).take(0)
    proxy.delay_replies(SLOW)

    held.extend(30, replace_ttl)

    there = in_redis()
    assert 20 < held.remaining() <= there


@kinds
def test_of_one_that_was_made_whole(
    proxy: Proxy, client: redis.Redis, in_redis: Callable[[], float], kind: str
) -> None:
    lock = KINDS[kind](client)
    lock.acquire()
    proxy.delay_replies(SLOW)

    lock.reacquire()

    there = in_redis()
    assert 0 < lock.remaining() <= there


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
