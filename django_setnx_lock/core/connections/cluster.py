"""A Redis Cluster, whose nodes have a part of the locks each, and pass slots on to one another.

All keys of a lock are in one slot, and some of them mostly do not exist. So a node refuses
(TRYAGAIN) what needs several of them from the moment that it begins to give the slot away until it
has: that is waited for.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from inspect import signature
from random import SystemRandom
from typing import Any
from weakref import WeakValueDictionary, ref

from redis import exceptions as redis_exceptions
from redis.cluster import PRIMARY, ClusterNode, NodesManager, RedisCluster
from redis.crc import key_slot

from .. import clock
from ..errors import LockUnavailable
from ..process import Here, here
from ..protocol.replies import Reply
from ..protocol.requests import RENEW, Command, InFull, Request, Script, Undo
from .backend import BROKEN
from .connection import CONNECT_WITHIN
from .failures import NOT_HERE, is_moving, unavailable
from .session import Session, session_of

# Who waits is answered that somebody has the lock after a slot has moved for so many seconds; who
# does not wait gets an error after so many.
_MEANWHILE, _AT_ONCE = 0.1, 1.0
# How often an answer may send us elsewhere before there is a pause; that pause, and the one where
# the cluster is down.
_HOPS, _PAUSE, _DOWN_PAUSE = 4, 0.02, 0.1
# How long a new map of the slots is waited for.
_LOOKS_FOR, _POLL = 1.0, 0.003
_BUSY_MS = b"100"

_FAILURES = (redis_exceptions.RedisError, redis_exceptions.RedisClusterException)
_DOWN = (redis_exceptions.ClusterDownError, redis_exceptions.SlotNotCoveredError)
_REFUSED = (redis_exceptions.AuthenticationError, redis_exceptions.AuthorizationError)
# Before redis-py 8 it cannot be said.
_CAN_BE_LAST = "last_failed_node_name" in signature(NodesManager.initialize).parameters

_RENEW_ALONE = Script("renew_alone")
_ASKING = Command.of("ASKING")


class SharedCluster:
    """A ``RedisCluster`` that is connected when it is first needed, and anew after a fork.

    ``make`` makes it. ``name``: what messages call it. Has the methods of
    what it makes; each raises redis-py's ConnectionError when no node can be reached.
    """

    def __init__(self, make: Callable[[], RedisCluster], name: str) -> None:
        self.name = name
        self._make = make
        # Those of parent processes, too: to forget them would close what the parents use.
        self._made: dict[Here, RedisCluster] = {}

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


class ClusterSession(Session):
    """A cluster. Each of its nodes is a session of its own, with its connections and renewals.

    Which node has a slot says redis-py's map, which what nodes answer sets right.
    """

    # The node that a waiter listens at may be gone unnoticed.
    longest_sleep = 5.0
    has_index = asks_together = False

    def __init__(self, client: Any) -> None:
        self._client = ref(client)
        is_shared = isinstance(client, SharedCluster)
        limit = None if is_shared else client.get_connection_kwargs().get("socket_timeout")
        names = client.name if is_shared else ",".join(sorted(client.nodes_manager.nodes_cache))
        self._begin((0, f"the cluster of {names}", 0), limit or CONNECT_WITHIN)
        # What asks for a new map, and why the last one could not.
        self._looking: threading.Thread | None = None
        self._trouble: Exception | None = None
        # By slot.
        self._beside: WeakValueDictionary[int, Slot] = WeakValueDictionary()

    @classmethod
    def suits(cls, pool: Any) -> bool:
        return isinstance(pool, (SharedCluster, RedisCluster))

    # Where keys are

    def _cluster(self) -> Any:
        """Return redis-py's client; None while it is not connected, or where it is gone."""
        client = self._client()
        if isinstance(client, SharedCluster):
            return client.cluster() if client.is_connected else None
        return client

    def at(self, key: str) -> Session:
        """Return the session with the node that has ``key``; this one where none is known."""
        try:
            cluster = self._cluster()
            node = cluster.nodes_manager.get_node_from_slot(_slot(key))
            return session_of(cluster.get_redis_connection(node))
        except (*_FAILURES, AttributeError, KeyError):
            return self

    def nodes(self) -> list[Session]:
        """Return the session with each node that has slots, in the order of their addresses."""
        cluster = self._cluster()
        # Before redis-py 7, its list of primaries lacks nodes to which two callers were sent on.
        slots = [] if cluster is None else list(cluster.nodes_manager.slots_cache.values())
        primaries = {nodes[0].name: nodes[0] for nodes in slots if nodes}
        found = [session_of(cluster.get_redis_connection(node)) for node in primaries.values()]
        return sorted(found, key=lambda node: str(node.place))

    def beside(self, key: str) -> Slot:
        slot = _slot(key)
        return self._beside.get(slot) or self._beside.setdefault(slot, Slot(self, key))

    def may_pass(self, error: Exception) -> bool:
        return super().may_pass(error) or is_moving(error) or isinstance(error, _DOWN)

    def connection(self, until: float | None = None) -> Any:
        """Raise ConnectionError: no node is known."""
        raise self._unknown()

    aio_connection = connection  # type: ignore[assignment]  # there is none to be made

    def _unknown(self) -> Exception:
        if self._cluster() is None:
            return redis_exceptions.ConnectionError(str(self._trouble or "it is not connected"))
        return redis_exceptions.ClusterDownError("no node is known that has the slot")

    def _node_of(self, error: Any, *, is_moved: bool) -> Session | None:
        """Return the session with the node that ``error`` names; have its slot there if it moved.

        None if the map has to be made anew.
        """
        cluster = self._cluster()
        manager = cluster.nodes_manager
        try:
            error.host, error.port = manager.remap_host_port(error.host, error.port)
            known = manager.slots_cache.get(error.slot_id)
            if not error.host or not known:
                return None
            node = cluster.get_node(host=error.host, port=error.port)
            if node is None:
                node = ClusterNode(error.host, error.port, PRIMARY)  # type: ignore[no-untyped-call]  # redis-py has none
                node = manager.nodes_cache.setdefault(node.name, node)
            is_new = is_moved and known[0] != node
            if is_new and hasattr(manager, "move_slot"):
                manager.move_slot(error)
            elif is_new:
                # Before redis-py 7. It has room for one of them, and would take the next that names
                # this node for a failover: as if the node were no primary any more.
                manager.update_moved_exception(error)
                manager.get_node_from_slot(error.slot_id)
            return session_of(cluster.get_redis_connection(node))
        except (*_FAILURES, AttributeError, KeyError):
            return None

    # Asking

    async def call(
        self, io: Any, request: Request, key: str, undo: Undo = None, limits: int = 2
    ) -> Reply:
        began = clock.now()
        until = began + limits * self.limit
        # Who waits for a lock names a mailbox, and who does not can be undone, too.
        waits = len(request.args) > 4
        patience = _MEANWHILE if waits else _AT_ONCE if undo is not None else math.inf
        (found,) = await self._exchange(io, [request], until, began + patience, undo)
        if isinstance(found, Reply):
            return found
        if waits and is_moving(found):
            return Reply([b"BUSY", _BUSY_MS, None, None], began, found.in_doubt)
        error = unavailable(found, key)
        # Where nothing was done there is nothing to cancel.
        is_unasked = is_moving(found) and not found.in_doubt
        error.time_left = _MEANWHILE if is_unasked else max(until - clock.now(), 0)
        raise error from found

    async def call_many(
        self, io: Any, requests: Sequence[tuple[Request, str]], within: float
    ) -> list[Reply | LockUnavailable]:
        until = clock.now() + within
        answers = await self._exchange(io, [request for request, _ in requests], until, math.inf)
        return [
            answer if isinstance(answer, Reply) else unavailable(answer, key)
            for answer, (_, key) in zip(answers, requests, strict=True)
        ]

    async def _exchange(
        self,
        io: Any,
        requests: Sequence[Request],
        until: float,
        patient_until: float,
        undo: Undo = None,
    ) -> list[Any]:
        """Return the reply to each of ``requests``, or an error of redis-py. See :meth:`call`.

        ``patient_until``: how long a slot that moves, or a cluster that is down, is waited for.
        """
        errands = [_Errand(request) for request in requests]
        left, tries = errands, 0
        try:
            while left:
                await self._send(io, left, until, undo)
                pauses = {one: self._learn(one, patient_until) for one in left if one.error}
                left = [one for one, pause in pauses.items() if pause is not None]
                tries += 1
                pause = max([pauses[one] or 0.0 for one in left], default=0.0)
                if tries > _HOPS:
                    pause = max(pause, _PAUSE)
                await self._look_anew(io, list(pauses), until)
                if clock.now() + pause >= until:
                    break
                if left and pause:
                    await io.sleep(pause * SystemRandom().uniform(0.5, 1.5))
        except BaseException as error:
            if tries or any(one.has_copy for one in errands):
                # What cancels it may go to another node.
                error.in_doubt = True  # type: ignore[attr-defined]  # for who asked
            raise
        return [one.answer for one in errands]

    async def _send(self, io: Any, errands: Sequence[_Errand], until: float, undo: Undo) -> None:
        """Have each of ``errands`` answered by its node."""
        by_node: dict[tuple[Session, bool], list[_Errand]] = {}
        for one in errands:
            one.node = one.sent_to or self.at(one.name)
            by_node.setdefault((one.node, one.sent_to is not None), []).append(one)
        for number, ((node, is_asked), some) in enumerate(by_node.items()):
            now = clock.now()
            # A node that hangs is not to take the time of the others.
            by = now + max(until - now, 0) / (len(by_node) - number)
            by = min(by, now + self.limit)
            requests = [one.request for one in some]
            if is_asked:
                requests = [each for one in requests for each in (_ASKING, InFull(*one))]
            if node is self:
                answers: list[Any] = [self._unknown() for _ in some]
            else:
                # Where it has no answer it is undone behind each copy: there may be no other
                # connection to a node that hangs. Asked again there, its token is refused.
                answers = await io.exchange(node, requests, now, by, undo)
            for one, answer in zip(some, answers[1::2] if is_asked else answers, strict=True):
                one.take(answer)

    def _learn(self, one: _Errand, patient_until: float) -> float | None:
        """Return after how many seconds to ask again, None for not at all."""
        error, is_patient = one.error, clock.now() < patient_until
        if isinstance(error, redis_exceptions.AskError):
            is_moved = isinstance(error, redis_exceptions.MovedError)
            node = self._node_of(error, is_moved=is_moved)
            one.misleads = node is None
            one.sent_to = None if is_moved else node
            return 0.0
        if is_moving(error) and one.renews_alone():
            return 0.0
        if is_moving(error):
            return _PAUSE if is_patient else None
        if isinstance(error, _DOWN):
            one.misleads = True
            return _DOWN_PAUSE if is_patient else None
        if isinstance(error, BROKEN) and not isinstance(error, _REFUSED):
            one.misleads = True
            one.was_broken, was_broken = True, one.was_broken
            return None if was_broken else 0.0
        return None

    async def _look_anew(self, io: Any, errands: Sequence[_Errand], until: float) -> None:
        """Have a new map of the slots if one of ``errands`` was misled, and wait for it a while."""
        misled = [one for one in errands if one.misleads]
        if not misled:
            return
        hanging = [
            one.node for one in misled if isinstance(one.error, redis_exceptions.TimeoutError)
        ]
        with self.deciding, suppress(RuntimeError):
            # Where the interpreter is about to end no thread can be had.
            if self._looking is None or not self._looking.is_alive():
                look = partial(self._look, hanging[0] if hanging else None)
                self._looking = threading.Thread(target=look, name="setnx-lock-slots", daemon=True)
                self._looking.start()
        end = until if self._cluster() is None else min(until, clock.now() + _LOOKS_FOR)
        while self._looking is not None and self._looking.is_alive() and clock.now() < end:
            await io.sleep(_POLL)

    def _look(self, hanging: Session | None) -> None:
        """Get a new map of the slots, not from the node ``hanging`` if another one has it."""
        client, last = self._client(), {}
        if hanging is not None and _CAN_BE_LAST:
            last["last_failed_node_name"] = ":".join(map(str, hanging.place[1]))
        try:
            if isinstance(client, SharedCluster) and not client.is_connected:
                settings = client.get_connection_kwargs()
                self.limit = settings.get("socket_timeout") or self.limit
            elif client is not None:
                self._cluster().nodes_manager.initialize(**last)
            self._trouble = None
        except _FAILURES as error:
            self._trouble = error.with_traceback(None)

    async def scan(
        self, io: Any, cursor: Any, pattern: str, count: int
    ) -> tuple[Any, Sequence[bytes]]:
        if cursor == "0":
            found, slots = await self._slots(io)
            cursor = found, "0", slots
        # The nodes that are to be scanned yet, and where slots were before; None the second time.
        nodes, onward, before = cursor
        onward, names = await nodes[0].scan(io, onward, pattern, count)
        if onward != "0":
            return (nodes, onward, before), names
        nodes = nodes[1:]
        if not nodes and before is not None:
            # Keys may have moved to a node that was scanned, from one that was yet to be.
            again, after = await self._slots(io)
            if after != before or b"[" in b"".join(after.values()):
                nodes, before = again, None
        return (nodes, "0", before) if nodes else "0", names

    async def _slots(self, io: Any) -> tuple[list[Session], dict[bytes, bytes]]:
        """Return the session with each node, and what slots each has and passes on, by its id.

        Of nodes that may not be asked, nothing is known. Raises LockUnavailable.
        """
        nodes = self.nodes()
        found, others = await _slots_of(io, nodes)
        if not nodes or (others and len(found) == len(nodes)):
            # The map is old, or there is none.
            await self._look_anew(io, [_Errand(_ASKING, misleads=True)], clock.now() + self.limit)
            nodes = self.nodes()
            found, _ = await _slots_of(io, nodes)
        if not nodes:
            raise unavailable(self._unknown(), "")
        return nodes, found


