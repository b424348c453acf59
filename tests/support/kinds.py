"""The kinds of locks: how one is made, what cannot be held beside it, and how it is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.sentinel import Sentinel

from django_setnx_lock.core import MultiLock, RedisLock, Redlock

if TYPE_CHECKING:
    from tests.servers import RealServer

NAME = "lock:a"
# What stands at the name of a lock that somebody else took: a token, and a time of the year 2128.
THIEF = {"timestamp": str(5_000_000_000_000)}
# Seconds that a master has to answer in: many, as a busy machine may be slow.
MASTER_TIMEOUT = 2.0
# A lease has to be three times as long at least.
OF_A_LEASE = 3.2
# A renewed lease that a machine which does other things does not let run out.
STEADY = 1.5


@dataclass(frozen=True)
class Kind:
    """One kind of lock.

    ``names``: its keys in Redis. ``options``: those that make it what it is. ``rival``: the
    options of a lock at :attr:`contested` that cannot be held beside it. ``has_queue``: whether
    Redis knows its waiters, and serves them in order. ``is_shared``: whether it can be held with
    others of its kind. ``served_by``: the fixture that gives a server of its own, of which
    ``client`` makes a client.
    """

    name: str
    names: tuple[str, ...] = (NAME,)
    options: dict[str, Any] = field(default_factory=dict)
    rival: dict[str, Any] = field(default_factory=dict)
    has_queue: bool = True
    is_shared: bool = False
    masters: int = 1
    served_by: str = ""
    client: Callable[[Any], Any] = methodcaller("client")

    @property
    def brief(self) -> float:
        """A lease that is soon over: take what has it with time to wait, as a grant may be late."""
        return 0.8 if self.masters > 1 else 0.05

    @property
    def marks(self) -> list[pytest.MarkDecorator]:
        # One process starts the masters.
        if self.masters > 1 or self.served_by:
            return [pytest.mark.xdist_group(f"contract {self.served_by or 'masters'}")]
        return []

    @property
    def polls(self) -> bool:
        """Whether those who wait ask again and again, as nobody wakes them."""
        return self.masters > 1 or "protocol" in self.options

    @property
    def contested(self) -> str:
        """The name that a rival locks."""
        return self.names[len(self.names) // 2]

    @property
    def thief(self) -> str:
        """What another program writes at the name."""
        return THIEF.get(self.name, "a thief")

    def make(self, clients: list[Any], name: str = "", **options: Any) -> Any:
        """Make a lock of this kind; ``name``: another one than its own."""
        options = {"timeout": 10, **self.options, **options}
        if self.masters > 1:
            leases = filter(None, (options["timeout"], options.get("max_hold")))
            within = min((MASTER_TIMEOUT, *(lease / OF_A_LEASE for lease in leases)))
            return Redlock(clients, name or NAME, **{"master_timeout": within, **options})
        if len(self.names) > 1:
            # In an order that is not the one of their names.
            names = [name] if name else self.names[::-1]
            return MultiLock(clients[0], names, **options)
        return RedisLock(clients[0], name or NAME, **options)

    def make_rival(self, clients: list[Any], **options: Any) -> Any:
        """Make a lock that cannot be held beside one of this kind."""
        if self.masters > 1:
            return self.make(clients, **options)
        return RedisLock(clients[0], self.contested, **{"timeout": 10, **self.rival, **options})


EXCLUSIVE = Kind("exclusive")
READERS = Kind("readers", options={"shared": True}, is_shared=True)
PERMITS = Kind("permits", options={"limit": 1}, rival={"limit": 1}, is_shared=True)
TIMESTAMP = Kind(
    "timestamp",
    options={"protocol": "timestamp-ms"},
    rival={"protocol": "timestamp-ms"},
    has_queue=False,
)
HOSTED = Kind(
    "hosted",
    options={"protocol": "hosted"},
    rival={"protocol": "hosted"},
)
SEVERAL = Kind("several", names=("lock:a", "lock:b", "lock:c"))
REDLOCK = Kind("redlock", has_queue=False, masters=3)


def through_sentinel(server: RealServer) -> Any:
    """Return a client of the primary that a Sentinel names."""
    sentinel: Any = Sentinel([("127.0.0.1", server.sentinel)])  # type: ignore[no-untyped-call]  # redis-py's own
    for one in sentinel.sentinels:
        server.closes(one)
    return server.closes(sentinel.master_for("shop"))


def of_cluster(server: RealServer) -> Any:
    """Return a client of the cluster whose one node this is."""
    return server.closes(redis.RedisCluster(host="127.0.0.1", port=server.port))


SENTINEL = Kind("sentinel", served_by="watched_server", client=through_sentinel)
CLUSTER = Kind("cluster", served_by="clustered_server", client=of_cluster)

ALL = (EXCLUSIVE, READERS, PERMITS, TIMESTAMP, HOSTED, SEVERAL, REDLOCK, SENTINEL, CLUSTER)
KINDS = {kind.name: kind for kind in ALL}
ONE_SERVER = tuple(kind for kind in ALL if kind.masters == 1)
QUEUED = tuple(kind for kind in ALL if kind.has_queue)
ONE_NAME = tuple(kind for kind in ALL if len(kind.names) == 1)
# At the name of these stands what shows that it is theirs, and nothing else says so.
BY_VALUE = tuple(kind for kind in ALL if not kind.is_shared)
SINGLE = tuple(kind for kind in ONE_NAME if kind.masters == 1)
# A cluster has no list of all locks.
LISTED = tuple(kind for kind in SINGLE if kind is not CLUSTER)
