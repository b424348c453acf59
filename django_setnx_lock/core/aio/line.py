"""A connection of one's own to the server that a client speaks to, in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis import exceptions as redis_exceptions

from ..line import Command, packed
from .kinds import connection_for

_FOREVER = 1e6
# The name of the tasks that connect.
CONNECTING = "setnx-lock-connect"


class Line:
    """The twin of :class:`~django_setnx_lock.core.line.Line`; for one task at a time.

    After an error, a cancellation or an interruption with replies outstanding, :meth:`drop` it.
    """

    def __init__(self, client: Any, *, connect_timeout: float | None = None) -> None:
        self._client = client
        self._connect_timeout = connect_timeout
        self._connection: Any = connection_for(client, connect_timeout)
        self._is_connected = False
        # Whether a command asked was sent more than once; set back by who wants to know.
        self.sent_again = False

    async def ask(self, *command: str | bytes, then: Command | None = None) -> Any:
        """The reply to ``command``, which is sent again as often as the client would.

        ``then`` is sent behind it in the same write; its reply is still to be read.
        """
        connection = self._made()
        in_bytes = packed(command) or connection.pack_command(*command)
        if then is not None:
            in_bytes = [*in_bytes, *(packed(then) or connection.pack_command(*then))]
        try:
            return await self._exchange(in_bytes)
        except (redis_exceptions.ConnectionError, redis_exceptions.TimeoutError) as error:
            failure: Exception | None = error

        async def again() -> Any:
            nonlocal failure
            if failure is not None:
                # The first try, above, counts.
                failed, failure = failure, None
                raise failed
            self.sent_again = True
            return await self._exchange(in_bytes)

        async def drop(_: Exception) -> None:
            self.drop()

        return await connection.retry.call_with_retry(again, drop)

    @property
    def is_connected(self) -> bool:
        """Whether it was connected, so that sending does not connect."""
        return self._is_connected

    async def connect(self) -> None:
        """Connect now, unless it is connected."""
        await self._connected()

    async def send(self, *commands: Command) -> None:
        """Send ``commands`` in one write, connecting first if need be."""
        connection = await self._connected()
        _write(connection, connection.pack_commands(commands))

    async def read(self, seconds: float | None = None) -> Any:
        """One reply; None when none has come within ``seconds`` (None: without limit).

        An error reply leaves the line usable.
        """
        limit = _FOREVER if seconds is None else max(seconds, 0)
        return await self._connection.read_response(timeout=limit, disconnect_on_error=False)

    def drop(self) -> None:
        """Close the connection at once; whatever is sent next makes a new one."""
        connection, self._connection = self._connection, None
        self._is_connected = False
        if connection is not None:
            _close(connection)

    def _made(self) -> Any:
        if self._connection is None:
            self._connection = connection_for(self._client, self._connect_timeout)
        return self._connection

    async def _connected(self) -> Any:
        connection = self._made()
        if not self._is_connected:
            await _connect(connection)
            self._is_connected = True
        return connection

    async def _exchange(self, in_bytes: list[bytes]) -> Any:
        connection = await self._connected()
        _write(connection, in_bytes)
        limit = connection.socket_timeout
        if limit is None:
            return await connection.read_response()
        # No reply to what is asked here is a null.
        reply = await connection.read_response(timeout=limit)
        if reply is None:
            raise redis_exceptions.TimeoutError("Timeout reading from the server")
        return reply


async def _connect(connection: Any) -> None:
    # By a task: before Python 3.12, what redis-py does here may swallow a cancellation. And only
    # so does a connection of a Sentinel's pool ask where the server is.
    loop = asyncio.get_running_loop()
    connecting = loop.create_task(connection.connect(), name=CONNECTING)
    connecting.add_done_callback(take_note)
    try:
        await asyncio.wait({connecting})
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
