"""A django-redis client for an alias whose locks live in a Redis Cluster. See :doc:`redis`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django_redis.client import DefaultClient
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import parse_url

from .core.connections.cluster import SharedCluster
from .core.process import here

# Of all nodes. A node that hangs is not to keep its callers for ever, so there are defaults.
_OPTIONS = {"USERNAME": "", "PASSWORD": "", "SOCKET_TIMEOUT": 5.0, "SOCKET_CONNECT_TIMEOUT": 5.0}

_clusters: dict[str, SharedCluster] = {}


def urls_of(location: str | Sequence[str]) -> list[str]:
    """Return the addresses that a LOCATION names."""
    urls = location.split(",") if isinstance(location, str) else location
    return [url for url in (str(url).strip() for url in urls) if url]


def address_in(url: str) -> tuple[str, int, int]:
    """Return host, port and database in ``url``; the path of a socket, 0 and the database.

    Raises ValueError for what is no address of Redis.
    """
    given: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]  # redis-py has none
    if "path" in given:
        return given["path"], 0, given.get("db", 0)
    return given.get("host", "localhost"), given.get("port", 6379), given.get("db", 0)


def location_problem(location: str | Sequence[str]) -> str | None:
    """Return why a cluster cannot be at ``location``, or None. Connects to nothing."""
    for url in urls_of(location):
        try:
            _, port, number = address_in(url)
        except ValueError:
            # Without the error's own text, which can quote a password.
            return "its LOCATION cannot be understood: write for example redis://redis-1:6379/0"
        if not port:
            return "it is a cluster, which has no unix socket: write redis://host:port/0"
        if number:
            text = f"it is a cluster, which has the database 0 alone, not {number}"
            return f"{text}: write redis://host:port/0"
    return None


class ClusterClient(DefaultClient):  # type: ignore[misc] # it is untyped
    """The ``CLIENT_CLASS`` of an alias for locks in a Redis Cluster.

    ``LOCATION`` names one or more of its nodes, as a list or separated by commas; the others are
    found by themselves.
    """

    def connect(self, index: int = 0) -> SharedCluster:
        """Return the cluster; the same for all aliases of a process with the same settings.

        Opens no connection yet. Raises ImproperlyConfigured for what cannot be a cluster.
        """
        urls, options = urls_of(self._server), self._options
        problem = location_problem(urls)
        if "REDIS_CLIENT_CLASS" in options:
            problem = "it is a cluster, and its client is redis-py's own: omit REDIS_CLIENT_CLASS"
        if problem:
            raise ImproperlyConfigured(f"the cache cannot be used: {problem}")
        given = {name: options.get(name) or default for name, default in _OPTIONS.items()}
        settings = {
            **{name.lower(): value for name, value in given.items() if value},
            **options.get("CONNECTION_POOL_KWARGS", {}),
            **options.get("REDIS_CLIENT_KWARGS", {}),
        }
        nodes = [address_in(url)[:2] for url in urls]

        def make() -> RedisCluster:
            others: Any = ClusterNode
            startup_nodes = [others(*node) for node in nodes[1:]]
            return RedisCluster(url=urls[0], startup_nodes=startup_nodes, **settings)

        known_by = repr((urls, sorted(settings.items(), key=str)))
        with here().mutex:
            if known_by not in _clusters:
                name = ",".join(f"{host}:{port}" for host, port in nodes)
                _clusters[known_by] = SharedCluster(make, name)
            return _clusters[known_by]

    def disconnect(self, index: int = 0, client: Any = None) -> None:
        """Close the connections of all threads, which make new ones."""
        self.connect().disconnect()
