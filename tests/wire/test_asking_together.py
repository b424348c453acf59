"""More tasks of one event loop that ask at once than have a connection: they ask together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import LockHandle, RedisLock
from django_setnx_lock.core.protocol import scripts
from django_setnx_lock.core.protocol.replies import text
from tests.processes import run, until

if TYPE_CHECKING:
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

MANY = 60
SHA = scripts.ACQUIRE.sha.encode()


@pytest.fixture
def direct(real_server: RealServer) -> redis.Redis:
    """Give a client past the proxy, of a server that knows the scripts."""
    client = real_server.client()
    for script in (scripts.ACQUIRE, scripts.RELEASE, scripts.CANCEL):
        client.script_load(script.source)
    return client


async def take(client: Any, number: int, **options: Any) -> LockHandle:
    return await RedisLock(client, f"lock:{number}", 30, renew=False, **options).atake(0)


async def together(client: Any, **options: Any) -> list[Any]:
    """Return what each of many tasks got that ask at once: its lock, or an error."""
    asking = [take(client, number, **options) for number in range(MANY)]
    return await asyncio.gather(*asking, return_exceptions=True)


def held_in(client: redis.Redis) -> int:
    return sum(bool(client.exists(f"lock:{number}")) for number in range(MANY))


def test_many_tasks_that_ask_at_once_have_three_connections(
    proxy: Proxy, direct: redis.Redis
) -> None:
    def connections() -> int:
        stats: Any = direct.info("stats")
        return int(stats["total_connections_received"])

    before = connections()
    taken = run(together(proxy.client()))

    assert len({held.fence for held in taken}) == MANY
    assert connections() - before == 3


def test_they_do_so_in_a_few_trips(proxy: Proxy, direct: redis.Redis) -> None:
    run(together(proxy.client()))

    assert sum(SHA in sent for sent in proxy.requests) == 4


def test_what_is_wrong_with_one_is_told_of_that_one(proxy: Proxy, direct: redis.Redis) -> None:
    direct.lpush("lock:50", "no lock")

    taken = run(together(proxy.client()))

    errors = [one for one in taken if not isinstance(one, LockHandle)]
    assert [(one.key, one.cause) for one in errors] == [("lock:50", "wrongtype")]


def test_replies_that_are_cut_off_cost_nobody_a_lock(proxy: Proxy, direct: redis.Redis) -> None:
    client = proxy.client(retry=Retry(NoBackoff(), 1))

    async def work() -> list[Any]:
        # The first three have all the connections until they are let go.
        proxy.hold(SHA)
        tasks = [asyncio.create_task(take(client, number)) for number in range(MANY)]
        await until(lambda: len(proxy.requests) and proxy.holds.is_set())
        proxy.let_go()
        proxy.drop_next_reply(SHA)
        return await asyncio.gather(*tasks)

    taken = run(work())

    assert {held.token for held in taken} == {
        text(direct.get(f"lock:{number}")) for number in range(MANY)
    }


def test_one_that_is_cancelled_while_it_waits_takes_nothing(
    proxy: Proxy, direct: redis.Redis
) -> None:
    client = proxy.client()

    async def work() -> list[Any]:
        proxy.hold(SHA)
        tasks = [asyncio.create_task(take(client, number)) for number in range(MANY)]
        await until(proxy.holds.is_set)
        tasks[-1].cancel()
        await asyncio.sleep(0)
        proxy.let_go()
        return await asyncio.gather(*tasks, return_exceptions=True)

    *taken, last = run(work())

    assert all(isinstance(held, LockHandle) for held in taken)
    assert isinstance(last, asyncio.CancelledError)
    assert held_in(direct) == MANY - 1


def test_one_whose_time_is_over_waits_no_longer_for_a_connection(
    proxy: Proxy, direct: redis.Redis
) -> None:
    client = proxy.client(socket_timeout=15)

    async def work() -> Any:
        proxy.hold(SHA)
        asking = [asyncio.create_task(take(client, number)) for number in range(3)]
        await until(proxy.holds.is_set)
        with pytest.raises(LockUnavailable) as caught:
            await RedisLock(client, "lock:late", 30).atake(0.1)
        proxy.let_go()
        await asyncio.gather(*asking)
        return caught.value

    assert run(work()).cause == "timeout"
    assert not direct.exists("lock:late")


def test_when_all_tasks_are_cancelled_nothing_is_left(proxy: Proxy, direct: redis.Redis) -> None:
    client = proxy.client()

    async def work() -> None:
        others = asyncio.all_tasks()
        proxy.hold(SHA)
        tasks = [asyncio.create_task(take(client, number)) for number in range(MANY)]
        await until(proxy.holds.is_set)
        proxy.let_go()
        for task in asyncio.all_tasks() - others:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(work())

    assert held_in(direct) == 0
