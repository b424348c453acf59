"""Connections of our own to the server that a client speaks to: of a thread, of an event loop."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from redis import exceptions as redis_exceptions

from .client_settings import Limits, aio_connection_of, hang_up, options_for
from .cluster_routes import Asking
from .primitives import CONNECTING, run_within

Command = Sequence[str | bytes]
# Sent before each command to a node of a cluster that another node has sent us to.
_ASKING = b"*1\r\n$6\r\nASKING\r\n"
# The answer to it comes with that to the command.
_ADMITTED_WITHIN = 1.0
_FOREVER = 1e6
# RuntimeError: the loop may be closed already.
_FAILURES = (redis_exceptions.RedisError, OSError, RuntimeError)
# How many commands go in one write. No more than two writes are unanswered at a time: with more, a
# proxy that reads nothing while it cannot write would wait for us, and we for it.
BATCH = 100
# By how much an answer may be later than it should.
_A_LITTLE = 0.1
# How long sending may take that nobody is to wait for.
_AT_ONCE = 0.1
# The header of a part of a command, by its length.
_HEADS = [f"${length}" for length in range(1024)]


class DedicatedConnection:
    """Connection to the server of ``client`` that no pool lends to others.

    It has the address, credentials, TLS and Sentinel service of ``client``, and its time limits
    and retries too unless ``connect_timeout`` is given: that bounds connecting and sending, in
    seconds, nothing is sent twice, and whoever reads says how long. A limit that the client does
    not set is 5 seconds. After an error or an interruption with replies outstanding, close it.

    Every method raises what redis-py raises.
    """

    # Its redis-py connection; None once that is closed.
    _connection: Any = None
    # Whether sending does not connect.
    is_connected = False

    # Sends what :meth:`pack` gave, with so many replies (1), where it was connected before.
    _write: Callable[..., None]
    # The kinds differ in how a connection of redis-py is made, is sent to without waiting, and is
    # closed; and in connecting and reading, each within so many seconds.
    _made_of: Callable[..., Any]
    _send_at_once: Callable[[Any, bytes], None]
    _disconnect: Callable[[Any], None]
    _open: Callable[[float], Awaitable[None]]
    _answer: Callable[[float], Awaitable[Any]]
    _sleep: Callable[[float], Awaitable[None]]

    def __init__(self, client: Any, *, connect_timeout: float | None = None) -> None:
        # Not the client: connections are kept for the next as long as its pool lives.
        pool, options = client.connection_pool, options_for(client, connect_timeout)
        self._make = partial(self._made_of, pool.connection_class, **options)
        self._connection = self._make()
        self.limits = Limits(options, pool.connection_kwargs)
        self.answer_within = self.limits.answer
        # Set by :class:`.IdleConnections`.
        self.made: object = None
        self._is_asking = isinstance(client, Asking)
        # Whether the answer to ASKING was read, and the one to the command has not come as a whole.
        self._is_admitted = False
        # Whether a command may be sent more than once. Who was sent to another node once may not
        # be again.
        self._repeats = connect_timeout is None and not self._is_asking
        # Connections on which copies of what was asked last have no answer yet.
        self._unanswered: list[Any] = []
        self._owed = 0
        # Whether there was a connection for what was asked last, when it was last tried.
        self.has_sent = False
        # Whether a command asked was sent more than once; set back by who wants to know.
        self.sent_again = False

    async def ask(
        self,
        commands: Sequence[Command],
        expected: int = 1,
        until: float | None = None,
        again: Sequence[Command] | None = None,
    ) -> list[Any]:
        """Return the replies to the first ``expected`` of ``commands``, or the error replies.

        All are sent in as few writes as can be, and again as often as the client would; the rest of
        the replies is still to be read. ``until``: when to give up on one reply, by
        ``time.monotonic()``, if that is before the limits of the client. Several may take as long
        as they need, while they come. ``again``: what is sent in the place of ``commands`` when
        those may have been carried out (None: the same).
        """
        give_up_at = time.monotonic() + self.limits.whole
        if until is not None and until < give_up_at:
            give_up_at = until
        failures, was_sent = 0, False
        while True:
            self.has_sent = False
            try:
                if not self.is_connected:
                    await self._open(max(give_up_at - time.monotonic(), 0.0))
                self.has_sent = True
                self.sent_again |= was_sent
                was_sent = True
                replies: list[Any] = []
                sent = 0
                while len(replies) < expected:
                    while sent < len(commands) and sent <= len(replies) + BATCH:
                        batch = commands[sent : sent + BATCH]
                        sent += len(batch)
                        self._write(batch)
                    left = give_up_at - time.monotonic() if expected == 1 else _FOREVER
                    try:
                        replies.append(await self._answer(left))
                    except redis_exceptions.ResponseError as error:
                        # Without the frames: connections in a circle are closed late.
                        replies.append(error.with_traceback(None))
                while self._unanswered:
                    self._hang_up(self._unanswered.pop())
                return replies
            except (redis_exceptions.ConnectionError, redis_exceptions.TimeoutError) as error:
                failures += 1
                pause = self._pause_after(error, failures, give_up_at)
                if pause is None:
                    raise
            await self._sleep(pause)
            commands = again or commands

    def _pause_after(self, error: Exception, failures: int, give_up_at: float) -> float | None:
        """Return after how many seconds to try again, on another connection; None: not at all."""
        pause = self.limits.pause_after(error, failures) if self._repeats else None
        if isinstance(error, redis_exceptions.ConnectionError):
            self._hang_up(self._taken_off())
        if pause is None or pause >= give_up_at - time.monotonic():
            return None
        if self._owed:
            # It may be carried out yet: to be told of what becomes of it.
            self._unanswered.append(self._connection)
            self._taken_off()
        return pause

    def pack(self, *commands: Command) -> bytes:
        """Return ``commands`` as they are sent."""
        in_bytes: list[bytes] = []
        for command in commands:
            if self._is_asking:
                in_bytes.append(_ASKING)
            try:
                # Quicker than redis-py, which does all that is not short plain text.
                parts = [f"*{len(command)}"]
                for part in command:
                    parts += _HEADS[len(part)], part  # type: ignore[arg-type]  # bytes raise below
                parts.append("")
                in_bytes.append("\r\n".join(parts).encode("ascii"))
            except (IndexError, TypeError, UnicodeEncodeError):
                in_bytes += (self._connection or self._make()).pack_command(*command)
        return b"".join(in_bytes)

    def send_behind(self, commands: Sequence[Command]) -> bool:
        """Send ``commands`` behind what was asked and has no answer yet; return whether it was.

        The server carries them out after that, whenever it gets there. Nobody waits for an answer,
        and this is not to be used again; it is to be kept open, see :meth:`.IdleConnections.keep`.
        """
        owing = [*self._unanswered, self._connection] if self._owed else self._unanswered
        in_bytes, was_sent = self.pack(*commands), False
        for connection in owing:
            with suppress(*_FAILURES):
                self._send_at_once(connection, in_bytes)
                was_sent = True
        return was_sent

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port that it is connected to; None for a socket that has none."""
        host, port = (getattr(self._connection, name, None) for name in ("host", "port"))
        return None if host is None or port is None else (host, port)

    def close(self) -> None:
        """Close the connection at once; whatever is sent next makes a new one."""
        while self._unanswered:
            self._hang_up(self._unanswered.pop())
        self._hang_up(self._taken_off())

    def _taken_off(self) -> Any:
        """Return the connection of redis-py, which is not used any more."""
        connection, self._connection = self._connection, None
        self.is_connected, self._is_admitted, self._owed = False, False, 0
        return connection

    @classmethod
    def _hang_up(cls, connection: Any) -> None:
        if connection is not None:
            with suppress(*_FAILURES):
                cls._disconnect(connection)


