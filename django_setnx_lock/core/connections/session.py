"""A session: one server, as the pool of a redis-py client describes it."""

from __future__ import annotations

import itertools
import math
import secrets
import threading
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

from redis import exceptions as redis_exceptions
from redis.asyncio.connection import AbstractConnection

from .. import clock
from ..errors import LockUnavailable, LockUnsupported
from ..process import here
from ..protocol.replies import Reply, text
from ..protocol.requests import Command, Request, Undo
from .connection import aio_connection_of, connected, options_for
from .failures import unavailable

_SPARE_AT_MOST = 16


class Session:
    """One server, for the threads and event loops of this process.

    ``limit``: the seconds that one try of a request takes at most; a call takes two at most.
    ``idle``: connections with nothing under way, and ``listening``: those for mailboxes. ``pipes``
    and ``mailboxes``: of event loops. ``renewal``: what renews the locks of threads; ``renewals``:
    of event loops.
    """

    renewal: Any = None
    is_awaited = False
    # What the mailboxes of event loops begin with, and how long a waiter sleeps at most.
    longest_sleep = math.inf
    # Whether its locks can be in an index.
    has_index = True
    # Whether several locks can be asked for in one request.
    asks_together = True

    def __init__(self, pool: Any, limit: float | None = None) -> None:
        """``limit``: None for the socket timeout of ``pool``."""
        # Nothing is tried again below us, and replies are bytes.
        self._settings = settings = options_for(pool, limit) | {"decode_responses": False}
        self._kind = pool.connection_class
        # What makes a connection for an event loop; without the session, which ends with its pool.
        self.aio_connection = partial(aio_connection_of, self._kind, **self._settings)
        at = settings.get("path") or (settings.get("host", "localhost"), settings.get("port", 6379))
        if "server" in settings:
            # Each client of a fake server has another name for it.
            at = f"memory {id(settings['server'])}"
        # Whether only event loops can ask.
        self.is_awaited = issubclass(self._kind, AbstractConnection)
        place = (id(settings.get("server")), at, settings.get("db") or 0)
        self._begin(place, settings["socket_timeout"])

    def _begin(self, place: tuple[Any, Any, Any], limit: float) -> None:
        # Two clients of one database are in one place.
        self.place = place
        self.limit = limit
        # For handlers of signals, too.
        self.deciding = threading.RLock()
        self.idle: deque[Any] = deque(maxlen=_SPARE_AT_MOST)
        self.listening: deque[Any] = deque(maxlen=_SPARE_AT_MOST)
        self.pipes: dict[Any, Any] = {}
        self.mailboxes: dict[Any, Any] = {}
        self.renewals: dict[Any, Any] = {}
        # What the names of mailboxes of threads end with.
        self.wakes = map(f"wake:{{}}:{secrets.token_hex(8)}".format, itertools.count())

    @classmethod
    def suits(cls, pool: Any) -> bool:
        """Return whether ``pool`` has a session of this class, if it has none of a subclass."""
        return hasattr(pool, "connection_class")

    def at(self, key: str) -> Session:
        """Return the session with the server that has ``key``."""
        return self

    def beside(self, key: str) -> Any:
        """Return the session whose mailboxes are where ``key`` is."""
        return self

    def may_pass(self, error: Exception) -> bool:
        """Return whether to listen again may help after ``error``."""
        return not isinstance(error, redis_exceptions.ResponseError)

    @property
    def where(self) -> str:
        """What messages call the server."""
        _, at, db = self.place
        return f"{at if isinstance(at, str) else f'{at[0]}:{at[1]}'}/{db}"

    def close_idle(self) -> None:
        """Close what nothing is under way on: one connection has failed, so all may be dead."""
        self.idle.clear()
        self.listening.clear()

    async def call(
        self, io: Any, request: Request, key: str, undo: Undo = None, limits: int = 2
    ) -> Reply:
        """Return the reply to ``request``, which is sent again once if the connection broke.

        ``io``: how, one of :mod:`.backend`. ``key``: what messages call the lock. ``undo``: returns
        what is sent behind the request if that has no answer at the end. Raises LockUnavailable,
        after so many ``limits`` at the latest.
        """
        sent = clock.now()
        first = await io.at_once(self, request, sent, undo)
        if isinstance(first, Reply):
            return first
        until = sent + limits * self.limit
        (found,) = await io.exchange(self, (request,), sent, until, undo, *first)
        if isinstance(found, Reply):
            return found
        error = unavailable(found, key)
        error.time_left = max(until - clock.now(), 0)
        raise error from found

    async def call_many(
        self, io: Any, requests: Sequence[tuple[Request, str]], within: float
    ) -> list[Reply | LockUnavailable]:
        """Return the reply to each of ``requests``, beside their keys, or why it has none.

        ``io``: as for :meth:`call`. All are sent in one write, and again if the connection broke,
        and are answered ``within`` so many seconds or not at all.
        """
        sent = clock.now()
        asked = [request for request, _ in requests]
        answers = await io.exchange(self, asked, sent, sent + within)
        return [
            answer if isinstance(answer, Reply) else unavailable(answer, key)
            for answer, (_, key) in zip(answers, requests, strict=True)
        ]

    async def scan(
        self, io: Any, cursor: str, pattern: str, count: int
    ) -> tuple[str, Sequence[bytes]]:
        """Look through some ``count`` keys from ``cursor`` on, which is "0" at the beginning.

        Return the cursor that follows, "0" at the end, and the names that match ``pattern``. Raises
        LockUnavailable.
        """
        words = ("SCAN", cursor, "MATCH", pattern, "COUNT", str(count))
        onward, names = (await self.call(io, Command.of(*words), "")).value
        return text(onward), names

    def connection(self, until: float | None = None) -> Any:
        """Return a new connection for threads, connected by ``until`` (None: within the limit)."""
        by = clock.now() + self.limit if until is None else until
        return connected(self._kind, self._settings, by)


def session_of(client: Any) -> Session:
    """Return the session of this process with the server of ``client``.

    Raises LockUnsupported for a client of several servers.
    """
    try:
        pool = client.connection_pool
    except AttributeError:
        # Several servers, which are known by that.
        _class_for(client)
        pool = client
    sessions = here().sessions
    found: Session | None = sessions.get(pool)
    # Where another thread was first, its session.
    return found if found is not None else sessions.setdefault(pool, _class_for(pool)(pool))


def _class_for(pool: Any) -> type[Session]:
    kinds: list[type[Session]] = [*Session.__subclasses__(), Session]
    for kind in kinds:
        if kind.suits(pool):
            return kind
    raise LockUnsupported(
        f"a lock needs a client of one server, which {type(pool).__name__} is not: "
        "on a cluster give redis.RedisCluster, whose settings are used in asyncio, too"
    )
