"""Clients with little to connect with."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import redis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RealServer


def only_one(server: RealServer, pool: type[redis.ConnectionPool], **options: Any) -> redis.Redis:
    return redis.Redis(
        connection_pool=pool(host="127.0.0.1", port=server.port, max_connections=1, **options)
    )


@contextlib.contextmanager
def full_pool(
    server: RealServer, pool: type[redis.ConnectionPool], **options: Any
) -> Iterator[redis.Redis]:
    """Give a client whose only connection is taken."""
    with only_one(server, pool, **options) as client:
        used = client.pubsub()
        used.subscribe("anything")
        yield client
        used.close()
        client.connection_pool.disconnect()
