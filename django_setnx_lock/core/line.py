"""A connection of one's own to the server that a client speaks to."""

from __future__ import annotations

import copy
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar
from weakref import WeakMethod

from redis import exceptions as redis_exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from .cluster.shared import is_cluster

Command = Sequence[str | bytes]

_Result = TypeVar("_Result")
_FOREVER = 1e6
# How many commands go in one write. No more than two writes are unanswered at a time: with more, a
# proxy that reads nothing while it cannot write would wait for us, and we for it.
BATCH = 100
# How long connecting may take, and an answer, where the client sets no limit; and for how long a
# client that tries again may do so, if that is longer than its own limits. In seconds.
CONNECT_WITHIN = 5.0
# By how much an answer may be later than it should.
_A_LITTLE = 0.1
# How long sending may take that nobody is to wait for.
_AT_ONCE = 0.1
# How long a connection is kept open for an answer that nobody waits for, and how many are.
_KEPT_FOR, _KEPT_AT_MOST = 60.0, 100
# What another try would not help.
_REFUSALS = (redis_exceptions.AuthenticationError, redis_exceptions.AuthorizationError)
# What precedes a part of a command that is so long.
_HEADS = [f"${length}\r\n" for length in range(1024)]
# What redis-py 7 and later tell of a server's maintenance: it refers to the pool, which would
# live for as long as its lines then, and costs each connection a request of its own.
_OF_THE_POOL = frozenset(
    {
        "maint_notifications_config",
        "maint_notifications_pool_handler",
        "oss_cluster_maint_notifications_handler",
    }
)


