"""The server that Sentinels name as the primary, for as long as they do.

Nothing closes the connections to a primary that another server has taken the place of: until it is
made a replica, after some ten seconds, it grants locks to all that are still connected.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, ref

from .. import clock
from ..errors import LockUnavailable
from ..process import here
from ..protocol.replies import Reply
from ..protocol.requests import Request, Undo
from .connection import Service
from .session import Session

# How often the Sentinels are asked; for how long after the last call, where waiters make one every
# 25 seconds; and how long the first call after a pause waits for the answer.
EVERY, LINGERS, WITHIN = 1.0, 40.0, 0.1
_POLL, _END_WITHIN = 0.002, 0.5
# For how long a waiter is answered by nobody at most, what may pass, and when it asks again.
LONGEST_OUTAGE = 60.0
_PASSING = frozenset({"unreachable", "timeout", "readonly"})
_PAUSE_MS = b"400"

logger = logging.getLogger("django_setnx_lock.lock")


class SentinelSession(Session):
    """The primary of a service that Sentinels watch over.

    While it is used, a thread asks which server that is, and cuts the connections to others: who
    waits on one of them, for an answer or in a queue, asks again at the new primary. Who is in a
    queue waits on while there is none, for a minute at most.
    """

    _watch: Watch | None = None
    asked_at = -math.inf

    def __init__(self, pool: Any) -> None:
        super().__init__(pool)
        at = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
        names = sorted(f"{one.get('host', 'localhost')}:{one.get('port', 6379)}" for one in at)
        self.place = (0, f"{pool.service_name} of {','.join(names)}", self.place[2])
        # A client of the replicas has whichever answers.
        self._is_followed = pool.is_master
        # The connections, and the event loop of each, None for a thread's.
        self._made: WeakKeyDictionary[Any, asyncio.AbstractEventLoop | None] = WeakKeyDictionary()
        # By the token of who is in a queue, since when there is no primary; inf: there is one.
        self._queued: dict[tuple[str, ...], float] = {}
        self.aio_connection = partial(_aio_connection, self._made, self.aio_connection)

    @classmethod
    def suits(cls, pool: Any) -> bool:
        return hasattr(pool, "sentinel_manager")

    async def call(
        self, io: Any, request: Request, key: str, undo: Undo = None, limits: int = 2
    ) -> Reply:
        await self._follow(io)
        # Who waits names a mailbox.
        token, waits = request.args[:1], len(request.args) > 4
        try:
            reply = await super().call(io, request, key, undo, limits)
        except LockUnavailable as error:
            began = self._queued.get(token, -math.inf) if waits else -math.inf
            if error.cause not in _PASSING or clock.now() > began + LONGEST_OUTAGE:
                raise
            if began == math.inf:
                self._queued[token] = clock.now()
                logger.debug("waits on for the lock %r through an outage: %s", key, error)
            return Reply([b"BUSY", _PAUSE_MS, b"", None], clock.now(), was_retried=True)
        self._queued.pop(token, None)
        if waits and isinstance(reply.value, list) and reply.value[0] == b"BUSY":
            self._queued[token] = math.inf
        return reply

    async def call_many(
        self, io: Any, requests: Sequence[tuple[Request, str]], within: float
    ) -> list[Reply | LockUnavailable]:
        await self._follow(io)
        for request, _ in requests:
            self._queued.pop(request.args[:1], None)
        return await super().call_many(io, requests, within)

    def connection(self, until: float | None = None) -> Any:
        made = super().connection(until)
        self._made[made] = None
        return made

    async def _follow(self, io: Any) -> None:
        """Have the Sentinels asked from now on; what is connected waits for the first answer."""
        self.used_at = now = clock.now()
        watch = self._watch
        if not self._is_followed or (watch is not None and watch.is_alive()):
            return
        with here().mutex, suppress(RuntimeError):
            # Where the interpreter is about to end no thread can be had.
            if self._watch is watch:
                self._watch = Watch(self)
                self._watch.start()
        while self._made and self.asked_at < now and clock.now() < now + WITHIN:
            await io.sleep(_POLL)

    def look(self) -> None:
        """Ask which server is the primary, and cut the connections to others.

        Raises what redis-py raises; what the Sentinels said before counts then.
        """
        pool = self._settings["connection_pool"]
        if self.is_awaited:
            # Its own connections belong to an event loop.
            address = asyncio.run(Service(pool).get_master_address())
        else:
            address = pool.get_master_address()
        for reference in self._made.keyrefs():
            connection = reference()
            if connection is not None and (connection.host, connection.port) != address:
                self._cut(connection, self._made[connection])

    def _cut(self, connection: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        if loop is not None:
            transport = getattr(connection._writer, "transport", None)
            with suppress(RuntimeError):
                # Else it is connecting just now, or the loop is closed.
                if transport is not None:
                    loop.call_soon_threadsafe(transport.abort)
            return
        for lines in (self.idle, self.listening):
            with suppress(ValueError):
                lines.remove(connection)
        with suppress(OSError, AttributeError):
            connection._sock.shutdown(socket.SHUT_RDWR)


class Watch(threading.Thread):
    """Asks the Sentinels of a session for as long as that is used."""

    def __init__(self, session: SentinelSession) -> None:
        super().__init__(name="setnx-lock-sentinel", daemon=True)
        self._session = ref(session)
        self._over = threading.Event()

    def run(self) -> None:
        here().renewing.add(self)
        try:
            while not self._over.is_set() and self._look():
                self._over.wait(EVERY)
        finally:
            here().renewing.discard(self)

    def _look(self) -> bool:
        """Ask once; return whether to go on."""
        session = self._session()
        if session is None or clock.now() > session.used_at + LINGERS:
            return False
        with suppress(Exception):
            session.look()
        session.asked_at = clock.now()
        return True

    def end(self) -> None:
        """Ask no more."""
        self._over.set()
        self.join(_END_WITHIN)


def _aio_connection(made: WeakKeyDictionary[Any, Any], make: Callable[[], Any]) -> Any:
    connection = make()
    made[connection] = asyncio.get_running_loop()
    return connection
