"""A django-redis client for a cache that lives in a Redis Cluster. See :doc:`cluster`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django_redis.client import DefaultClient
from django_redis.client.default import ConnectionInterrupted
from django_redis.pool import ConnectionFactory
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import parse_url
from redis.exceptions import RedisClusterException, RedisError

from .core.connections.cluster_routes import SharedCluster
from .core.connections.primitives import Guard

# Seconds. A node that hangs is not to keep its callers for ever; SOCKET_TIMEOUT and
# SOCKET_CONNECT_TIMEOUT are used instead where they are set.
_TIMEOUTS = {"socket_timeout": 5.0, "socket_connect_timeout": 5.0}

_clusters: dict[str, SharedCluster] = {}
_adding = Guard()


def _parsed(url: str) -> dict[str, Any]:
    return dict(parse_url(url))  # type: ignore[no-untyped-call]  # redis-py has none


def urls_of(location: str | Sequence[str]) -> list[str]:
    """Return the addresses that a LOCATION names."""
    urls = location.split(",") if isinstance(location, str) else location
    return [url for url in (str(url).strip() for url in urls) if url]


def location_problem(location: str | Sequence[str]) -> str | None:
    """Return why a cluster cannot be at ``location``, or None. Connects to nothing."""
    for url in urls_of(location):
        try:
            options = _parsed(url)
        except ValueError:
            # Without the error's own text, which can quote a password.
            return "its LOCATION cannot be understood: write for example redis://redis-1:6379/0"
        if options.get("path"):
            return "it is a cluster, which has no unix socket: write redis://host:port/0"
        if number := options.get("db"):
            return (
                f"it is a cluster, which has the database 0 alone, and its LOCATION names {number}"
            )
    return None


class ClusterConnectionFactory(ConnectionFactory):  # type: ignore[misc] # it is untyped
    """Makes one :class:`SharedCluster` for all caches of a process with the same settings."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__({"REDIS_CLIENT_CLASS": "redis.cluster.RedisCluster", **options})

    def connect_to(self, urls: Sequence[str]) -> SharedCluster:
        """Return the cluster at ``urls``. Raises ImproperlyConfigured for what cannot be one."""
        if not issubclass(self.redis_client_cls, RedisCluster):
            raise ImproperlyConfigured(
                "the REDIS_CLIENT_CLASS of a cluster is redis.cluster.RedisCluster, or derived "
                f"from it, not {self.options['REDIS_CLIENT_CLASS']}"
            )
        problem = location_problem(urls)
        if problem:
            raise ImproperlyConfigured(f"the cache cannot be used: {problem}")
        given = self.make_connection_params(urls[0])
        for name in ("url", "parser_class"):
            given.pop(name, None)
        if "USERNAME" in self.options:
            # django-redis 6 knows none.
            given["username"] = self.options["USERNAME"]
        settings = {**_TIMEOUTS, **given, **self.pool_cls_kwargs, **self.redis_client_cls_kwargs}

        def make() -> Any:
            others: Any = ClusterNode
            nodes = [others(*_node(url)) for url in urls[1:]]
            return self.redis_client_cls(url=urls[0], startup_nodes=nodes, **settings)

        # Options that differ in anything make another cluster.
        known_by = repr((self.redis_client_cls, tuple(urls), sorted(settings.items(), key=str)))
        with _adding.now():
            if known_by not in _clusters:
                _clusters[known_by] = SharedCluster(
                    make, ",".join("{}:{}".format(*_node(url)) for url in urls)
                )
            return _clusters[known_by]

    def disconnect(self, connection: SharedCluster) -> None:
        """Close the connections of all threads, which make new ones."""
        connection.disconnect()


def _node(url: str) -> tuple[str, int]:
    node = _parsed(url)
    return node.get("host", "localhost"), node.get("port", 6379)


@contextmanager
def _told_as_interrupted(client: Any) -> Iterator[None]:
    try:
        yield
    except (RedisError, RedisClusterException) as error:
        raise ConnectionInterrupted(connection=client) from error


class ClusterClient(DefaultClient):  # type: ignore[misc] # it is untyped
    """The ``CLIENT_CLASS`` of a cache in a Redis Cluster.

    ``LOCATION`` names one or more of its nodes, as a list or separated by commas; the others are
    found by themselves. OPTIONS are those of django-redis' default client, with
    ``CONNECTION_POOL_KWARGS`` and ``REDIS_CLIENT_KWARGS`` for ``redis.RedisCluster``.
    """

    def __init__(self, server: Any, params: dict[str, Any], backend: Any) -> None:
        options = {
            **(params.get("OPTIONS") or {}),
            "CONNECTION_FACTORY": f"{__name__}.{ClusterConnectionFactory.__name__}",
        }
        super().__init__(server, {**params, "OPTIONS": options}, backend)
        self._server: list[str] = urls_of(server)
        self._clients = [None]

    def get_next_client_index(self, write: bool = True, tried: list[int] | None = None) -> int:
        """Return which of the addresses to use: all of them are one cluster's."""
        return 0

    def connect(self, index: int = 0) -> Any:
        """Return the cluster, as django-redis does its client. Opens no connection yet."""
        factory: Any = self.connection_factory
        return factory.connect_to(self._server)

    def get_many(
        self, keys: Collection[str], version: int | None = None, client: Any = None
    ) -> dict[str, Any]:
        """Do as django-redis does, with one trip to each node."""
        names = {self.make_key(key, version=version): key for key in keys}
        values = self._of_each("get", names, client or self.get_client(write=False))
        return {
            names[name]: self.decode(value)
            for name, value in zip(names, values, strict=True)
            if value is not None
        }

    def delete_many(self, keys: Any, version: int | None = None, client: Any = None) -> int:
        """Do as django-redis does, with one trip to each node."""
        names = [self.make_key(key, version=version) for key in keys]
        return sum(self._of_each("delete", names, client or self.get_client(write=True)))

    def delete_pattern(
        self,
        pattern: str,
        version: int | None = None,
        prefix: str | None = None,
        client: Any = None,
        itersize: int | None = None,
    ) -> int:
        """Do as django-redis does, with the keys of all nodes."""
        client = client or self.get_client(write=True)
        matching = self.make_pattern(pattern, version=version, prefix=prefix)
        with _told_as_interrupted(client):
            names = dict.fromkeys(client.scan_iter(match=matching, count=itersize))
        return sum(self._of_each("delete", names, client))

    def keys(self, search: str, version: int | None = None, client: Any = None) -> list[Any]:
        """Do as django-redis does, with the keys of all nodes."""
        client = client or self.get_client(write=False)
        with _told_as_interrupted(client):
            return list(dict.fromkeys(self.iter_keys(search, client=client, version=version)))

    def _of_each(self, command: str, names: Collection[Any], client: Any) -> list[Any]:
        """Return the replies to ``command`` of each of ``names``."""
        if not names:
            return []
        with _told_as_interrupted(client):
            pipeline = client.pipeline()
            for name in names:
                getattr(pipeline, command)(name)
            return list(pipeline.execute())
