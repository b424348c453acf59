"""The proxy that makes the faults of a network, on which other tests rely."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis

from tests.servers import ONCE

if TYPE_CHECKING:
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer


def impatient(proxy: Proxy, **options: Any) -> redis.Redis:
    """Return a client that has its connection and tries each command once."""
    client = proxy.client(retry=ONCE, **options)
    client.ping()
    return client


def test_a_dropped_reply_is_an_error_though_the_server_did_the_work(
    proxy: Proxy, real_server: RealServer
) -> None:
    client = impatient(proxy)
    dropped = proxy.drop_next_reply(match=b"INCR")
    client.get("other")

    with pytest.raises(redis.ConnectionError):
        client.incr("counter")

    assert dropped.is_set()
    assert real_server.client().get("counter") == b"1"


def test_a_held_request_arrives_after_its_client_gave_up(
    proxy: Proxy, real_server: RealServer
) -> None:
    client = impatient(proxy, socket_timeout=0.1)
    proxy.hold(match=b"SET")

    with pytest.raises(redis.TimeoutError):
        client.set("late", "message")

    assert proxy.holds.is_set()
    assert real_server.client().get("late") is None
    proxy.let_go()
    assert real_server.client().get("late") == b"message"
