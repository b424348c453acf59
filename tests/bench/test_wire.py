"""Counting what is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from redis.connection import AbstractConnection

from bench import wire

if TYPE_CHECKING:
    import redis

    from tests.servers import RealServer


@pytest.fixture
def client(real_server: RealServer, monkeypatch: pytest.MonkeyPatch) -> redis.Redis:
    """Give a connected client whose requests are counted."""
    client = real_server.client()
    client.ping()
    # Undone at the end, with the counting put over it.
    original = AbstractConnection.send_packed_command
    monkeypatch.setattr(AbstractConnection, "send_packed_command", original)
    wire.start_counting()
    return client


def test_a_command_is_one_request(client: redis.Redis) -> None:
    before = wire.sent()

    client.set("a", 1)
    client.get("a")

    assert wire.sent() - before == 2


def test_a_pipeline_is_one_request(client: redis.Redis) -> None:
    before = wire.sent()

    with client.pipeline(transaction=False) as pipeline:
        pipeline.set("a", 1)
        pipeline.get("a")
        pipeline.execute()

    assert wire.sent() - before == 1


def test_what_a_script_does_is_no_request(client: redis.Redis) -> None:
    before = wire.sent()

    client.eval("redis.call('set', KEYS[1], 1) return redis.call('get', KEYS[1])", 1, "a")

    assert wire.sent() - before == 1
