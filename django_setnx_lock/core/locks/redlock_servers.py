"""The servers of a Redlock, and how they are asked together."""

from __future__ import annotations

import codecs
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from redis import exceptions as redis_exceptions

from .. import values
from ..connections.client_settings import refuse_own_calls
from ..connections.connection import Command, Connection
from ..connections.endpoints import server_id
from ..connections.failures import unavailable
from ..connections.pool import IdleConnections
from ..connections.primitives import in_thread
from ..errors import LockUnavailable, subject
from ..protocol.commands import PlainRequest, Request

# A command, and what is sent instead where its script may be missing; None: it has no script.
Pair: TypeAlias = tuple[Command, Command | None]

DEFAULT_TIMEOUT = 0.1
# With two, neither could fail.
FEWEST = 3
# For how long answers may be outstanding before the connection is taken for dead, in seconds.
_SILENCE = 1.0
# For how long one server is waited for before the others are looked at.
_SLICE = 0.002


class RedlockConnection(Connection):
    """A connection to one server, on which answers may be outstanding that nobody waits for.

    They are skipped. So a slow server need not be connected to anew each time, and a server that
    hangs gets what was sent to it in order when it goes on.
    """

    _since = 0.0

    def __init__(self, client: Any, *, timeout: float) -> None:
        super().__init__(client, connect_timeout=timeout)
        # The scripts, by SHA, that were run here.
        self.known: set[str | bytes] = set()

    def post(self, commands: Sequence[Command]) -> int:
        """Send ``commands`` in one write. Return how many answers come before theirs."""
        before = self._owed
        if not before:
            self._since = time.monotonic()
        self.send(*commands)
        return before

    def next_reply(self) -> Any:
        """Return one answer; an error reply is returned, not raised."""
        try:
            reply = self.read()
        except redis_exceptions.ResponseError as error:
            reply = error
        self._since = time.monotonic()
        return reply

    def is_fit(self) -> bool:
        """Return whether it can be used again, after reading what has come meanwhile."""
        while self._owed and self.wait(0):
            self.next_reply()
        return not self._owed or time.monotonic() - self._since < _SILENCE

    def close(self) -> None:
        self.known.clear()
        super().close()


@lru_cache(maxsize=16)
def idle_connections(timeout: float) -> IdleConnections[RedlockConnection]:
    """Return the idle connections of this process with that ``timeout``."""
    # The first name that is resolved imports this. Do it here, outside the time of the servers.
    codecs.lookup("idna")
    return IdleConnections(partial(RedlockConnection, timeout=timeout))


