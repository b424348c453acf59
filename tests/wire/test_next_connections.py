"""What the core to come makes of connections and answers that are not as they should be."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import redis

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core.next import RedisLock

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
