"""Which lock, and whom to ask for it: one server, or the nodes of a cluster."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import ref

from ..errors import LockUnavailable
from ..protocol import commands
from ..protocol.commands import SETNX, CommandSet, PlainRequest, Request
from ..protocol.keys import LockKeys
from . import batcher, execute
from .backends import Backend
from .cluster import told_by
from .cluster_routes import SharedCluster, is_cluster, is_moving, routes_of

# A waiter asks again after so many seconds: the node that it listens at may be gone unnoticed.
LONGEST_SLEEP = 5.0
# For how long a slot that moves is waited for: by a caller that asks again anyway, and by others.
_MEANWHILE, _AT_ONCE = 0.1, 1.0
# By the id of the pool, and only as long as that is the same.
_known: dict[int, tuple[ref[Any], str]] = {}


# Not frozen: one is made for each lock, and that would take thrice as long.
@dataclass(slots=True)
class Target:
    """Which lock: the client to ask, the keys in Redis, and what the caller calls it.

    ``command_set``: what to send for it. ``heartbeat_prefix``: what the keys begin with by which
    the processes that hold such locks say that they live (None: they do not).
    """

    client: Any
    keys: LockKeys
    key: str
    index: str | None
    command_set: CommandSet = SETNX
    heartbeat_prefix: str | None = None
    # Whether what redis-py's lock is asked is awaited.
    is_awaited: ClassVar[bool] = False

    async def call(self, io: Backend, request: Request | PlainRequest, **options: Any) -> Any:
        """Return the reply to ``request``; ``options`` are those of :func:`.execute.call`."""
        call = batcher.call if io.is_asyncio else execute.call
        return await call(io, self.client, request, self.key, **options)

    async def acquire(self, io: Backend, request: Request, *, waits: bool, **options: Any) -> Any:
        """Return the reply to ``request`` for the lock, of a caller that ``waits`` for it or not.

        ``options``: as of :meth:`call`.
        """
        call = batcher.call if io.is_asyncio else execute.call
        return await call(io, self.client, request, self.key, **options)

    def home(self) -> Any:
        """Return the client of the one server where its mailboxes are."""
        return self.client

    def route(self) -> Any:
        """Return the client that the watchdog is to ask."""
        return self.client

    def longest_sleep(self, seconds: float) -> float:
        """Return how many of ``seconds`` a waiter may sleep before it asks again."""
        return seconds

    def learn(self, error: Exception) -> None:
        """Take note of what the server answered, or that it did not."""

    def moved(self, error: LockUnavailable) -> float | None:
        """Return the seconds to ask again after if ``error`` only says that it is elsewhere now."""
        return None

    def alone(self, token: str, lease_ms: int, error: Exception | None) -> Request | None:
        """Return what else to renew it with after ``error`` of a renewal, or None."""
        return None

    def must_be_awaited(self) -> TypeError:
        """Return the error for a call that is not awaited, of a lock whose client has to be."""
        return TypeError(
            f"the lock {self.key!r} was made with a client of redis.asyncio: use async with and "
            "the methods with the prefix a, or make it with a synchronous client, redis.Redis"
        )

    async def locked(self, io: Backend) -> bool:
        """Return whether anybody holds it. Raises LockUnavailable."""
        return bool(await self.call(io, self.command_set.locked(self.keys)))


@dataclass(slots=True)
class AsyncOnly(Target):
    """A target with a client of ``redis.asyncio``, which only asyncio can ask."""

    is_awaited: ClassVar[bool] = True

    async def call(self, io: Backend, request: Request | PlainRequest, **options: Any) -> Any:
        if not io.is_asyncio:
            raise self.must_be_awaited()
        # Without super(): a class with slots is made anew by its decorator.
        return await Target.call(self, io, request, **options)


@dataclass(slots=True)
class ClusterTarget(Target):
    """A target on a cluster: its keys are on one node, which may change. It is in no index."""

    def __post_init__(self) -> None:
        # Its key would be in another slot.
        self.index = None

    async def acquire(self, io: Backend, request: Request, *, waits: bool, **options: Any) -> Any:
        patience = _MEANWHILE if waits else _AT_ONCE
        try:
            return await self.call(io, request, patience=patience, **options)
        except LockUnavailable as error:
            if not waits or not is_moving(told_by(error)):
                raise
            return ("BUSY", "100", "foreign")

    def home(self) -> Any:
        """Return the client of the node to listen at. Raises what redis-py raises."""
        return routes_of(self.client).home(self.keys.name)

    def route(self) -> Any:
        """Return the client that renewals are sent to."""
        return routes_of(self.client).home_or_any(self.keys.name)

    def longest_sleep(self, seconds: float) -> float:
        return min(seconds, LONGEST_SLEEP)

    def learn(self, error: Exception) -> None:
        routes_of(self.client).learn(told_by(error), waits=False)

    def moved(self, error: LockUnavailable) -> float | None:
        self.learn(error)
        if not is_moving(told_by(error)):
            return None
        return _MEANWHILE / 5 * random.uniform(0.5, 1.5)  # noqa: S311 - spreads load

    def alone(self, token: str, lease_ms: int, error: Exception | None) -> Request | None:
        # A script with one key is served while the slot moves.
        moves = isinstance(error, LockUnavailable) and error.cause == "moving"
        if not moves or self.command_set is not commands.SETNX:
            return None
        return commands.renew_alone(self.keys, token, lease_ms)


def kind_of(client: Any) -> type[Target]:
    """Return the kind of target that a lock of ``client`` is."""
    return ClusterTarget if is_cluster(client) else Target


def server_id(client: Any) -> str:
    """Return server and database of ``client``, without credentials.

    Two names of one server are two places. A cluster is known by the nodes that were first seen.
    Other clients without a pool are their own.
    """
    pool = getattr(client, "connection_pool", None)
    if pool is None and is_cluster(client):
        pool = client
    if pool is None:
        places = getattr(client, "places", None)
        return f"client {id(client)}" if places is None else f"masters {', '.join(places)}"
    known = _known.get(id(pool))
    if known is not None and known[0]() is pool:
        return known[1]
    place = _described(pool)
    number = id(pool)
    _known[number] = (ref(pool, lambda gone: _forget(number, gone)), place)
    return place


def is_portable(place: str) -> bool:
    """Return whether ``place`` means the same to another process."""
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
