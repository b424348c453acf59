"""One client of a Redis Cluster for a process, whichever threads and aliases share it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from redis import exceptions as redis_exceptions
from redis.cluster import RedisCluster

from ..process import Here, here

# A script reads and writes keys that it was not given, all of the same slot; they may be away.
_NOT_HERE = "non local key"


class SharedCluster:
    """A ``RedisCluster`` that is connected when it is first needed, and anew after a fork.

    ``make`` makes it. ``name`` tells which cluster it is, without credentials. Has the methods of
    what it makes; each raises redis-py's ConnectionError when no node can be reached.
    """

    def __init__(self, make: Callable[[], RedisCluster], name: str) -> None:
        self.name = name
        self._make = make
        # Those of parent processes, too: to forget them would close what the parents use.
        self._made: dict[Here, RedisCluster] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def cluster(self) -> RedisCluster:
        """Return the client of redis-py. Raises ConnectionError."""
        process = here()
        with process.mutex:
            if process not in self._made:
                try:
                    self._made[process] = self._make()
                except redis_exceptions.RedisClusterException as error:
                    raise redis_exceptions.ConnectionError(str(error)) from error
            return self._made[process]

    @property
    def is_connected(self) -> bool:
        """Whether it was connected in this process."""
        return here() in self._made

    def disconnect(self) -> None:
        """Close what connections its pools have; the next command makes new ones."""
        if self.is_connected:
            self.cluster().disconnect_connection_pools()  # type: ignore[no-untyped-call]  # redis-py has none

    def __getattr__(self, name: str) -> Any:
        # One server's clients have a pool, and whoever looks for one is not to connect to it.
        if name == "connection_pool" or name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.cluster(), name)


def is_cluster(client: Any) -> bool:
    """Return whether ``client`` is one of a Redis Cluster, not of asyncio. Connects to nothing."""
    return _is_kind_of_cluster(client.__class__)


@cache
def _is_kind_of_cluster(kind: type) -> bool:
    # redis-py's clients are protocols, of which to ask that takes long.
    return issubclass(kind, (SharedCluster, RedisCluster))


def is_moving(error: BaseException | None) -> bool:
    """Return whether ``error`` says that the slot has moved, or is on its way: nothing was done.

    A script may have begun where its own keys were there and another is not; all of them may be
    sent again.
    """
    is_elsewhere = isinstance(error, (redis_exceptions.AskError, redis_exceptions.TryAgainError))
    return is_elsewhere or _NOT_HERE in str(error)
