"""Connections of our own, made with the settings of a redis-py client: for threads and asyncio."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from types import MappingProxyType
from typing import Any
from weakref import WeakMethod

from redis import connection as redis_connection
from redis import exceptions as redis_exceptions
from redis import sentinel as redis_sentinel
from redis.asyncio import Redis
from redis.asyncio import cluster as aio_cluster
from redis.asyncio import connection as aio_connection
from redis.asyncio import sentinel as aio_sentinel
from redis.asyncio.retry import Retry as AioRetry
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from .. import clock
from ..errors import LockUnsupported

# How many seconds connecting may take, and an answer, where the client sets no limit.
CONNECT_WITHIN = 5.0
# What redis-py 7 and later tell of a server's maintenance: it refers to the pool, which would
# live for as long as its connections then, and costs each connection a request of its own.
_OF_THE_POOL = frozenset(
    {
        "maint_notifications_config",
        "maint_notifications_pool_handler",
        "oss_cluster_maint_notifications_handler",
    }
)
# Options without a meaning for a connection of asyncio.
_OF_THREADS = frozenset(
    {
        "command_packer",
        "event_dispatcher",
        "himport_registry",
        "maintenance_notification_hash",
        "maintenance_state",
        "orig_host_address",
        "orig_socket_connect_timeout",
        "orig_socket_timeout",
        "parser_class",
    }
)
# Each class of connections, and the one that does the same for asyncio.
TWINS: dict[type, Any] = {
    redis_connection.Connection: aio_connection.Connection,
    redis_connection.SSLConnection: aio_connection.SSLConnection,
    redis_connection.UnixDomainSocketConnection: aio_connection.UnixDomainSocketConnection,
    redis_sentinel.SentinelManagedConnection: aio_sentinel.SentinelManagedConnection,
    redis_sentinel.SentinelManagedSSLConnection: aio_sentinel.SentinelManagedSSLConnection,
}
# Before redis-py 6.3 or so, others do not know what a cluster's node answers.
_CLUSTER_PARSER: Any = getattr(aio_cluster, "ClusterParser", None)


def options_for(pool: Any, limit: float | None) -> dict[str, Any]:
    """Return what a connection like those of redis-py's ``pool`` is made with.

    ``limit``: the seconds that connecting and each answer may take; None: what its client says.
    """
    options = {
        name: value for name, value in pool.connection_kwargs.items() if name not in _OF_THE_POOL
    }
    connected = options.get("redis_connect_func")
    if isinstance(getattr(connected, "__self__", None), RedisCluster):
        options["redis_connect_func"] = _OnConnect(connected)
    answer = limit or options.get("socket_timeout") or CONNECT_WITHIN
    return options | {
        "socket_timeout": answer,
        "socket_connect_timeout": limit or options.get("socket_connect_timeout") or answer,
        # We try again, once for all of connecting, sending and reading.
        "health_check_interval": 0,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "retry_on_error": [],
    }


class _OnConnect:
    """What a cluster's client has each connection begin with: ``method``, a method of it.

    A connection that is kept for the next must not keep the client.
    """

    def __init__(self, method: Any) -> None:
        self._method = WeakMethod(method)

    def __call__(self, connection: Any) -> None:
        method = self._method()
        if method is None:
            raise redis_exceptions.ConnectionError("the client of this connection is gone")
        method(connection)


# What a client of redis-py sends commands by, and whose classes may have that.
_CALLS = ("execute_command", "parse_response", "pipeline", "eval", "evalsha")
_SHIPPED = frozenset({"redis", "fakeredis", "django_redis", "valkey", "django_valkey"})


@cache
def refuse_own_calls(kind: type) -> None:
    """Raise LockUnsupported if a class of clients, ``kind``, sends commands in its own way.

    The calls of locks do not go through the client, so what such a class adds, as a prefix, would
    be left out. Tracing patches the classes of redis-py themselves, and is no reason.
    """
    for name in _CALLS:
        owner = next((base for base in kind.__mro__ if name in vars(base)), object)
        if owner is not object and owner.__module__.partition(".")[0] not in _SHIPPED:
            raise LockUnsupported(
                f"the client's class {owner.__module__}.{owner.__qualname__} has its own {name}(), "
                "which the calls of locks do not go through: give the lock "
                "redis.Redis(connection_pool=client.connection_pool), and put a prefix into its "
                "name"
            )


# Those of threads


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


# Those of asyncio


def register(kind: type, twin: type) -> None:
    """Let clients whose connections are of the class ``kind`` use ``twin`` in asyncio.

    Both take the same settings. Classes derived from ``kind`` need no registration.
    """
    TWINS[kind] = twin


def aio_connection_of(kind: type, /, **options: Any) -> Any:
    """Return a connection of asyncio in the place of one of the class ``kind`` with ``options``.

    Raises TypeError for settings and classes that nothing in asyncio corresponds to.
    """
    twin = _twin_of(kind)
    settings = {
        name: value
        for name, value in options.items()
        # What is not set, and a check that is off, is nothing to do without.
        if name not in _OF_THREADS
        and not (name.startswith("ssl_") and (value is None or (not value and "_ocsp" in name)))
    }
    settings["retry"] = AioRetry(NoBackoff(), 0)
    if isinstance(settings.get("redis_connect_func"), _OnConnect):
        # The class for the nodes of a cluster, whose parser knows their errors.
        del settings["redis_connect_func"]
        if _CLUSTER_PARSER is not None:
            settings["parser_class"] = _CLUSTER_PARSER
    if twin is not kind and hasattr(settings.get("connection_pool"), "sentinel_manager"):
        settings["connection_pool"] = Service(settings["connection_pool"])
    try:
        return twin(**settings)
    except TypeError as error:
        raise TypeError(f"the client's settings do not suit asyncio: {error}") from error


def _twin_of(kind: type) -> Any:
    if issubclass(kind, aio_connection.AbstractConnection):
        return kind
    for base in kind.__mro__:
        if base in TWINS:
            if base is kind or not base.__module__.startswith("redis."):
                return TWINS[base]
            break
    raise TypeError(
        f"which connection of asyncio corresponds to {kind.__module__}.{kind.__qualname__} is not "
        "known: give both to django_setnx_lock.core.connections.connection.register()"
    )


class Service:
    """Tells where the primary of a Sentinel's service is, in the place of a pool."""

    is_master = True

    def __init__(self, pool: Any) -> None:
        self.check_connection = pool.check_connection
        self._name = pool.service_name
        self._manager = pool.sentinel_manager

    async def get_master_address(self) -> Any:
        kind: Any = aio_sentinel.Sentinel
        sentinel = kind([], self._manager.min_other_sentinels)
        sentinel._force_master_ip = getattr(self._manager, "_force_master_ip", None)
        # On connections for this time only.
        made: list[Any] = []
        sentinel.sentinels = [
            _client_like(one.connection_pool, made) for one in self._manager.sentinels
        ]
        try:
            return await sentinel.discover_master(self._name)
        finally:
            # To wait for it could be cancelled: that of their pool would leave them open then.
            for connection in made:
                hang_up(connection)


def _client_like(pool: Any, made: list[Any]) -> Any:
    """Return a client of asyncio with the settings of ``pool``; its connections are in ``made``."""

    def connection(**options: Any) -> Any:
        made.append(aio_connection_of(pool.connection_class, **options))
        return made[-1]

    kind: Any = connection
    own = aio_connection.ConnectionPool(connection_class=kind, **options_for(pool, None))
    return Redis(connection_pool=own)


def hang_up(connection: Any) -> None:
    """Close a ``connection`` of asyncio at once, with whatever is under way on it."""
    # The fake's has no transport, and from fakeredis 2.41 on one that cannot abort().
    abort = getattr(getattr(connection._writer, "transport", None), "abort", None)
    if abort is not None:
        abort()
    connection._close()
