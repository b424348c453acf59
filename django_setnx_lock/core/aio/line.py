"""A connection of one's own to the server that a client speaks to, in one event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis import exceptions as redis_exceptions

from ..line import Command, Limits, options_for, packed
from .kinds import maker_for

_FOREVER = 1e6
# The name of the tasks that connect.
CONNECTING = "setnx-lock-connect"


class Line:
    """The twin of :class:`~django_setnx_lock.core.line.Line`; for one task at a time.

    After an error, a cancellation or an interruption with replies outstanding, :meth:`drop` it.
    """

    _connection: Any = None
    _is_connected = False
    # That in which it is connected.
    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, client: Any, *, connect_timeout: float | None = None) -> None:
        # Not the client: lines are kept for the next as long as its pool lives.
        self._make = maker_for(client, connect_timeout)
        self._connection = self._make()
        wishes = client.connection_pool.connection_kwargs
        self.limits = Limits(options_for(client, connect_timeout), wishes)
        # As in its twin.
        self.repeats = connect_timeout is None
        self._unanswered: list[Any] = []
        self._owed = 0
        self.has_sent = self.has_connected = False
        # Whether a command asked was sent more than once; set back by who wants to know.
        self.sent_again = False

    async def ask(
        self, *command: str | bytes, then: Command | None = None, until: float | None = None
    ) -> Any:
        """The reply to ``command``, which is sent again as often as the client would.

        ``then`` is sent behind it in the same write; its reply is still to be read. ``until``:
        when to give up, by ``time.monotonic()``, if that is before the limits of the client.
        """
        commands = [command] if then is None else [command, then]
        give_up_at, failures = self.limits.end(until), 0
        self.has_sent = False
        while True:
            try:
                return await self._exchange(commands, give_up_at)
            except (redis_exceptions.ConnectionError, redis_exceptions.TimeoutError) as error:
                failures += 1
                pause = self.limits.pause_after(error, failures) if self.repeats else None
                if isinstance(error, redis_exceptions.ConnectionError):
                    self._close()
                if pause is None or pause >= give_up_at - time.monotonic():
                    raise
            if self._owed:
                # It may be carried out yet: to be told of what becomes of it.
                self._unanswered.append(self._connection)
                self._connection, self._is_connected, self._owed = None, False, 0
            await asyncio.sleep(pause)

    async def _exchange(self, commands: Sequence[Command], give_up_at: float) -> Any:
        self.has_connected = False
        await self._connected(max(give_up_at - time.monotonic(), 0.0))
        self.has_connected = True
        self.sent_again |= self.has_sent
        self.has_sent = True
        self._write(commands)
        # No reply to what is asked here is a null.
        reply = await self.read(min(give_up_at - time.monotonic(), self.limits.answer))
        if reply is None:
            raise redis_exceptions.TimeoutError("Timeout reading from the server")
        while self._unanswered:
            _close(self._unanswered.pop())
        return reply

    async def send(self, *commands: Command, within: float | None = None) -> None:
        """Send ``commands`` in one write, connecting first if need be, in ``within`` seconds."""
        await self._connected(within)
        self._write(commands)

    def _write(self, commands: Sequence[Command]) -> None:
        self._owed += len(commands)
        _write(self._connection, self._packed(commands))

    def _packed(self, commands: Sequence[Command]) -> list[bytes]:
        in_bytes: list[bytes] = []
        for command in commands:
            in_bytes += packed(command) or self._made().pack_command(*command)
        return in_bytes

    def send_behind(self, commands: Sequence[Command]) -> bool:
        """As in its twin."""
        owing = [*self._unanswered, self._connection] if self._owed else self._unanswered
        in_bytes = self._packed(commands)
        # To all of them.
        return sum(_was_written(connection, in_bytes) for connection in owing) > 0

    @property
    def is_connected(self) -> bool:
        """Whether it was connected, so that sending does not connect."""
        return self._is_connected

    async def connect(self) -> None:
        """Connect now, unless it is connected."""
        await self._connected(None)

    async def read(self, seconds: float | None = None) -> Any:
        """One reply; None when none has come within ``seconds`` (None: without limit).

        An error reply leaves the line usable.
        """
        try:
            reply = await self._read(_FOREVER if seconds is None else max(seconds, 0))
        except redis_exceptions.ResponseError as error:
            self._owed -= 1
            # Older redis-py has the error in a frame of its traceback: that circle would keep the
            # line until it is garbage together with its connection, which then complains.
            raise error.with_traceback(None)  # noqa: B904 - it is the same error
        if reply is not None:
            self._owed -= 1
        return reply

    async def _read(self, seconds: float) -> Any:
        return await self._connection.read_response(timeout=seconds, disconnect_on_error=False)

    def drop(self) -> None:
        """Close the connection at once; whatever is sent next makes a new one."""
        while self._unanswered:
            _close(self._unanswered.pop())
        self._close()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        self._is_connected, self._owed = False, 0
        if connection is not None:
            _close(connection)

    def __del__(self) -> None:
        """Close the connection, as those of threads do when their pool is thrown away."""
        connection, loop = self._connection, self._loop
        if self._is_connected and loop is not None:
            # By any thread. The loop may be closed already.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_close, connection)

    @property
    def address(self) -> tuple[str, int] | None:
        """The twin of :attr:`~django_setnx_lock.core.line.Line.address`."""
        host, port = (getattr(self._connection, name, None) for name in ("host", "port"))
        return None if host is None or port is None else (host, port)

    def _made(self) -> Any:
        if self._connection is None:
            self._connection = self._make()
        return self._connection

    async def _connected(self, within: float | None) -> None:
        if self._is_connected:
            return
        connection = self._made()
        try:
            limit = None if within is None else min(within, self.limits.connect)
            await _connect(connection, limit)
        except BaseException:
            # Perhaps it is still being connected.
            self._connection = None
            raise
        self._loop = asyncio.get_running_loop()
        self._is_connected = True


async def _connect(connection: Any, within: float | None) -> None:
    # By a task: before Python 3.12, what redis-py does here may swallow a cancellation. And only
    # so does a connection of a Sentinel's pool ask where the server is.
    loop = asyncio.get_running_loop()
    connecting = loop.create_task(connection.connect(), name=CONNECTING)
    connecting.add_done_callback(take_note)
    try:
        await asyncio.wait({connecting}, timeout=within)
        if not connecting.done():
            raise redis_exceptions.TimeoutError("Timeout connecting to the server")
    except BaseException:
        connecting.cancel()
        connecting.add_done_callback(lambda _: _close(connection))
        raise
    if connecting.cancelled():
        raise redis_exceptions.ConnectionError("The task that was to connect has been cancelled")
    connecting.result()


def _write(connection: Any, in_bytes: Sequence[bytes]) -> None:
    # Not by the connection's own method, for the same reason. Whoever reads the reply waits for
    # what the socket did not take at once.
    if connection._writer is None:
        raise redis_exceptions.ConnectionError("The connection was closed")
    connection._writer.writelines(in_bytes)


def _was_written(connection: Any, in_bytes: Sequence[bytes]) -> bool:
    try:
        _write(connection, in_bytes)
    except (redis_exceptions.RedisError, OSError, RuntimeError):
        return False
    return True


def _close(connection: Any) -> None:
    transport = getattr(getattr(connection, "_writer", None), "transport", None)
    # The loop may be closed already.
    with suppress(redis_exceptions.RedisError, OSError, RuntimeError):
        if transport is not None:
            transport.abort()
        connection._close()


def take_note(task: asyncio.Task[Any]) -> None:
    """Have nobody complain about an error of ``task`` that nobody is left to hear of."""
    if not task.cancelled():
        task.exception()
