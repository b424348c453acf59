"""One client of a Redis Cluster for a process, and which node of it to ask for a key."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from functools import cache
from inspect import signature
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

from redis import exceptions as redis_exceptions
from redis.cluster import PRIMARY, ClusterNode, NodesManager, RedisCluster

from .. import clock
from ..process import after_fork, notice_fork
from .primitives import Background, Guard

_FAILURES = (redis_exceptions.RedisError, redis_exceptions.RedisClusterException)
# For how long who asks for a slot goes where the last one was sent to.
_ASKED_FOR = 1.0
# How long a new map of the slots is waited for.
_REFRESHED_WITHIN = 1.0
_TRY_AGAIN_AFTER = 0.02
_DOWN_FOR = 0.1
_CAN_BE_LAST = "last_failed_node_name" in signature(NodesManager.initialize).parameters
# A script reads and writes keys that it is not given, all of the same slot; they may be away.
_NOT_HERE = "non local key"


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
        """Return the client of redis-py. Raises ConnectionError."""
        notice_fork()
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
        notice_fork()
        return self._made is not None

    def disconnect(self) -> None:
        """Close what connections its pools have; the next command makes new ones."""
        if self.is_connected and self._made is not None:
            self._made.disconnect_connection_pools()  # type: ignore[no-untyped-call]  # redis-py has none

    def __getattr__(self, name: str) -> Any:
        # One server's clients have a pool, and whoever looks for one is not to connect to it.
        if name == "connection_pool" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.cluster(), name)


_all: WeakSet[SharedCluster] = WeakSet()
# The clients of the parent process. To forget them would close what it uses, and wait
# for locks that a thread of the parent may have held.
_parents: list[RedisCluster | None] = []


def _after_fork_in_child() -> None:
    for shared in list(_all):
        _parents.append(shared._made)
        shared._begin()


after_fork(_after_fork_in_child)


CLUSTERS = (SharedCluster, RedisCluster)


def is_cluster(client: Any) -> bool:
    """Whether ``client`` is one of a Redis Cluster, and not of asyncio. Connects to nothing."""
    return _is_kind_of_cluster(client.__class__)


@cache
def _is_kind_of_cluster(kind: type) -> bool:
    # redis-py's clients are protocols, of which to ask that takes long.
    return issubclass(kind, CLUSTERS)


def is_moving(error: BaseException | None) -> bool:
    """Whether ``error`` says that the slot has moved, or is on its way: nothing was done.

    A script may have begun where its own keys were there and another is not; all of them may be
    sent again.
    """
    return isinstance(
        error, (redis_exceptions.AskError, redis_exceptions.TryAgainError)
    ) or _NOT_HERE in str(error)


class _Pool:
    """The settings of a pool, and connections of its own."""

    def __init__(self, pool: Any) -> None:
        self.connection_class = pool.connection_class
        self.connection_kwargs = pool.connection_kwargs


class Asking:
    """Stands for ``client``, one of a single node, for who was sent there by another."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.connection_pool = _Pool(client.connection_pool)

    def get_connection_kwargs(self) -> Any:
        """Return what redis-py's client of the node returns."""
        return self.client.get_connection_kwargs()


