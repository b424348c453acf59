"""Which server and database a client speaks to."""

from __future__ import annotations

from typing import Any
from weakref import ref

from .cluster.shared import SharedCluster, is_cluster

# By the id of the pool, and only as long as that is the same.
_known: dict[int, tuple[ref[Any], str]] = {}


def place_of(client: Any) -> str:
    """Server and database of ``client``, without credentials; equal for clients that agree on them.

    Two names of one server are two places. A cluster is known by the nodes that were first seen.
    Other clients without a pool are their own.
    """
    pool = getattr(client, "connection_pool", None)
    if pool is None and is_cluster(client):
        pool = client
    if pool is None:
        return f"client {id(client)}"
    known = _known.get(id(pool))
    if known is not None and known[0]() is pool:
        return known[1]
    place = _described(pool)
    number = id(pool)
    _known[number] = (ref(pool, lambda gone: _forget(number, gone)), place)
    return place


def is_shown(place: str) -> bool:
    """Whether ``place`` means the same to another process."""
    return not place.startswith(("client ", "server ", "masters "))


def _forget(number: int, gone: ref[Any]) -> None:
    known = _known.get(number)
    if known is not None and known[0] is gone:
        del _known[number]


def _described(pool: Any) -> str:
    if is_cluster(pool):
        nodes = (
            pool.name.split(",")
            if isinstance(pool, SharedCluster)
            else pool.nodes_manager.nodes_cache
        )
        return f"cluster {','.join(sorted(nodes))}"
    places = getattr(pool, "places", None)
    if places is not None:
        return f"masters {', '.join(places)}"
    options = pool.connection_kwargs
    db = options.get("db") or 0
    if options.get("server") is not None:
        # fakeredis: a server in this process.
        return f"server {id(options['server'])}/{db}"
    service = getattr(pool, "service_name", None)
    if service is not None:
        sentinels = getattr(getattr(pool, "sentinel_manager", None), "sentinels", [])
        watchers = ",".join(sorted(_described(one.connection_pool) for one in sentinels))
        return f"sentinel {service} of {watchers}/{db}"
    if options.get("path"):
        return f"unix {options['path']}/{db}"
    return f"tcp {options.get('host', 'localhost')}:{options.get('port', 6379)}/{db}"
