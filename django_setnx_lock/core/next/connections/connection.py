"""The connections of threads: redis-py's, made within a given time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from redis import exceptions as redis_exceptions

from ... import clock

# What makes a connection asks the server by these.
_STEPS = "send_packed_command", "read_response"


def limit_to(connection: Any, seconds: float) -> None:
    """Have the next step on ``connection`` take so long at most. Raises TimeoutError at none."""
    if seconds <= 0:
        raise redis_exceptions.TimeoutError("Timeout reading from the server")
    if hasattr(connection._sock, "settimeout"):
        connection._sock.settimeout(seconds)


class _Bounded:
    """Makes a connection of redis-py by a given time, all of it; each step gets what is left."""

    connect: Callable[[], None]
    _until = math.inf

    def _left(self, limit: float) -> float:
        return max(min(limit, self._until - clock.now()), 0.001)

    # Asked for at each address of the host, and for TLS.
    @property
    def socket_connect_timeout(self) -> float:
        return self._left(self._socket_connect_timeout)

    @socket_connect_timeout.setter
    def socket_connect_timeout(self, seconds: float) -> None:
        self._socket_connect_timeout = seconds

    @property
    def socket_timeout(self) -> float:
        return self._left(self._socket_timeout)

    @socket_timeout.setter
    def socket_timeout(self, seconds: float) -> None:
        self._socket_timeout = seconds

    def _connect(self) -> Any:
        try:
            return super()._connect()  # type: ignore[misc]  # redis-py's
        finally:
            # The parser takes over the limit for later.
            self._until = math.inf

    def connect_by(self, until: float) -> None:
        """Connect by ``until``, with TLS and all that redis-py says and is answered at first.

        Not bounded are how long the system looks up the name of the host, what a credential
        provider or ``redis_connect_func`` does besides asking, and an answer that comes in pieces.
        """

        def limited(name: str) -> Callable[..., Any]:
            def step(*args: Any, **options: Any) -> Any:
                limit_to(self, until - clock.now())
                return getattr(type(self), name)(self, *args, **options)

            return step

        own = vars(self)
        own["_until"] = until
        for name in _STEPS:
            own[name] = limited(name)
        try:
            self.connect()
            limit_to(self, self._socket_timeout)
        except BaseException:
            close(self)
            raise
        finally:
            for name in _STEPS:
                del own[name]


@cache
def bounded(kind: type) -> Any:
    """Return the class of connections like ``kind`` that can be made by a given time."""
    return type(f"Bounded{kind.__name__}", (_Bounded, kind), {})


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