class Routes:
    """Where the keys of the cluster of ``client`` are. Its methods may be called by any thread."""

    def __init__(self, client: Any) -> None:
        self._client = ref(client)
        self._asked: dict[int, tuple[Asking, float]] = {}
        self._asking: WeakKeyDictionary[Any, Asking] = WeakKeyDictionary()
        self._refresh = Background(self._make_anew, "setnx-lock-slots")
        # The name of the node that hangs, which is to be asked for the map last.
        self._hangs: str | None = None

    def cluster(self) -> Any:
        """Return the client of redis-py. Raises what redis-py raises."""
        client = self._client()
        if client is None:
            raise redis_exceptions.ConnectionError("the client of the cluster is gone")
        return client.cluster() if isinstance(client, SharedCluster) else client

    def route(self, name: str) -> Any:
        """Return what to ask for the key ``name``: the client of its node, or an :class:`Asking`.

        Raises what redis-py raises.
        """
        cluster = self.cluster()
        if self._asked:
            slot = cluster.keyslot(name)
            asking, ends = self._asked.get(slot, (None, 0.0))
            if clock.now() < ends:
                return asking
            self._asked.pop(slot, None)
        return self.home(name)

    def home(self, name: str) -> Any:
        """Return the client of the node that has the slot of ``name``. Raises as :meth:`route`."""
        cluster = self.cluster()
        node = cluster.nodes_manager.get_node_from_slot(cluster.keyslot(name))
        return cluster.get_redis_connection(node)

    def home_or_any(self, name: str) -> Any:
        """Return what :meth:`route` does, or any node if none is known to have the slot."""
        try:
            return self.route(name)
        except _FAILURES as error:
            self.learn(error, waits=False)
        nodes = self.primaries()
        if not nodes:
            raise redis_exceptions.RedisClusterException("no node of the cluster is known")
        return nodes[0]

    def primaries(self) -> list[Any]:
        """Return a client of each node that has slots. Raises as :meth:`route`."""
        cluster = self.cluster()
        nodes = sorted(cluster.get_primaries(), key=lambda node: str(node.name))
        return [cluster.get_redis_connection(node) for node in nodes]

    def learn(self, error: BaseException | None, *, waits: bool = True) -> float | None:
        """Take note of an ``error`` that a node has answered with, or that it did not answer.

        Gives after how many seconds to try again, None when that is of no use. ``waits``: whether
        it may wait for a new map of the slots (True).
        """
        if isinstance(error, redis_exceptions.MovedError):
            self._move(error, _REFRESHED_WITHIN if waits else 0.0)
            return 0.0
        if isinstance(error, redis_exceptions.AskError):
            with suppress(*_FAILURES):
                self._asked[error.slot_id] = (self._asking_at(error), clock.now() + _ASKED_FOR)
            return 0.0
        if is_moving(error):
            return _TRY_AGAIN_AFTER
        down = (redis_exceptions.ClusterDownError, redis_exceptions.SlotNotCoveredError)
        if isinstance(error, down):
            self.refresh(_REFRESHED_WITHIN if waits else 0.0)
            return _DOWN_FOR
        if is_broken(error):
            self.refresh(_REFRESHED_WITHIN if waits else 0.0)
            return 0.0
        if isinstance(error, redis_exceptions.TimeoutError):
            self.refresh(0.0)
        return None

    def suspect(self, name: str) -> None:
        """Take note that the node that has the slot of ``name`` has given no answer."""
        with suppress(*_FAILURES):
            cluster = self.cluster()
            self._hangs = cluster.nodes_manager.get_node_from_slot(cluster.keyslot(name)).name

    @property
    def is_connected(self) -> bool:
        """Whether it is known where the slots are, so that to ask for one takes no time."""
        client = self._client()
        return not isinstance(client, SharedCluster) or client.is_connected

    def refresh(self, seconds: float) -> None:
        """Refresh the map of the slots, waiting at most ``seconds`` for it."""
        made = self._refresh.begin()
        if seconds:
            wait([made], seconds)

    def _make_anew(self) -> None:
        self._asked.clear()
        manager = self.cluster().nodes_manager
        hangs, self._hangs = self._hangs, None
        # Before redis-py 8 it cannot be said.
        last = {"last_failed_node_name": hangs} if _CAN_BE_LAST else {}
        # The next caller is told what is wrong.
        manager.initialize(**last)

    def _move(self, error: Any, seconds: float) -> None:
        self._asked.pop(error.slot_id, None)
        try:
            manager = self.cluster().nodes_manager
            error.host, error.port = manager.remap_host_port(error.host, error.port)
            if not error.host or not manager.slots_cache.get(error.slot_id):
                self.refresh(seconds)
            elif hasattr(manager, "move_slot"):
                manager.move_slot(error)
            else:
                # Before redis-py 7. It has room for one of them.
                manager.update_moved_exception(error)
                manager.get_node_from_slot(error.slot_id)
        except (*_FAILURES, KeyError):
            self.refresh(0.0)

    def _asking_at(self, error: Any) -> Asking:
        cluster = self.cluster()
        manager = cluster.nodes_manager
        host, port = manager.remap_host_port(error.host, error.port)
        node = cluster.get_node(host=host, port=port)
        if node is None:
            node = ClusterNode(host, port, PRIMARY)  # type: ignore[no-untyped-call]  # redis-py has none
            node = manager.nodes_cache.setdefault(node.name, node)
        client = cluster.get_redis_connection(node)
        asking = self._asking.get(client.connection_pool)
        if asking is None:
            asking = self._asking[client.connection_pool] = Asking(client)
        return asking


def is_broken(error: BaseException | None) -> bool:
    """Whether ``error`` says that a node could not be reached, or went away."""
    refused = (
        redis_exceptions.AuthenticationError,
        redis_exceptions.AuthorizationError,
        getattr(redis_exceptions, "MaxConnectionsError", redis_exceptions.AuthenticationError),
    )
    lost = (redis_exceptions.ConnectionError, redis_exceptions.RedisClusterException)
    return isinstance(error, lost) and not isinstance(error, refused)


_known: WeakKeyDictionary[Any, Routes] = WeakKeyDictionary()


def routes_of(client: Any) -> Routes:
    """Return the routes of the cluster of ``client``; the same for the same client."""
    routes = _known.get(client)
    if routes is None:
        routes = _known.setdefault(client, Routes(client))
    return routes
