"""Pools whose connections are all taken, by others or by those who wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock.core.batch import release_each, take_each
from django_setnx_lock.core.errors import LockBusy, LockUnavailable
from django_setnx_lock.core.lock import RedisLock
from tests.faults.pools import full_pool, only_one

if TYPE_CHECKING:
    from tests.servers import RealServer


POOLS = pytest.mark.parametrize(
    ("pool", "options"),
    [(redis.ConnectionPool, {}), (redis.BlockingConnectionPool, {"timeout": 0.05})],
    ids=["refusing", "blocking"],
)


@POOLS
def test_a_full_pool_keeps_nobody_from_a_lock(
    real_server: RealServer, pool: type[redis.ConnectionPool], options: dict[str, Any]
) -> None:
    with full_pool(real_server, pool, **options) as client:
        with RedisLock(client, "lock:a") as held:
            held.check()
            held.reacquire()
            with pytest.raises(LockBusy):
                RedisLock(client, "lock:a").take(0.01)

        assert not real_server.client().exists("lock:a")


@POOLS
def test_many_locks_at_once_take_a_connection_of_the_pool(
    real_server: RealServer, pool: type[redis.ConnectionPool], options: dict[str, Any]
) -> None:
    with full_pool(real_server, pool, **options) as client:
        with pytest.raises(LockUnavailable, match="no connection is free in the pool") as caught:
            take_each([RedisLock(client, "lock:a")])

        assert caught.value.cause == "pool"
        assert not real_server.client().exists("lock:a")


@POOLS
def test_locks_that_a_full_pool_kept_from_their_release_are_released_later(
    real_server: RealServer, pool: type[redis.ConnectionPool], options: dict[str, Any]
) -> None:
    with only_one(real_server, pool, **options) as client:
        held = RedisLock(client, "lock:a").take(0)
        used = client.pubsub()
        used.subscribe("anything")
        errors = release_each([held])
        used.close()

        assert release_each([held]) == []

        assert [getattr(error, "cause", "") for error in errors] == ["pool"]
        assert not client.exists("lock:a")
        client.connection_pool.disconnect()


def test_waiting_keeps_no_connection_from_others(real_server: RealServer) -> None:
    with only_one(real_server, redis.ConnectionPool) as client:
        held = RedisLock(client, "lock:a").take(0)

        with pytest.raises(LockBusy):
            RedisLock(client, "lock:a").take(0.05)
        held.release()

        assert not client.exists("lock:a")
        client.connection_pool.disconnect()