class _Call:
    """The requests to one server. They are ``done`` when it has answered or failed."""

    def __init__(
        self,
        client: Any,
        pairs: Sequence[Pair],
        idle: IdleConnections[RedlockConnection],
        insists: bool,
        repeated: Callable[[], None] | None,
    ) -> None:
        self.replies: dict[int, Any] = {}
        self.error: Exception | None = None
        self.done = False
        self._client, self._pairs, self._idle = client, pairs, idle
        self._insists, self._repeated = insists, repeated
        self._connection = idle.checkout(client)
        # The numbers of the commands that have no answer yet, and of those whose script was
        # missing; and how many answers to what others sent come before.
        self._unanswered: deque[int] = deque()
        self._missing: list[int] = []
        self._to_skip = 0
        # Of the thread that connects; None when there is none, or when it was noticed.
        self._connecting: Future[None] | None = None
        self._is_new = False

    def begin(self) -> None:
        """Send on a connection that is there and fit; else begin to connect."""
        if self._connection.is_connected:
            with suppress(Exception):
                # Whatever a client's own classes raise.
                if self._connection.is_fit():
                    self._send(range(len(self._pairs)))
                    return
            self._discard()
        self._connect()

    def take(self, seconds: float) -> None:
        """Take the answers that come within ``seconds``."""
        give_up_at = time.monotonic() + seconds
        try:
            if self._connecting is not None:
                if not wait([self._connecting], seconds).done:
                    return
                connecting, self._connecting = self._connecting, None
                connecting.result()
                self._send(range(len(self._pairs)))
            while not self.done and self._connection.wait(give_up_at - time.monotonic()):
                self._read()
        except Exception as error:  # noqa: BLE001 - whatever a client's own classes raise
            self._discard()
            if self._is_new:
                # Without the frames, which refer to all this: connections in a circle are closed
                # late.
                error.__cause__ = error.__context__ = None
                self.error, self.done = error.with_traceback(None), True
                return
            # It may have been closed long ago. Every request may arrive twice.
            if self._repeated:
                self._repeated()
            self._connect()

    def end(self, *, is_disturbed: bool) -> None:
        """Wait no longer. ``is_disturbed``: it may have been in the middle of an answer."""
        if self._connecting is not None:
            self._connecting.add_done_callback(self._send_late)
        elif is_disturbed:
            self._connection.close()
        elif self.error is None:
            self._idle.checkin(self._client, self._connection)

    def _send(self, numbers: Iterable[int]) -> None:
        """Send those of the commands, each script in full where it may be missing."""
        known, to_send = set(self._connection.known), []
        for number in numbers:
            short, in_full = self._pairs[number]
            to_send.append(short if in_full is None or short[1] in known else in_full)
            known.add(short[1])
            self._unanswered.append(number)
        self._to_skip = self._connection.post(to_send)

    def _read(self) -> None:
        reply = self._connection.next_reply()
        if self._to_skip:
            self._to_skip -= 1
            return
        number = self._unanswered.popleft()
        short, in_full = self._pairs[number]
        if isinstance(reply, redis_exceptions.NoScriptError):
            # Nothing was applied.
            self._connection.known.discard(short[1])
            self._missing.append(number)
        else:
            self.replies[number] = reply
            if in_full is not None:
                self._connection.known.add(short[1])
        if not self._unanswered:
            missing, self._missing = self._missing, []
            self.done = not missing
            if missing:
                self._send(missing)

    def _discard(self) -> None:
        self._connection.close()
        # All that are spare may be as dead.
        self._idle.forget(self._client)
        self.replies.clear()
        self._unanswered.clear()
        self._missing.clear()

    def _connect(self) -> None:
        self._is_new = True
        self._connecting = in_thread(self._connection.connect)

    def _send_late(self, connected: Future[None]) -> None:
        """Send what has to arrive, on a connection that came when nobody waited any more."""
        if connected.exception() is not None:
            return
        try:
            if self._insists:
                self._send(range(len(self._pairs)))
        except Exception:  # noqa: BLE001 - whatever a client's own classes raise
            self._connection.close()
        else:
            self._idle.checkin(self._client, self._connection)


def broadcast(
    clients: Sequence[Any],
    pairs: Sequence[Pair],
    timeout: float,
    *,
    awaited: Collection[int] | None = None,
    insists: bool = False,
    repeated: Callable[[], None] | None = None,
) -> list[list[Any]]:
    """Return for each command the replies of all servers, or exceptions in their place.

    All are sent to each server in one write. This takes no longer than ``timeout``, whatever the
    servers do, alone or together: all are asked before the first is waited for, and a thread makes
    each connection that is missing. ``awaited``: the numbers of those that are waited for (None:
    all). ``insists``: whether to send also to a server that was connected to only when the time
    was over. ``repeated`` is called when something was sent twice.
    """
    idle = idle_connections(timeout)
    calls: list[_Call] = []
    is_disturbed = True
    try:
        # No comprehension: an interrupt in one would pass by what ends the calls.
        for client in clients:
            call = _Call(client, pairs, idle, insists, repeated)
            calls.append(call)
            call.begin()
        _wait(calls, awaited, timeout)
        is_disturbed = False
    finally:
        for call in calls:
            call.end(is_disturbed=is_disturbed)
    late = redis_exceptions.TimeoutError("no answer in time")
    return [
        [call.replies.get(number, call.error or late) for call in calls]
        for number in range(len(pairs))
    ]


def _wait(calls: Sequence[_Call], awaited: Collection[int] | None, seconds: float) -> None:
    """Wait until those of ``calls`` that are awaited are done, for so long at the most."""
    give_up_at = time.monotonic() + seconds
    is_late = False
    if awaited is not None:
        calls = [calls[number] for number in awaited]
    while calls and not is_late:
        is_late = time.monotonic() >= give_up_at
        # A server that hangs must not delay what the others still have to be sent.
        longest = _SLICE if len(calls) > 1 else seconds
        for call in calls:
            call.take(max(min(longest, give_up_at - time.monotonic()), 0))
        calls = [call for call in calls if not call.done]


