"""The connections to a server in memory, which tell what is sent and lose replies when told to."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis
from django.core.exceptions import ImproperlyConfigured

from ..core import scripts, watchdog
from ..core.aio import kinds, loops
from ..core.keys import lock_keys

try:
    import fakeredis
    import fakeredis.aioredis
    import lupa  # type: ignore[import-untyped]  # noqa: F401 - without it fakeredis has no Lua
except ImportError as error:  # pragma: no cover - seen by a process of its own
    raise ImproperlyConfigured(
        "django_setnx_lock.testing keeps locks in memory with fakeredis and its Lua: install "
        "them with pip install 'django-setnx-lock[testing]'"
    ) from error

_SCRIPTS = {one.sha: one for one in vars(scripts).values() if isinstance(one, scripts.Script)}
_QUEUE = lock_keys("any").waiters.removeprefix("{any}").encode()
_BY_SOURCE = {one.source: one for one in _SCRIPTS.values()}


@dataclass(frozen=True)
class Request:
    """What went to the server in one write: the commands, in words for people."""

    commands: tuple[str, ...]

    def __str__(self) -> str:
        return " + ".join(self.commands)


class Wire:
    """What goes to the servers of one test and comes back.

    ``prefix``: what the names of its locks begin with.
    """

    def __init__(self, prefix: str) -> None:
        self.requests: list[Request] = []
        self.replies_to_drop = 0
        # The time of the servers.
        self.now: Callable[[], float] = time.time
        self._prefix = prefix
        self._changing = threading.Lock()
        # When each who waits will wake by himself.
        self._asleep: dict[object, float] = {}

    def sent(self, packed: Iterable[Any]) -> list[bool]:
        """Take note of a write. Gives of each command whether it runs a script of locks."""
        commands = list(_commands(packed))
        told = [self._told(command) for command in commands]
        if any(told) and not _is_of_watchdog():
            self.requests.append(Request(tuple(filter(None, told))))
        return [_script(command) is not None for command in commands]

    def loses(self) -> bool:
        """Whether the reply that has just come is one to be lost."""
        with self._changing:
            if not self.replies_to_drop:
                return False
            self.replies_to_drop -= 1
            return True

    @contextmanager
    def sleeping(self, seconds: float | None) -> Iterator[None]:
        """Take note of who sleeps at a server for ``seconds`` (None: without end)."""
        sleeper = object()
        self._asleep[sleeper] = self.now() + (seconds or float("inf"))
        try:
            yield
        finally:
            del self._asleep[sleeper]

    def asleep(self) -> int | None:
        """How many wait; None while somebody who is to wake by now has not done so."""
        ends = list(self._asleep.values())
        return None if min(ends, default=float("inf")) <= self.now() else len(ends)

    def _told(self, command: list[str]) -> str:
        script = _script(command)
        if script is not None:
            # By the first key, which is the name of the lock or what it is listed in.
            first = command[3] if len(command) > 3 else ""
            return f"{script.name} {first}"
        if any(part.lstrip("{").startswith(self._prefix) for part in command[1:2]):
            return " ".join(command[:2])
        return ""


class MemoryServer(fakeredis.FakeServer):
    """A server in memory that knows the scripts already, as one does that was used before."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(version=(7,))
        self.wire = wire
        for one in _SCRIPTS.values():
            self.script_cache[one.sha.encode()] = one.source.encode()

    def wake_sleepers(self) -> None:
        """Have whoever waits look at the clock. The caller has the lock."""
        for database in list(self.dbs.values()):
            database.condition.notify_all()

    def waiting(self) -> int:
        """How many stand in the queues of locks."""
        with self.lock:
            found = [
                item.value
                for database in self.dbs.values()
                for name, item in list(database._dict.items())
                if name.endswith(_QUEUE) and isinstance(item.value, Sized)
            ]
            return sum(map(len, found))


class MemoryConnection(fakeredis.FakeRedisConnection):
    """A connection to a :class:`MemoryServer`."""

    _server: MemoryServer

    def __init__(self, *args: Any, **options: Any) -> None:
        self._expected: deque[bool] = deque()
        super().__init__(*args, **options)

    def _connect(self) -> Any:
        self._expected.clear()
        socket: Any = super()._connect()
        # With the lock of the server held, as the clocks are when they go on.
        block = socket._blocking

        def blocking(seconds: float | None, *more: Any) -> Any:
            with self._server.wire.sleeping(seconds):
                return block(seconds, *more)

        socket._blocking = blocking
        return socket

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        self.connect()
        packed = command if isinstance(command, (list, tuple)) else [command]
        self._expected += self._server.wire.sent(packed)
        super().send_packed_command(packed, check_health=check_health)  # type: ignore[no-untyped-call]  # redis-py leaves it untyped

    def read_response(self, *args: Any, **options: Any) -> Any:
        is_ours = bool(self._expected) and self._expected.popleft()
        reply = super().read_response(*args, **options)
        if is_ours and self._server.wire.loses():
            self.disconnect()  # type: ignore[no-untyped-call]  # the same
            raise redis.ConnectionError("Connection closed by server: the test dropped the reply")
        return reply


class _Writer(fakeredis.aioredis.FakeWriter):
    def __init__(self, connection: AsyncMemoryConnection, socket: Any) -> None:
        super().__init__(socket)
        self._connection = connection

    def writelines(self, data: Iterable[Any]) -> None:
        packed = list(data)
        self._connection.note(packed)
        super().writelines(packed)


class AsyncMemoryConnection(fakeredis.aioredis.FakeAsyncRedisConnection):
    """The twin of :class:`MemoryConnection`."""

    _server: MemoryServer

    def __init__(self, *args: Any, **options: Any) -> None:
        self._expected: deque[bool] = deque()
        super().__init__(*args, **options)

    async def _connect(self) -> None:
        self._expected.clear()
        await super()._connect()
        self._writer = _Writer(self, self._sock)

    def note(self, packed: list[Any]) -> None:
        """Take note of a write."""
        self._expected += self._server.wire.sent(packed)

    async def read_response(self, *args: Any, **options: Any) -> Any:
        is_ours = bool(self._expected) and self._expected.popleft()
        reply = await super().read_response(*args, **options)
        if is_ours and self._server.wire.loses():
            await self.disconnect()
            raise redis.ConnectionError("Connection closed by server: the test dropped the reply")
        return reply


kinds.register(MemoryConnection, AsyncMemoryConnection)


def _is_of_watchdog() -> bool:
    """Whether what renews locks, a thread or a task, is what runs."""
    if threading.current_thread() is watchdog.WATCHDOG._thread:
        return True
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task is loops.here().watchdog._task


def _script(command: list[str]) -> scripts.Script | None:
    if command[0] == "EVALSHA":
        return _SCRIPTS.get(command[1])
    return _BY_SOURCE.get(command[1]) if command[0] == "EVAL" else None


def _commands(packed: Iterable[Any]) -> Iterator[list[str]]:
    """The commands in what is written in the protocol of Redis."""
    left = b"".join(part if isinstance(part, bytes) else bytes(part) for part in packed)
    while left.startswith(b"*"):
        head, _, left = left.partition(b"\r\n")
        parts = []
        for _ in range(int(head[1:])):
            size, _, left = left.partition(b"\r\n")
            length = int(size[1:])
            parts.append(left[:length].decode(errors="replace"))
            left = left[length + 2 :]
        yield [parts[0].upper(), *parts[1:]]
