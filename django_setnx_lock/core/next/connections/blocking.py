"""Exchanges in the calling thread."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from redis import exceptions as redis_exceptions

from ... import clock
from ...errors import LockError
from ..protocol.requests import AnyRequest
from .failures import ExchangeFailed, Undo

if TYPE_CHECKING:
    from .session import Session

# How many requests are in one write: with more, each side may wait for the other to read.
BATCH = 1000
# How long sending may take that nobody is to wait for.
_AT_ONCE = 0.1
_BROKEN = (redis_exceptions.ConnectionError, redis_exceptions.TimeoutError)
# Errors that another try would not help.
_REFUSED = (redis_exceptions.AuthenticationError, redis_exceptions.AuthorizationError)


class Blocking:
    """Sends, receives and sleeps in the calling thread: none of its coroutines suspends."""

    is_asyncio = False

    async def exchange(
        self,
        session: Session,
        request: AnyRequest,
        sent: float,
        within: float | None,
        undo: Undo,
    ) -> tuple[Any, bool]:
        """Return the reply, and whether another copy of the request may be carried out yet.

        Raises ExchangeFailed. See :meth:`.Session.call`.
        """
        connection = None
        error: Exception
        try:
            connection = session.idle.pop()
            connection.send_packed_command((request.pack(),), check_health=False)
            if within is not None and within < session.limit and not connection.can_read(within):
                raise redis_exceptions.TimeoutError("Timeout reading from the server")
            value = connection.read_response(disconnect_on_error=False)
        except (redis_exceptions.RedisError, IndexError) as failure:
            error = failure
        except BaseException:
            close(connection)
            raise
        else:
            session.idle.append(connection)
            return value, False
        longest = 2 * session.limit
        until = sent + (longest if within is None else min(within, longest))
        return _Persistent(session, request, until, undo).ask(connection, error)

    async def exchange_many(
        self, session: Session, requests: Sequence[AnyRequest], within: float
    ) -> list[Any]:
        """Return the reply to each request, or an ExchangeFailed."""
        until = clock.now() + within
        values: list[Any] = []
        connection = None
        try:
            connection = take(session.idle) or session.connection(within)
            while len(values) < len(requests):
                batch = requests[len(values) : len(values) + BATCH]
                values += self._ask_batch(connection, batch, until)
        except redis_exceptions.RedisError as error:
            # One has failed, so all may be dead.
            session.idle.clear()
            close(connection)
            missing = len(requests) - len(values)
            return [*values, *[ExchangeFailed(error, in_doubt=True, is_undone=False)] * missing]
        except BaseException:
            close(connection)
            raise
        keep(session, connection)
        return values

    def _ask_batch(
        self, connection: Any, requests: Sequence[AnyRequest], until: float
    ) -> list[Any]:
        packed = b"".join([request.pack() for request in requests])
        connection.send_packed_command((packed,), check_health=False)
        values: list[Any] = [self._read(connection, until) for _ in requests]
        for at, value in enumerate(values):
            if isinstance(value, redis_exceptions.NoScriptError):
                in_full = requests[at].pack_in_full()
                connection.send_packed_command((in_full,), check_health=False)
                values[at] = self._read(connection, until)
        return [
            ExchangeFailed(value, in_doubt=False, is_undone=False)
            if isinstance(value, redis_exceptions.ResponseError)
            else value
            for value in values
        ]

    @staticmethod
    def _read(connection: Any, until: float) -> Any:
        if not connection.can_read(max(until - clock.now(), 0)):
            raise redis_exceptions.TimeoutError("Timeout reading from the server")
        try:
            return connection.read_response(disconnect_on_error=False)
        except redis_exceptions.ResponseError as error:
            return error

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)  # noqa: ASYNC251 - it never runs in an event loop

    async def shield(
        self, clean_up: Callable[[], Awaitable[None]], seconds: float, after: BaseException
    ) -> None:
        """Run ``clean_up``. What Redis cannot be told is dropped: it ends with its lease."""
        with suppress(LockError):
            await clean_up()


class _Persistent:
    """A request that is sent on a new connection if the one at hand broke, or there is none."""

    def __init__(self, session: Session, request: AnyRequest, until: float, undo: Undo) -> None:
        self._session = session
        self._request = request
        self._until = until
        self._undo = undo
        # Whether it was sent on the connection at hand, and whether another copy has no answer.
        self._has_sent = self._in_doubt = False
        # Connections on which a copy has none, and may be undone.
        self._owing: list[Any] = []

    def ask(self, connection: Any, error: Exception) -> tuple[Any, bool]:
        """Return as :meth:`Blocking.exchange`; on ``connection`` it has ended in ``error``."""
        packed, tries = self._request.pack(), 0
        self._has_sent = connection is not None
        try:
            while True:
                if isinstance(error, redis_exceptions.NoScriptError):
                    packed = self._request.pack_in_full()
                elif connection is not None:
                    broken, connection = connection, None
                    self._give_up_on(broken, error)
                    tries += 1
                    if tries == 2 or clock.now() >= self._until:
                        raise error
                try:
                    if connection is None:
                        self._has_sent = False
                        connection = self._session.connection(self._until - clock.now())
                        connection.connect()
                    self._has_sent = True
                    connection.send_packed_command((packed,), check_health=False)
                    value = connection.read_response(disconnect_on_error=False)
                except redis_exceptions.RedisError as failure:
                    if connection is None:
                        # None can be made: its settings are refused, as often as it is tried.
                        raise
                    error = failure
                    continue
                free, connection = connection, None
                keep(self._session, free)
                return value, bool(self._owing or self._in_doubt)
        except redis_exceptions.RedisError as failure:
            is_undone = self._is_undone()
            in_doubt = self._in_doubt or not is_undone
            is_undone &= not isinstance(failure, redis_exceptions.ResponseError)
            raise ExchangeFailed(failure, in_doubt=in_doubt, is_undone=is_undone) from None
        finally:
            # An interrupt may come at any time.
            for one in (*self._owing, connection):
                close(one)

    def _give_up_on(self, connection: Any, error: Exception) -> None:
        """Raise ``error`` if another try would not help."""
        if isinstance(error, redis_exceptions.ResponseError):
            keep(self._session, connection)
            raise error
        # One has failed, so all may be dead.
        self._session.idle.clear()
        if self._has_sent and isinstance(error, redis_exceptions.TimeoutError):
            self._owing.append(connection)
        else:
            self._in_doubt |= self._has_sent
            close(connection)
        if not isinstance(error, _BROKEN) or isinstance(error, _REFUSED):
            raise error

    def _is_undone(self) -> bool:
        """Send behind each copy that has no answer what undoes it; return whether none is left."""
        is_undone = not self._in_doubt
        for connection in self._owing:
            sock = getattr(connection, "_sock", None)
            # The fake's is no socket, and one that is closed would be opened again.
            if self._undo is None or not isinstance(sock, socket.socket):
                is_undone = False
                continue
            try:
                sock.settimeout(_AT_ONCE)
                connection.send_packed_command((self._undo().pack_in_full(),), check_health=False)
            except (redis_exceptions.RedisError, OSError):
                is_undone = False
        return is_undone


def take(idle: deque[Any]) -> Any:
    """Return one of the ``idle`` connections, None if there is none; others take some meanwhile."""
    try:
        return idle.pop()
    except IndexError:
        return None


def keep(session: Session, connection: Any) -> None:
    """Keep ``connection``, on which nothing is under way, for the next who asks."""
    if connection.socket_timeout >= session.limit:
        session.idle.append(connection)
    else:
        close(connection)


def close(connection: Any) -> None:
    """Close a connection, which may be None or broken."""
    if connection is not None:
        with suppress(redis_exceptions.RedisError, OSError):
            connection.disconnect()