class RedlockServers:
    """Independent servers that are asked together.

    ``clients``: a redis-py client of each. ``names``: what messages call them. ``timeout``: the
    seconds in which they have to be connected to and to answer, all at the same time.
    """

    def __init__(self, clients: Sequence[Any], names: Sequence[str], timeout: float) -> None:
        self.clients = tuple(clients)
        self.names = tuple(names)
        self.timeout = timeout
        self.places = tuple(map(server_id, clients))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self.names)}>"

    def ask(
        self,
        request: Request,
        *,
        to: Sequence[int] | None = None,
        awaited: Collection[int] | None = None,
        insists: bool = False,
        repeated: Callable[[], None] | None = None,
    ) -> list[Any]:
        """Return the replies of the servers to ``request``, or exceptions. See :func:`broadcast`.

        ``to``: the numbers of those to ask (None: all). ``repeated`` is also called if a copy may
        still be under way.
        """
        pair = (request.by_sha, request.in_full)
        clients = self.clients if to is None else [self.clients[number] for number in to]
        (replies,) = broadcast(
            clients,
            [pair],
            self.timeout,
            awaited=awaited,
            insists=insists,
            repeated=repeated,
        )
        if repeated and any(isinstance(reply, Exception) for reply in replies):
            repeated()
        return replies

    def ask_each(self, requests: Sequence[Request | PlainRequest]) -> list[list[Any]]:
        """Return the replies of all servers to each of ``requests``, sent in one write."""
        pairs = [(request.by_sha, request.in_full) for request in requests]
        return broadcast(self.clients, pairs, self.timeout)

    def exist(self, name: str) -> list[Any]:
        """Return for each server whether anything stands at ``name``, or an exception."""
        return broadcast(self.clients, [(("EXISTS", name), None)], self.timeout)[0]

    def unavailable(self, replies: Sequence[Any], key: str) -> LockUnavailable:
        """Return the error for ``replies`` of which too few are answers."""
        causes = {
            name: unavailable(reply, key).cause
            for name, reply in zip(self.names, replies, strict=True)
            if isinstance(reply, Exception)
        }
        asked = len(self.names) - len(causes)
        why = ", ".join(f"{name}: {cause}" for name, cause in causes.items())
        counted = Counter(causes.values()).most_common(1)
        return LockUnavailable(
            f"{subject(key)} unavailable: {asked} of {len(self.names)} masters answered, which "
            f"makes no majority that agrees" + (f" ({why})" if why else ""),
            key=key,
            cause=counted[0][0] if counted else "server",
        )


# Those in use: to make one and check its clients takes longer than to ask the servers.
_known: WeakValueDictionary[tuple[object, ...], RedlockServers] = WeakValueDictionary()


def servers_of(
    clients: Sequence[Any], names: Sequence[str] | None = None, timeout: float = DEFAULT_TIMEOUT
) -> RedlockServers:
    """Return the servers behind ``clients``: the same object for the same connection pools.

    Raises ValueError for fewer than three, for two clients of one server and for a ``timeout``
    that is no time; TypeError for clients of a cluster or of asyncio; LockUnsupported for those
    whose class sends commands in its own way.
    """
    pools = [getattr(client, "connection_pool", None) for client in clients]
    names = None if names is None else tuple(names)
    # A timeout that cannot be hashed is refused below.
    known_by = (*map(id, pools), names, str(timeout))
    known = _known.get(known_by)
    if known is not None:
        return known
    values.milliseconds(timeout, "master_timeout")
    for client in clients:
        if any(kind.__module__.startswith("redis.asyncio") for kind in type(client).__mro__):
            raise TypeError("a Redlock has no asyncio: give clients of redis.Redis")
        if getattr(client, "connection_pool", None) is None:
            raise TypeError(
                f"each master of a Redlock is one server, which {type(client).__name__} is not"
            )
        refuse_own_calls(client.__class__)
    found = RedlockServers(clients, names or [server_id(client) for client in clients], timeout)
    _refuse_few(found)
    _known[known_by] = found
    return found


def _refuse_few(masters: RedlockServers) -> None:
    if len(masters.clients) < FEWEST:
        raise ValueError(
            f"a Redlock needs {FEWEST} masters at least, better 5, not {len(masters.clients)}: "
            "with fewer none of them may fail, so take the ordinary lock on one"
        )
    seen: dict[str, str] = {}
    for name, place in zip(masters.names, masters.places, strict=True):
        # Without the database: two of one server fail together.
        server = place.rpartition("/")[0] or place
        other = seen.setdefault(server, name)
        if other is not name or list(masters.names).count(name) > 1:
            raise ValueError(
                f"the masters {other!r} and {name!r} of a Redlock are one server, {server}: "
                "they would fail together"
            )
