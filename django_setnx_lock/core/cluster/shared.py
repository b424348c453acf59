"""One client of a Redis Cluster for all threads of a process."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from redis import exceptions as redis_exceptions
from redis.cluster import RedisCluster

from ..primitives import Guard


class SharedCluster:
    """A ``RedisCluster`` that is connected when it is first needed, and anew after a fork.

    ``make`` makes it. ``name`` tells which cluster it is, without credentials. Has the methods of
    what it makes; each raises redis-py's ConnectionError when no node can be reached.
    """

    def __init__(self, make: Callable[[], RedisCluster], name: str) -> None:
        self.name = name
        self._make = make
        self._making = Guard()
        self._begin()
        _all.add(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def _begin(self) -> None:
        self._made: RedisCluster | None = None

    def cluster(self) -> RedisCluster:
        """The client of redis-py. Raises ConnectionError."""
        made = self._made
        if made is not None:
            return made
        with self._making.now():
            if self._made is None:
                try:
                    self._made = self._make()
                except redis_exceptions.RedisClusterException as error:
                    raise redis_exceptions.ConnectionError(str(error)) from error
            return self._made

    @property
    def is_connected(self) -> bool:
        """Whether it was connected in this process."""
        return self._made is not None

    def disconnect(self) -> None:
        """Close what connections its pools have; the next command makes new ones."""
        if self._made is not None:
            self._made.disconnect_connection_pools()  # type: ignore[no-untyped-call]  # redis-py has none

    def __getattr__(self, name: str) -> Any:
        # One server's clients have a pool, and whoever looks for one is not to connect to it.
        if name == "connection_pool" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.cluster(), name)


_all: WeakSet[SharedCluster] = WeakSet()
# What a process was forked with. To let go of it would close what its parent is using, and wait
# for locks that a thread of the parent may have held.
_parents: list[RedisCluster | None] = []


def _after_fork_in_child() -> None:
    for shared in list(_all):
        _parents.append(shared._made)
        shared._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def is_cluster(client: Any) -> bool:
    """Whether ``client`` is one of a Redis Cluster, and not of asyncio. Connects to nothing."""
    return isinstance(client, (SharedCluster, RedisCluster))
