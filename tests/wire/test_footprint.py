"""What locks leave in Redis: bounded by the number of names, not of attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis.asyncio

from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.protocol import scripts
from tests.wire.helpers import meta_of

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


def test_what_was_sent_twice_is_remembered(client: redis.Redis) -> None:
    held = RedisLock(client, "lock:a").take()
    held.grant.in_doubt = True

    held.release()

    assert client.get("{lock:a}:gone:" + held.token) == b"released"


def test_what_stands_beside_a_name_outlives_the_lease_by_a_minute(client: redis.Redis) -> None:
    with RedisLock(client, "lock:a", 5) as held:
        assert 64_000 < client.pttl("{lock:a}:meta") <= 65_000
        held.extend(600)
        assert 664_000 < client.pttl("{lock:a}:meta") <= 665_000
        found = meta_of(client)

    assert found.token == held.token
    assert found.fence == held.fence
