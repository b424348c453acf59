"""The connection of redis.asyncio that a client's own settings ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from redis import connection as redis_connection
from redis import sentinel as redis_sentinel
from redis.asyncio import Redis
from redis.asyncio import cluster as aio_cluster
from redis.asyncio import connection as aio_connection
from redis.asyncio import sentinel as aio_sentinel
from redis.asyncio.retry import Retry
from redis.retry import Retry as BlockingRetry

from ..cluster.shared import is_cluster
from ..line import OnConnect, options_for

# Each kind of connection, and the one that does the same for asyncio.
_TWINS: dict[type, Any] = {
    redis_connection.Connection: aio_connection.Connection,
    redis_connection.SSLConnection: aio_connection.SSLConnection,
    redis_connection.UnixDomainSocketConnection: aio_connection.UnixDomainSocketConnection,
    redis_sentinel.SentinelManagedConnection: aio_sentinel.SentinelManagedConnection,
    redis_sentinel.SentinelManagedSSLConnection: aio_sentinel.SentinelManagedSSLConnection,
}
# Before redis-py 6.3 or so, others do not know what a cluster's node answers.
_CLUSTER_PARSER: Any = getattr(aio_cluster, "ClusterParser", None)
# What is of no meaning for a connection of asyncio, or is the pool's.
_LEFT_OUT = frozenset(
    {
        "command_packer",
        "event_dispatcher",
        "himport_registry",
        "maint_notifications_config",
        "maint_notifications_pool_handler",
        "maintenance_notification_hash",
        "maintenance_state",
        "orig_host_address",
        "orig_socket_connect_timeout",
        "orig_socket_timeout",
        "oss_cluster_maint_notifications_handler",
        "parser_class",
    }
)


def register(kind: type, twin: type) -> None:
    """Have clients whose connections are of the class ``kind`` use ``twin`` in asyncio.

    Both take the same settings. Classes derived from ``kind`` need no registration.
    """
    _TWINS[kind] = twin


def maker_for(client: Any, connect_timeout: float | None = None) -> Callable[[], Any]:
    """What makes connections of asyncio, not connected yet, with the settings of ``client``.

    It keeps the settings and not the client. ``client``: any of redis-py that has one connection
    pool, as each node of a cluster has. ``connect_timeout``: as in
    :class:`~django_setnx_lock.core.line.Line`. Raises NotImplementedError for other clients; what
    it gives raises TypeError for settings and classes that nothing in asyncio corresponds to.
    """
    refuse_many_servers(client)
    options = options_for(client, connect_timeout)
    return partial(_make, client.connection_pool.connection_class, options)


def refuse_many_servers(client: Any) -> None:
    """Raise NotImplementedError unless ``client`` is one of a single server."""
    if getattr(client, "connection_pool", None) is None and not is_cluster(client):
        raise NotImplementedError(
            f"locks of asyncio need a client of one server, which {type(client).__name__} is not: "
            "on a cluster give redis.RedisCluster, whose settings are used in asyncio, too"
        )


def _make(kind: type, options: Mapping[str, Any]) -> Any:
    twin = _twin_of(kind)
    settings = {name: value for name, value in options.items() if name not in _LEFT_OUT}
    if isinstance(settings.get("redis_connect_func"), OnConnect):
        # That of a cluster's node, which has the parser know its errors.
        del settings["redis_connect_func"]
        if _CLUSTER_PARSER is not None:
            settings["parser_class"] = _CLUSTER_PARSER
    if isinstance(settings.get("retry"), BlockingRetry):
        settings["retry"] = _twin_of_retry(settings["retry"])
    if settings.get("retry_on_error"):
        # The connection adds to it.
        settings["retry_on_error"] = list(settings["retry_on_error"])
    if not issubclass(kind, aio_connection.AbstractConnection):
        # A check that is off is nothing to do without.
        settings = {
            name: value
            for name, value in settings.items()
            if value or not name.startswith("ssl_validate_ocsp")
        }
        if hasattr(settings.get("connection_pool"), "sentinel_manager"):
            settings["connection_pool"] = _Service(settings["connection_pool"])
    try:
        return twin(**settings)
    except TypeError as error:
        raise TypeError(f"the client's settings do not suit asyncio: {error}") from error


def _twin_of(kind: type) -> Any:
    if issubclass(kind, aio_connection.AbstractConnection):
        return kind
    for base in kind.__mro__:
        if base in _TWINS:
            if base is kind or not base.__module__.startswith("redis."):
                return _TWINS[base]
            break
    raise TypeError(
        f"which connection of asyncio corresponds to {kind.__module__}.{kind.__qualname__} is not "
        "known: tell it to django_setnx_lock.core.aio.kinds.register()"
    )


def _twin_of_retry(retry: BlockingRetry) -> Retry:
    errors: Any = retry._supported_errors
    return Retry(retry._backoff, retry._retries, errors)


class _Service:
    """Tells where the primary of a Sentinel's service is, in the place of a pool."""

    is_master = True

    def __init__(self, pool: Any) -> None:
        self.check_connection = pool.check_connection
        self._name = pool.service_name
        self._manager = pool.sentinel_manager

    async def get_master_address(self) -> Any:
        async with self._asking() as sentinel:
            return await sentinel.discover_master(self._name)

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[aio_sentinel.Sentinel]:
        """Sentinels on connections for this time only."""
        manager = self._manager
        kind: Any = aio_sentinel.Sentinel
        sentinel = kind([], manager.min_other_sentinels)
        sentinel._force_master_ip = getattr(manager, "_force_master_ip", None)
        clients = sentinel.sentinels = [_client_like(one) for one in manager.sentinels]
        try:
            yield sentinel
        finally:
            for client in clients:
                await client.connection_pool.disconnect()


def _client_like(client: Any) -> Any:
    def connection(**options: Any) -> Any:
        return _make(client.connection_pool.connection_class, options)

    pool = aio_connection.ConnectionPool(
        connection_class=connection,  # type: ignore[arg-type]  # it is only called
        **options_for(client, None),
    )
    return Redis(connection_pool=pool)
