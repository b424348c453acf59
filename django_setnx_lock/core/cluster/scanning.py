"""Looking through all keys of a Redis Cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from redis import exceptions as redis_exceptions

from .routes import routes_of


def scan(client: Any, pattern: str) -> Iterator[Any]:
    """The names of all strings that match ``pattern``, some twice. Raises what redis-py raises."""
    routes = routes_of(client)
    nodes = routes.primaries()
    importing = _importing(nodes)
    for node in nodes:
        yield from _scan(node, pattern)
    # What came to a node after it was looked at has gone from the other before that was.
    importing += [node for node in _importing(nodes) if node not in importing]
    for node in importing:
        yield from _scan(node, pattern)


def _scan(node: Any, pattern: str) -> Iterable[Any]:
    found: Iterable[Any] = node.scan_iter(match=pattern, count=1000, _type="string")
    return found


def _importing(nodes: Iterable[Any]) -> list[Any]:
    """Those of ``nodes`` that slots are on their way to, as far as one may ask."""
    found = []
    for node in nodes:
        with suppress(redis_exceptions.ResponseError):
            known = node.execute_command("CLUSTER NODES")
            if any(
                slot["state"] == "importing" for one in known.values() for slot in one["migrations"]
            ):
                found.append(node)
    return found
