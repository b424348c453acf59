"""Connections of kinds that are not known are to be introduced to asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis
import redis.asyncio

from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.connections import connection
from tests.processes import run

if TYPE_CHECKING:
    from tests.servers import RealServer


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
