"""What becomes of connections and answers that are not as they should be."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import redis
import redis.asyncio

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import LockHandle, RedisLock
from django_setnx_lock.core.connections import connection
from django_setnx_lock.core.protocol.requests import ACQUIRE, RELEASE
from tests.processes import eventually, run

if TYPE_CHECKING:
    from tests.servers import RealServer


def test_settings_that_no_connection_can_be_made_with_are_told(real_server: RealServer) -> None:
    client = redis.Redis(port=real_server.port, protocol=4)

    with pytest.raises(LockUnavailable, match="protocol"):
        RedisLock(client, "k").acquire(blocking=False)


def test_a_waiter_whose_token_is_no_text_breaks_no_release(real_server: RealServer) -> None:
    client = real_server.client()
    held = RedisLock(client, "k").take()
    until = int(time.time() * 1000) + 60_000
    client.zadd("{k}:waiters", {b"\xff": 5})
    client.hset("{k}:waiting", b"\xff", b"%d %d 5 3 box {}" % (until, until))

    held.release()

    assert held.released


def waiter(client: redis.Redis) -> Future[LockHandle]:
    """Have a thread wait for the lock; return what it gets."""
    pool = ThreadPoolExecutor(1)
    # With so short a lease the first sleep does not carry the next request.
    found = pool.submit(RedisLock(client, "k", timeout=2).take, 20)
    pool.shutdown(wait=False)
    return found


def sleepers(client: redis.Redis) -> int:
    """Return how many connections wait for mail."""
    found: int = client.info("clients")["blocked_clients"]
    return found


def calls_of(client: redis.Redis, command: str) -> int:
    found: int = client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0)
    return found


def test_a_thread_that_sleeps_is_not_taken_for_awake(real_server: RealServer) -> None:
    client = real_server.client()
    held = RedisLock(client, "k").take()
    job = waiter(client)

    eventually(lambda: sleepers(client))

    assert client.keys("*:awake") == []
    held.release()
    job.result(10).release()


def test_a_thread_listens_on_while_it_asks(real_server: RealServer) -> None:
    client = real_server.client()
    client.set("k", "another program's")
    client.config_resetstat()
    job = waiter(client)

    # It asks often, as nobody wakes it.
    eventually(lambda: calls_of(client, "evalsha") > 10)

    assert calls_of(client, "brpop") <= 1
    client.delete("k")
    job.result(10).release()


def test_a_thread_sleeps_no_longer_than_the_lease_that_it_saw(real_server: RealServer) -> None:
    client = real_server.client()
    RedisLock(client, "k", timeout=0.3).take()

    waiter(client).result(10).release()


def test_who_gives_up_what_it_was_given_has_the_next_have_it(real_server: RealServer) -> None:
    client = real_server.client()
    held = RedisLock(client, "k", timeout=60).take()

    async def give_up() -> Future[LockHandle]:
        first = asyncio.ensure_future(RedisLock(client, "k").atake(20))
        await asyncio.to_thread(eventually, lambda: client.zcard("{k}:waiters"))
        # Of a process that was killed as it slept.
        dead = ("dead", "1000", "{}", "25000", "{k}:wake:dead")
        client.eval(ACQUIRE.source, 2, "k", "{k}:meta", *dead)
        client.delete("{k}:wake:dead:awake")
        job = waiter(client)
        await asyncio.to_thread(eventually, lambda: sleepers(client) == 2)
        # While the loop stands still.
        client.eval(RELEASE.source, 2, "k", "{k}:meta", held.token, "")
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return job

    job = asyncio.run(give_up())

    job.result(10).release()


def test_a_connection_of_ones_own_is_refused_until_its_twin_is_known(
    real_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TWINS", dict(connection.TWINS))

    class Mine(redis.Connection):
        pass

    class Twin(redis.asyncio.Connection):
        pass

    pool = redis.ConnectionPool(connection_class=Mine, port=real_server.port)
    client = redis.Redis(connection_pool=pool)

    with pytest.raises(
        TypeError,
        match=r"corresponds to .*Mine is not known.*connection\.register",
    ):
        run(RedisLock(client, "lock:a").aacquire())
    connection.register(Mine, Twin)

    assert run(RedisLock(client, "lock:a").aacquire())
    pool.disconnect()
