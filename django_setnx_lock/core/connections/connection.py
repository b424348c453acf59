"""The connections of threads: redis-py's, made within a given time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from types import MappingProxyType
from typing import Any

from redis import exceptions as redis_exceptions

from .. import clock


def limit_to(connection: Any, seconds: float) -> None:
    """Have the next step on ``connection`` take so long at most. Raises TimeoutError at none."""
    if seconds <= 0:
        raise redis_exceptions.TimeoutError("Timeout reading from the server")
    if hasattr(connection._sock, "settimeout"):
        connection._sock.settimeout(seconds)


def _limit(name: str) -> Any:
    """Return the setting ``name`` of a connection that is being made: what is left is less."""

    def left(connection: Any) -> float:
        limit: float = connection.settings.get(name, math.inf)
        # Once it is connected, its parser takes over the limit for later.
        is_connected = getattr(connection, "_sock", None)
        return limit if is_connected else max(min(limit, connection.until - clock.now()), 0.001)

    return property(left, lambda connection, seconds: None)


@cache
def _making(kind: Any) -> Any:
    """Return the class of connections like ``kind`` that are made by the time ``until``."""

    class Making(kind):  # type: ignore[misc]  # which of redis-py's is found out here
        until = math.inf
        settings: Mapping[str, Any] = MappingProxyType({})
        # Asked for at each address of the host, and for TLS.
        socket_timeout = _limit("socket_timeout")
        socket_connect_timeout = _limit("socket_connect_timeout")

        # The socket has that limit for what is sent next, too.
        def read_response(self, *args: Any, **options: Any) -> Any:
            limit_to(self, self.until - clock.now())
            return super().read_response(*args, **options)

    return Making


def connected(kind: Any, settings: dict[str, Any], until: float) -> Any:
    """Return a connection that is made by ``until``, with TLS and all that is asked at first.

    Not bounded are how long the system looks up the name of the host, what a credential provider or
    ``redis_connect_func`` does besides asking, and an answer that comes in pieces. Raises what
    redis-py raises.
    """
    made = _making(kind)(**settings)
    made.until, made.settings = until, settings
    try:
        made.connect()
        # From now on it is one like any, and each step as quick.
        made.__class__ = kind
        made.socket_timeout = settings["socket_timeout"]
        made.socket_connect_timeout = settings["socket_connect_timeout"]
        limit_to(made, made.socket_timeout)
    except BaseException:
        close(made)
        raise
    return made


def take(idle: deque[Any]) -> Any:
    """Return one of the ``idle`` connections, None if there is none; others take some meanwhile."""
    try:
        return idle.pop()
    except IndexError:
        return None


def close(connection: Any) -> None:
    """Close a connection, which may be None or broken."""
    if connection is not None:
        with suppress(redis_exceptions.RedisError, OSError):
            connection.disconnect()
