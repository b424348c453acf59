"""What locks leave in Redis: bounded by the number of names, not of attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis.asyncio

from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.protocol import scripts

if TYPE_CHECKING:
    from tests.servers import RealServer

TIMES = 20


@pytest.fixture
def client(real_server: RealServer) -> redis.Redis:
    """Give a client of a server that knows the scripts."""
    client = real_server.client()
    for script in vars(scripts).values():
        if isinstance(script, scripts.Script):
            client.script_load(script.source)
    return client


def test_a_name_leaves_less_than_400_bytes_for_a_minute(client: redis.Redis) -> None:
    for number in range(TIMES):
        with RedisLock(client, f"lock:order:{number}", index="{lock:}:index"):
            pass

    keys = client.keys("*")
    assert len(keys) == TIMES
    assert max(client.memory_usage(key) or 0 for key in keys) < 400
    assert max(map(client.pttl, keys)) <= 60_000