class Connection(DedicatedConnection):
    """Connection of our own for one thread at a time."""

    def connect(self, within: float | None = None) -> None:
        """Connect now, unless it is connected; in so many seconds (None: as its settings say).

        With ``within``, all of it is bounded, and by the limit of its settings, too.
        """
        if self.is_connected:
            return
        connection = self._connection = self._connection or self._make()
        # Only so does a connection of a Sentinel's pool ask where the server is.
        if within is None:
            connection.connect()
        else:
            limit = min(within, self.limits.connect)
            try:
                run_within(limit, connection.connect, partial(self._hang_up, connection))
            except BaseException:
                # Perhaps it is still being connected.
                self._connection = None
                raise
        self.is_connected = True

    def send(self, *commands: Command, within: float | None = None) -> None:
        """Send ``commands`` in one write, connecting first if need be, as by :meth:`connect`."""
        self.connect(within)
        # In one write, or the server may begin with the first before it has heard of the rest.
        self._write(commands)

    def _write(self, commands: Sequence[Command]) -> None:
        in_bytes = self.pack(*commands)
        # Counted first: an interrupt may come in between.
        self._owed += len(commands)
        self._connection.send_packed_command([in_bytes], check_health=False)

    def wait(self, seconds: float) -> bool:
        """Return whether a reply has come within ``seconds``."""
        try:
            return bool(self._connection.can_read(max(seconds, 0)))
        except redis_exceptions.TimeoutError:
            return False

    def read(self) -> Any:
        """Return one reply, which must have begun to come. An error reply leaves it usable.

        So does a TimeoutError, which says that the rest has not come: it can be read later.
        """
        try:
            if self._is_asking and not self._is_admitted:
                # A user without the right to send it learns that from the answer to the command.
                with suppress(redis_exceptions.ResponseError):
                    self._connection.read_response(disconnect_on_error=False)
                self._is_admitted = True
            reply = self._connection.read_response(disconnect_on_error=False)
        except redis_exceptions.ResponseError:
            self._owed, self._is_admitted = self._owed - 1, False
            raise
        self._owed, self._is_admitted = self._owed - 1, False
        return reply

    @property
    def is_stale(self) -> bool:
        """Whether the other side has closed it while nothing was outstanding."""
        try:
            return self.is_connected and self.fileno() is not None and self.wait(0)
        except (redis_exceptions.RedisError, OSError):
            return True

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Limit each thing sent or read in the block to so many seconds."""
        sock = _socket_of(self._connection)
        if sock is None:
            yield
            return
        before = sock.gettimeout()
        sock.settimeout(seconds)
        try:
            yield
        finally:
            # It may have been closed.
            with suppress(OSError):
                sock.settimeout(before)

    def fileno(self) -> int | None:
        """Return the number of its socket while it is connected by one."""
        sock = _socket_of(self._connection)
        return None if sock is None else sock.fileno()

    @staticmethod
    def _made_of(kind: Callable[..., Any], /, **options: Any) -> Any:
        return kind(**options)

    @staticmethod
    def _send_at_once(connection: Any, in_bytes: bytes) -> None:
        sock = _socket_of(connection)
        if sock is None:
            raise redis_exceptions.ConnectionError("closed, or in memory, where nothing waits")
        sock.settimeout(_AT_ONCE)
        connection.send_packed_command([in_bytes], check_health=False)

    @staticmethod
    def _disconnect(connection: Any) -> None:
        connection.disconnect()

    async def _open(self, within: float) -> None:
        self.connect(within)

    async def _answer(self, left: float) -> Any:
        # The socket has a limit of its own, and to wait by another takes longer.
        if left < self.answer_within - _A_LITTLE and not self.wait(left):
            raise redis_exceptions.TimeoutError("Timeout reading from the server")
        return self.read()

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - it never runs in an event loop


def _socket_of(connection: Any) -> socket.socket | None:
    sock = getattr(connection, "_sock", None)
    # The fake's has a number, too, which is that of something else.
    return sock if isinstance(sock, socket.socket) else None


class AioConnection(DedicatedConnection):
    """Connection of our own in one event loop, for one task at a time."""

    # That in which it is connected.
    _loop: asyncio.AbstractEventLoop | None = None

    async def connect(self, within: float | None = None) -> None:
        """Connect now, unless it is connected; in so many seconds (None: as its settings say)."""
        if self.is_connected:
            return
        connection = self._connection = self._connection or self._make()
        # By a task: before Python 3.12, what redis-py does here may swallow a cancellation. And
        # only so does a connection of a Sentinel's pool ask where the server is.
        loop = asyncio.get_running_loop()
        connecting = loop.create_task(connection.connect(), name=CONNECTING)
        connecting.add_done_callback(take_note)
        try:
            limit = None if within is None else min(within, self.limits.connect)
            await asyncio.wait({connecting}, timeout=limit)
            if not connecting.done():
                raise redis_exceptions.TimeoutError("Timeout connecting to the server")
            if connecting.cancelled():
                raise redis_exceptions.ConnectionError(
                    "The task that was to connect has been cancelled"
                )
            connecting.result()
        except BaseException:
            connecting.cancel()
            connecting.add_done_callback(lambda _: self._hang_up(connection))
            # Perhaps it is still being connected.
            self._connection = None
            raise
        self._loop = loop
        self.is_connected = True

    async def send(self, *commands: Command, within: float | None = None) -> None:
        """Send ``commands`` in one write, connecting first if need be, in ``within`` seconds."""
        await self.connect(within)
        self._write(commands)

    def _write(self, commands: Sequence[Command]) -> None:
        in_bytes = self.pack(*commands)
        self._owed += len(commands)
        self._send_at_once(self._connection, in_bytes)

    async def read(self, seconds: float | None = None) -> Any:
        """Return one reply; None when none has come within ``seconds`` (None: without limit).

        An error reply leaves it usable.
        """
        limit = _FOREVER if seconds is None else max(seconds, 0)
        try:
            if self._is_asking and not self._is_admitted:
                # A user without the right to send it learns that from the answer to the command.
                with suppress(redis_exceptions.ResponseError):
                    if await self._read(limit) is None:
                        return None
                self._is_admitted, limit = True, min(limit, _ADMITTED_WITHIN)
            reply = await self._read(limit)
        except redis_exceptions.ResponseError as error:
            self._owed, self._is_admitted = self._owed - 1, False
            # Older redis-py has the error in a frame of its traceback: that circle would keep the
            # connection until it is garbage together with redis-py's, which then complains.
            raise error.with_traceback(None)  # noqa: B904 - it is the same error
        if reply is not None:
            self._owed, self._is_admitted = self._owed - 1, False
        return reply

    async def _read(self, seconds: float) -> Any:
        return await self._connection.read_response(timeout=seconds, disconnect_on_error=False)

    @property
    def is_stale(self) -> bool:
        """Whether the other side has closed it while nothing was outstanding."""
        reader = getattr(self._connection, "_reader", None)
        return self.is_connected and isinstance(reader, asyncio.StreamReader) and reader.at_eof()

    def __del__(self) -> None:
        """Close the connection, as those of threads do when their pool is thrown away."""
        connection, loop = self._connection, self._loop
        if self.is_connected and loop is not None:
            # By any thread. The loop may be closed already.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._hang_up, connection)

    _made_of = staticmethod(aio_connection_of)
    _disconnect = staticmethod(hang_up)
    _open = connect
    _sleep = staticmethod(asyncio.sleep)

    @staticmethod
    def _send_at_once(connection: Any, in_bytes: bytes) -> None:
        # Not by the connection's own method, which may swallow a cancellation, too. Whoever reads
        # the reply waits for what the socket did not take at once.
        if connection._writer is None:
            raise redis_exceptions.ConnectionError("The connection was closed")
        connection._writer.writelines([in_bytes])

    async def _answer(self, left: float) -> Any:
        reply = await self.read(min(left, self.answer_within))
        # No reply to what is asked here is a null.
        if reply is None:
            raise redis_exceptions.TimeoutError("Timeout reading from the server")
        return reply


def take_note(task: asyncio.Task[Any]) -> None:
    """Take note of an error of ``task`` that nobody is left to hear of: then nobody complains."""
    if not task.cancelled():
        task.exception()