class Line:
    """Speaks to the server of ``client`` on a connection that no pool lends to others.

    It has the address, credentials, TLS and Sentinel service of ``client``, and its time limits
    and retries too unless ``connect_timeout`` is given: that bounds connecting and sending, in
    seconds, nothing is sent twice, and :meth:`wait` is told how long. A limit that the client does
    not set is 5 seconds. For one thread at a time. After an error or an interruption with replies
    outstanding, :meth:`drop` it.

    Every method raises what redis-py raises.
    """

    def __init__(self, client: Any, *, connect_timeout: float | None = None) -> None:
        pool = client.connection_pool
        self._kind, self._options = pool.connection_class, options_for(client, connect_timeout)
        self._connection = self._made()
        self._is_connected = False
        self.limits = Limits(self._options, pool.connection_kwargs)
        # Whether :meth:`ask` may send a command more than once.
        self.repeats = connect_timeout is None
        # Connections on which copies of what was asked last have no answer yet.
        self._unanswered: list[Any] = []
        self._owed = 0
        # Whether the command asked last was sent, and whether there was a connection for it.
        self.has_sent = self.has_connected = False
        # Whether a command asked was sent more than once; set back by who wants to know.
        self.sent_again = False

    def _made(self) -> Any:
        return self._kind(**self._options)

    def ask(
        self, *command: str | bytes, then: Command | None = None, until: float | None = None
    ) -> Any:
        """The reply to ``command``, which is sent again as often as the client would.

        ``then`` is sent behind it in the same write; its reply is still to be read. ``until``:
        when to give up, by ``time.monotonic()``, if that is before the limits of the client.
        """
        commands = [command] if then is None else [command, then]
        in_bytes = self.pack(*commands)
        return self._try(lambda end: self._exchange(in_bytes, len(commands), end), until)

    def ask_all(self, commands: Sequence[Command]) -> list[Any]:
        """The replies to ``commands``, an error reply in the place of a reply.

        All are sent again as often as the client would. While answers come, they may take as long
        as they need.
        """
        return self._try(lambda end: self._exchange_all(commands, end), None)

    def _try(self, exchange: Callable[[float], _Result], until: float | None) -> _Result:
        give_up_at, failures = self.limits.end(until), 0
        self.has_sent = False
        while True:
            try:
                return exchange(give_up_at)
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
                self._connection = self._made()
                self._is_connected, self._owed = False, 0
            time.sleep(pause)

    def _exchange(self, in_bytes: bytes, expected: int, give_up_at: float) -> Any:
        self._begin(give_up_at)
        self.send_packed(in_bytes, expected)
        left = give_up_at - time.monotonic()
        # The socket has a limit of its own, and to wait by another takes longer.
        if left < self.limits.answer - _A_LITTLE and not self.wait(left):
            raise redis_exceptions.TimeoutError("Timeout reading from the server")
        reply = self.read()
        self._forget_unanswered()
        return reply

    def _exchange_all(self, commands: Sequence[Command], give_up_at: float) -> list[Any]:
        self._begin(give_up_at)
        replies: list[Any] = []
        sent = 0
        while len(replies) < len(commands):
            while sent < len(commands) and sent <= len(replies) + BATCH:
                batch = commands[sent : sent + BATCH]
                self.send_packed(self.pack(*batch), len(batch))
                sent += len(batch)
            try:
                replies.append(self.read())
            except redis_exceptions.ResponseError as error:
                replies.append(error)
        self._forget_unanswered()
        return replies

    def _begin(self, give_up_at: float) -> None:
        self.has_connected = False
        self.connect(max(give_up_at - time.monotonic(), 0.0))
        self.has_connected = True
        self.sent_again |= self.has_sent
        self.has_sent = True

    def _forget_unanswered(self) -> None:
        while self._unanswered:
            _disconnect(self._unanswered.pop())

    def connect(self, within: float | None = None) -> None:
        """Connect now, unless it is connected; in so many seconds (None: as its settings say).

        With ``within``, all of it is bounded, and by the limit of its settings, too.
        """
        # Only so does a connection of a Sentinel's pool ask where the server is.
        if within is None:
            self._connection.connect()
        elif not self._is_connected:
            connection, limit = self._connection, min(within, self.limits.connect)
            try:
                run_within(limit, connection.connect, lambda: _disconnect(connection))
            except BaseException:
                # Perhaps it is still being connected.
                self._connection = self._made()
                raise
        self._is_connected = True

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port that it was last connected to; None for a socket that has none."""
        host, port = (getattr(self._connection, name, None) for name in ("host", "port"))
        return None if host is None or port is None else (host, port)

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

    def send(self, *commands: Command, within: float | None = None) -> None:
        """Send ``commands`` in one write, connecting first if need be, as by :meth:`connect`."""
        self.connect(within)
        # In one write, or the server may begin with the first before it has heard of the rest.
        self.send_packed(self.pack(*commands), len(commands))

    def pack(self, *commands: Command) -> bytes:
        """``commands`` as they are sent, for :meth:`send_packed`."""
        in_bytes: list[bytes] = []
        for command in commands:
            in_bytes += packed(command) or self._connection.pack_command(*command)
        return b"".join(in_bytes)

    def send_packed(self, in_bytes: bytes, replies: int = 1) -> None:
        """Send what :meth:`pack` gave, on a line that was used before."""
        # Counted first: an interrupt may come in between.
        self._owed += replies
        self._connection.send_packed_command([in_bytes], check_health=False)

    def send_behind(self, commands: Sequence[Command]) -> bool:
        """Send ``commands`` behind what was asked and has no answer yet; whether that was done.

        The server carries them out after that, whenever it gets there. Nobody waits for an answer,
        and the line is not to be used again; it is to be kept open, see :class:`Unanswered`.
        """
        owing = [*self._unanswered, self._connection] if self._owed else self._unanswered
        in_bytes = self.pack(*commands)
        # To all of them.
        return sum(_send_at_once(connection, in_bytes) for connection in owing) > 0

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
        try:
            reply = self._read()
        except redis_exceptions.ResponseError:
            self._owed -= 1
            raise
        self._owed -= 1
        return reply

    def _read(self) -> Any:
        return self._connection.read_response(disconnect_on_error=False)

    def drop(self) -> None:
        """Close the connection; whatever is sent next makes a new one."""
        self._forget_unanswered()
        self._close()

    def _close(self) -> None:
        self._is_connected, self._owed = False, 0
        _disconnect(self._connection)


class Limits:
    """How long what is asked on a line may take, and how often it is tried.

    ``options`` are those of its connections, ``wishes`` those of the client, which is followed in
    how often and after which pauses it tries again. One that does not is made to, once, where its
    connection broke.
    """

    def __init__(self, options: Mapping[str, Any], wishes: Mapping[str, Any]) -> None:
        self.connect: float = options["socket_connect_timeout"]
        self.answer: float = options["socket_timeout"]
        self._longest: float = max(self.connect, self.answer, CONNECT_WITHIN)
        self._retry, self._told = wishes.get("retry"), tuple(wishes.get("retry_on_error") or ())
        if wishes.get("retry_on_timeout"):
            self._told += (redis_exceptions.TimeoutError,)
        self._backoff: Any = None

    def end(self, until: float | None) -> float:
        """When a call gives up that begins now, by ``time.monotonic()``."""
        end: float = time.monotonic() + self._longest
        return end if until is None else min(end, until)

    def pause_after(self, error: Exception, failures: int) -> float | None:
        """After how many seconds to try again after so many ``failures``; None: not at all."""
        if isinstance(error, _REFUSALS):
            return None
        retry = self._retry or Retry(NoBackoff(), 1 if self._told else 0)
        often: int = retry._retries
        if not often:
            is_broken = isinstance(error, redis_exceptions.ConnectionError)
            return 0.0 if is_broken and failures == 1 else None
        if not isinstance(error, (*retry._supported_errors, *self._told)) or 0 <= often < failures:
            return None
        if failures == 1:
            # Some remember how long the last pause was.
            self._backoff = copy.deepcopy(retry._backoff)
            self._backoff.reset()
        return max(float(self._backoff.compute(failures)), 0.0)


class _Line(Protocol):
    def drop(self) -> None: ...


class Unanswered:
    """Lines that nobody uses any more, and what was sent on them may not have been carried out.

    They are kept open for a while: some proxies forget what came from whom hangs up.
    """

    def __init__(self) -> None:
        self._lines: deque[tuple[float, _Line]] = deque()

    def keep(self, line: _Line) -> None:
        """Keep ``line``."""
        self._lines.append((time.monotonic() + _KEPT_FOR, line))
        self.expire()

    def expire(self) -> None:
        """Close those that were kept for long."""
        if not self._lines:
            return
        now = time.monotonic()
        # Another thread may take the last one meanwhile.
        with suppress(IndexError):
            while self._lines[0][0] < now or len(self._lines) > _KEPT_AT_MOST:
                self._lines.popleft()[1].drop()

    def close(self) -> None:
        """Close all of them."""
        with suppress(IndexError):
            while True:
                self._lines.popleft()[1].drop()


def run_within(
    seconds: float, run: Callable[[], object], undo: Callable[[], object] = lambda: None
) -> None:
    """Return when ``run`` has, which a thread of its own does; raise what it raises.

    Raises redis-py's TimeoutError after ``seconds``. So nothing that ``run`` waits for takes
    longer, not even the name resolution, which nothing else bounds. ``undo`` is called when
    ``run`` has failed, or is over when nobody waits for it any more.
    """
    failures: list[BaseException] = []
    is_over, deciding = threading.Event(), threading.Lock()
    is_left = False

    def go() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - raised below
            # Without the frames: connections in a circle are closed late.
            error.__cause__ = error.__context__ = None
            failures.append(error.with_traceback(None))
        with deciding:
            is_over.set()
            is_late = is_left
        if is_late:
            undo()

    try:
        try:
            threading.Thread(target=go, name="setnx-lock-connect", daemon=True).start()
        except RuntimeError:
            # As when the interpreter is about to end.
            go()
        if not is_over.wait(seconds):
            raise redis_exceptions.TimeoutError("Timeout connecting to the server")
    except BaseException:
        with deciding:
            is_left = True
            is_done = is_over.is_set()
        if is_done:
            undo()
        raise
    if failures:
        try:
            raise failures.pop()
        finally:
            undo()


def _send_at_once(connection: Any, in_bytes: bytes) -> bool:
    """Whether ``in_bytes`` could be sent on ``connection``, which is not made anew for it."""
    sock = getattr(connection, "_sock", None)
    if not isinstance(sock, socket.socket):
        # It is closed, or one to a server in memory, which needs no waiting.
        return False
    with suppress(redis_exceptions.RedisError, OSError):
        sock.settimeout(_AT_ONCE)
        connection.send_packed_command([in_bytes], check_health=False)
        return True
    return False


def _disconnect(connection: Any) -> None:
    with suppress(redis_exceptions.RedisError, OSError):
        connection.disconnect()


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
    answer = connect_timeout or options.get("socket_timeout") or CONNECT_WITHIN
    return options | {
        "socket_timeout": answer,
        "socket_connect_timeout": (
            connect_timeout or options.get("socket_connect_timeout") or answer
        ),
        # Whoever uses the line tries again, once for all of connecting, sending and reading.
        "health_check_interval": 0,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_timeout": False,
        "retry_on_error": [],
    }


def packed(command: Command) -> list[bytes] | None:
    """``command`` in the protocol of Redis, if it is short plain text: quicker than in general."""
    try:
        if not "".join(command).isascii():  # type: ignore[arg-type]  # bytes among them raise
            return None
        parts = [f"{_HEADS[len(part)]}{part}\r\n" for part in command]  # type: ignore[str-bytes-safe]  # as above
    except (TypeError, IndexError):
        return None
    return [f"*{len(parts)}\r\n{''.join(parts)}".encode("ascii")]