async def _slots_of(io: Any, nodes: Sequence[Session]) -> tuple[dict[bytes, bytes], set[bytes]]:
    """Return what slots ``nodes`` have and pass on, by their ids, and the ids of others with some.

    A slot that is passed on is in brackets.
    """
    found, others = {}, set()
    for node in nodes:
        with suppress(LockUnavailable):
            reply = await node.call(io, Command.of("CLUSTER", "NODES"), "")
            for line in reply.value.splitlines():
                # Behind the id: address, flags, primary, times of two pings, epoch, state, slots.
                name, _, flags, _, _, _, epoch, _, *slots = line.split()
                if b"myself" in flags:
                    found[name] = b" ".join((epoch, *slots))
                elif slots:
                    others.add(name)
    return found, others - found.keys()


class Slot:
    """What the mailboxes of event loops know of the place of ``key``: its node, whichever it is."""

    def __init__(self, session: ClusterSession, key: str) -> None:
        self.limit = session.limit
        # Each lasts as long as somebody waits.
        self.mailboxes: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        self._session = session
        self._key = key

    def aio_connection(self) -> Any:
        """Return a new connection to the node."""
        return self._session.at(self._key).aio_connection()


class _Errand:
    """One request, on its way from node to node."""

    # Where it was sent for once; by which node it was answered last.
    sent_to: Session | None = None
    node: Session | None = None
    # Whether a node broke; whether a copy may be under way; whether the map has led it wrong.
    was_broken = has_copy = False
    answer: Any = None

    def __init__(self, request: Request, *, misleads: bool = False) -> None:
        keys = request.keys
        if len(keys) > 2 and _slot(keys[2]) != _slot(keys[0]):
            # There is no index, which would be elsewhere.
            request = request._replace(keys=keys[:2])
        self.request = request
        self.misleads = misleads

    @property
    def name(self) -> str:
        """One of its keys: any node will do for a request without."""
        return self.request.keys[0] if self.request.keys else ""

    @property
    def error(self) -> Any:
        """The error that it was answered with, if it was."""
        return None if isinstance(self.answer, Reply) else self.answer

    def take(self, answer: Any) -> None:
        """Have it answered."""
        self.sent_to, self.misleads = None, False
        if isinstance(answer, Reply):
            answer = answer._replace(was_retried=answer.was_retried or self.has_copy)
        else:
            self.has_copy |= getattr(answer, "in_doubt", False) or NOT_HERE in str(answer)
            answer.in_doubt = self.has_copy
        self.answer = answer

    def renews_alone(self) -> bool:
        """Go on with a renewal of the name alone; return whether that can be."""
        script, keys, args = self.request
        if script is not RENEW or ":" in args[0]:
            return False
        self.request = Request(_RENEW_ALONE, keys[:1], args)
        return True


def _slot(key: str) -> int:
    return int(key_slot(key.encode()))
