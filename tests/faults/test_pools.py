"""Pools whose connections are all taken, by others or by those who wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis
from django.db import transaction

from django_setnx_lock import LockBusy, LockLost
from django_setnx_lock.core import MultiLock, RedisLock
from tests.faults.pools import full_pool, only_one
from tests.support.seams import commit_lock, release_each, take_each

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
def test_a_full_pool_keeps_nobody_from_many_locks_at_once(
    real_server: RealServer, pool: type[redis.ConnectionPool], options: dict[str, Any]
) -> None:
    with full_pool(real_server, pool, **options) as client:
        taken = take_each([RedisLock(client, "lock:a"), RedisLock(client, "lock:b")])
        errors = release_each([one.held for one in taken if one.held])

        assert [one.error for one in taken] == [None, None]
        assert errors == []
        assert not real_server.client().exists("lock:a", "lock:b")


@POOLS
def test_a_full_pool_keeps_nobody_from_a_lock_over_several_keys(
    real_server: RealServer, pool: type[redis.ConnectionPool], options: dict[str, Any]
) -> None:
    with full_pool(real_server, pool, **options) as client:
        with MultiLock(client, ["lock:a", "lock:b"]) as held:
            held.check()
            held.reacquire()
            with pytest.raises(LockBusy):
                MultiLock(client, ["lock:b", "lock:c"]).take(0.01)

        assert not real_server.client().exists("lock:a", "lock:b", "lock:c")


@pytest.mark.django_db(transaction=True)
@POOLS
def test_a_full_pool_keeps_no_lock_from_its_release_at_the_commit(
    real_server: RealServer, pool: type[redis.ConnectionPool], options: dict[str, Any]
) -> None:
    names = [f"lock:{number}" for number in range(300)]
    with full_pool(real_server, pool, **options) as client:
        with transaction.atomic():
            for name in names:
                commit_lock(client, name).take(0).release()
            within = real_server.client().exists(*names)

        assert (within, real_server.client().exists(*names)) == (300, 0)


@pytest.mark.django_db(transaction=True)
@POOLS
def test_a_full_pool_keeps_no_loss_from_being_found_before_the_commit(
    real_server: RealServer, pool: type[redis.ConnectionPool], options: dict[str, Any]
) -> None:
    def work() -> None:
        with transaction.atomic():
            commit_lock(client, "lock:a").take(0).release()
            real_server.client().delete("lock:a")

    with full_pool(real_server, pool, **options) as client, pytest.raises(LockLost):
        work()


def test_waiting_keeps_no_connection_from_others(real_server: RealServer) -> None:
    with only_one(real_server, redis.ConnectionPool) as client:
        held = RedisLock(client, "lock:a").take(0)

        with pytest.raises(LockBusy):
            RedisLock(client, "lock:a").take(0.05)
        held.release()

        assert not client.exists("lock:a")
        client.connection_pool.disconnect()
