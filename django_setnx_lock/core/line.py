"""A connection of one's own to the server that a client speaks to."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakMethod

from redis import exceptions as redis_exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from .cluster.shared import is_cluster

Command = Sequence[str | bytes]

_FOREVER = 1e6
# What precedes a part of a command that is so long.
_HEADS = [f"${length}\r\n" for length in range(1024)]
# What redis-py 7 and later tell of a server's maintenance: it refers to the pool, which would
# live for as long as its lines then, and costs each connection a request of its own.
_OF_THE_POOL = frozenset({"maint_notifications_config", "maint_notifications_pool_handler"})


class Line:
    """Speaks to the server of ``client`` on a connection that no pool lends to others.

    It has the address, credentials, TLS and Sentinel service of ``client``, and its time limits
    and retries too unless ``connect_timeout`` is given: that bounds connecting and sending, in
    seconds, nothing is sent twice, and :meth:`wait` is told how long. For one thread at a time.
    After an error or an interruption with replies outstanding, :meth:`drop` it.

    Every method raises what redis-py raises.
    """

    def __init__(self, client: Any, *, connect_timeout: float | None = None) -> None:
        options = options_for(client, connect_timeout)
        self._connection = client.connection_pool.connection_class(**options)
        self._is_connected = False
        # Whether a command asked was sent more than once; set back by who wants to know.
        self.sent_again = False

    def _connect(self) -> None:
        # Only so does a connection of a Sentinel's pool ask where the server is.
        if not self._is_connected:
            self._connection.connect()
            self._is_connected = True

    def ask(self, *command: str | bytes, then: Command | None = None) -> Any:
        """The reply to ``command``, which is sent again as often as the client would.

        ``then`` is sent behind it in the same write; its reply is still to be read.
        """
        connection = self._connection
        in_bytes = packed(command) or connection.pack_command(*command)
        if then is not None:
            in_bytes = [b"".join([*in_bytes, *(packed(then) or connection.pack_command(*then))])]
        self._connect()
        try:
            connection.send_packed_command(in_bytes)
            return connection.read_response()
        except (redis_exceptions.ConnectionError, redis_exceptions.TimeoutError) as error:
            self._is_connected = False
            failure: Exception | None = error

        def again() -> Any:
            nonlocal failure
            if failure is not None:
                # The first try, above, counts.
                failed, failure = failure, None
                raise failed
            self.sent_again = True
            self._connect()
            connection.send_packed_command(in_bytes)
            return connection.read_response()

        return connection.retry.call_with_retry(again, lambda _: self.drop())

    def connect(self) -> None:
        """Connect now, unless it is connected."""
        self._connection.connect()
        self._is_connected = True

    @property
    def is_connected(self) -> bool:
        """Whether it was connected, so that sending does not connect."""
        return self._is_connected

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Have each thing sent or read in the block take so long at the most."""
        sock = getattr(self._connection, "_sock", None)
        if not isinstance(sock, socket.socket):
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
        """The number of its socket while it is connected by one; not so to a server in memory."""
        sock = getattr(self._connection, "_sock", None)
        # The fake's has a number, too, which is that of something else.
        return sock.fileno() if isinstance(sock, socket.socket) else None

    def send(self, *commands: Command) -> None:
        """Send ``commands`` in one write, connecting first if need be."""
        connection = self._connection
        connection.connect()
        # In one write, or the server may begin with the first before it has heard of the rest.
        connection.send_packed_command([self.pack(*commands)], check_health=False)

    def pack(self, *commands: Command) -> bytes:
        """``commands`` as they are sent, for :meth:`send_packed`."""
        in_bytes: list[bytes] = []
        for command in commands:
            in_bytes += packed(command) or self._connection.pack_command(*command)
        return b"".join(in_bytes)

    def send_packed(self, in_bytes: bytes) -> None:
        """Send what :meth:`pack` gave, on a line that was used before."""
        self._connection.send_packed_command([in_bytes], check_health=False)

    def wait(self, seconds: float | None) -> bool:
        """Whether a reply has come within ``seconds`` (None: without limit)."""
        try:
            limit = _FOREVER if seconds is None else max(seconds, 0)
            return bool(self._connection.can_read(limit))
        except redis_exceptions.TimeoutError:
            return False

    def read(self) -> Any:
        """One reply, which must have begun to come. An error reply leaves the line usable.

        So does a TimeoutError, which says that the rest has not come: it can be read later.
        """
        return self._connection.read_response(disconnect_on_error=False)

    def drop(self) -> None:
        """Close the connection; whatever is sent next makes a new one."""
        self._is_connected = False
        with suppress(redis_exceptions.RedisError, OSError):
            self._connection.disconnect()


class OnConnect:
    """What a cluster's client has each connection begin with: ``method``, a method of it.

    A line that is kept for the next must not keep the client.
    """

    def __init__(self, method: Any) -> None:
        self._method = WeakMethod(method)

    def __call__(self, connection: Any) -> None:
        method = self._method()
        if method is None:
            raise redis_exceptions.ConnectionError("the client of this connection is gone")
        method(connection)


def options_for(client: Any, connect_timeout: float | None) -> dict[str, Any]:
    """What a connection of a line is made with. See :class:`Line`."""
    options = {
        name: value
        for name, value in client.connection_pool.connection_kwargs.items()
        if name not in _OF_THE_POOL
    }
    connected = options.get("redis_connect_func")
    if is_cluster(getattr(connected, "__self__", None)):
        options["redis_connect_func"] = OnConnect(connected)
    if connect_timeout is not None:
        options |= {
            "socket_timeout": connect_timeout,
            "socket_connect_timeout": connect_timeout,
            "health_check_interval": 0,
            # Who waits on a line tries again in his own time.
            "retry": Retry(NoBackoff(), 0),
            "retry_on_timeout": False,
            "retry_on_error": [],
        }
    return options


def packed(command: Command) -> list[bytes] | None:
    """``command`` in the protocol of Redis, if it is short plain text: quicker than in general."""
    try:
        if not "".join(command).isascii():  # type: ignore[arg-type]  # bytes among them raise
            return None
        parts = [f"{_HEADS[len(part)]}{part}\r\n" for part in command]  # type: ignore[str-bytes-safe]  # as above
    except (TypeError, IndexError):
        return None
    return [f"*{len(parts)}\r\n{''.join(parts)}".encode("ascii")]
