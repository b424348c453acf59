"""A watchdog without thread, clock or server: a test moves the time and gives the answers."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from redis import exceptions as redis_exceptions

from django_setnx_lock.core import LockHandle
from django_setnx_lock.core.connections.backends import run
from django_setnx_lock.core.connections.connection import Connection
from django_setnx_lock.core.connections.endpoints import Target
from django_setnx_lock.core.locks.grant import Grant
from django_setnx_lock.core.locks.options import LockOptions
from django_setnx_lock.core.protocol import scripts
from django_setnx_lock.core.protocol.keys import lock_keys
from django_setnx_lock.core.renewal.scheduler import RenewalRegistry, RenewalScheduler
from django_setnx_lock.core.renewal.watchdog import ThreadIO

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.core.helpers import FakeTime

Command = tuple[Any, ...]
# The fake time at the start of each test.
START = 1000.0


class _Pool:
    """What tells the clients of one server from those of another."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.connection_kwargs: dict[str, Any] = {}


class Wire:
    """All there is to a server that connections reach: what was sent to it, and how it answers.

    ``writes``: what was sent, a list of commands each. ``answer`` gives the reply to a
    command, or an exception that reading it raises; the next one ``takes`` so many seconds.
    While it is ``silent`` no reply comes; while it is ``down`` no connection can be had.
    """

    def __init__(self) -> None:
        self.writes: list[list[Command]] = []
        self.answer: Callable[[Command], Any] = granted
        self.takes = 0.0
        self.silent = False
        self.down = False
        self.connections = 0
        self.open = 0
        self.client = SimpleNamespace(connection_pool=_Pool(self))

    @property
    def sent(self) -> list[Command]:
        return [command for write in self.writes for command in write]


def at_once(work: Callable[[], object], name: str = "") -> Future[None]:
    """Do ``work`` here, in the place of a thread of its own."""
    done: Future[None] = Future()
    try:
        work()
    except Exception as error:  # noqa: BLE001 - as in a thread
        done.set_exception(error)
    else:
        done.set_result(None)
    return done


class _AtOnce(ThreadIO):
    """Connects in the thread that works, as the time is the test's."""

    def connect(self, connection: Connection) -> Future[None]:
        return at_once(connection.connect)


class IdleWatchdog(RenewalRegistry):
    """A watchdog without a thread, which works when it is told to."""

    def __init__(self, connection: Callable[..., Any] = Connection) -> None:
        super().__init__()
        self._scheduler = RenewalScheduler(self, _AtOnce(connection))

    def tick(self) -> float:
        """Do what is due. Gives when there is more to do: a time, ``inf`` for never."""
        return run(self._scheduler.run_once())

    def wake(self) -> None:
        """Do nothing: nobody sleeps."""

    def is_current(self) -> bool:
        return False

    def _attend(self, due: float) -> None:
        """Do nothing: the test sees to it."""


class FakeLine:
    """A connection to the wire that the client belongs to."""

    is_stale = False

    def __init__(self, client: Any, *, connect_timeout: float) -> None:
        self._wire: Wire = client.connection_pool.wire
        self._replies: deque[Any] = deque()
        self._is_open = False

    @property
    def is_connected(self) -> bool:
        return self._is_open

    def connect(self) -> None:
        if self._wire.down:
            raise redis_exceptions.ConnectionError("refused")
        if not self._is_open:
            self._is_open = True
            self._wire.connections += 1
            self._wire.open += 1

    def within(self, seconds: float) -> AbstractContextManager[None]:
        """Do nothing: the wire takes what it is told to take."""
        return nullcontext()

    def send(self, *commands: Sequence[Any]) -> None:
        self.connect()
        self._wire.writes.append([tuple(command) for command in commands])
        self._replies.extend(self._wire.answer(tuple(command)) for command in commands)

    def wait(self, seconds: float | None) -> bool:
        if self._wire.silent:
            time.sleep(seconds or 0.0)
            return False
        time.sleep(self._wire.takes)
        self._wire.takes = 0.0
        return True

    def read(self) -> Any:
        reply = self._replies.popleft()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def close(self) -> None:
        self._replies.clear()
        if self._is_open:
            self._is_open = False
            self._wire.open -= 1


def granted(command: Command) -> Any:
    """Give what was asked for; nobody is to be looked after."""
    asked = renewals([command])
    return [b"OK", asked[0][1], 0] if asked else [b"OK", None, 0]


def lost(command: Command) -> Any:
    return [b"LOST", b'{"by": "joe", "reason": "stuck"}']


def renewals(commands: Sequence[Command]) -> list[tuple[str, int]]:
    """Return the name and the milliseconds of each renewal among ``commands``."""
    found = []
    for command in commands:
        count = int(command[2])
        keys, args = command[3 : 3 + count], command[3 + count :]
        if command[1] in (scripts.RENEW.sha, scripts.RENEW.source):
            found.append((keys[0], int(args[1])))
    return found


def looks(commands: Sequence[Command]) -> list[tuple[str, str]]:
    """Return the name and the waiter of each look among ``commands``."""
    return [
        (command[3], command[-2]) for command in commands if str(command[-2]).startswith("waiter")
    ]


def target(client: Any, name: str = "lock:a") -> Target:
    return Target(client, lock_keys(name), name.removeprefix("lock:"), None)


def held_for(
    client: Any,
    now: float,
    name: str = "lock:a",
    *,
    timeout: float = 30,
    heartbeat_prefix: str | None = None,
    **options: Any,
) -> LockHandle:
    """Give a handle of a lock that was taken at ``now``, which is to be renewed."""
    return LockHandle(
        Grant(
            replace(target(client, name), heartbeat_prefix=heartbeat_prefix),
            token=f"token of {name}",
            fence=1,
            timeout=timeout,
            deadline=now + timeout,
            options=LockOptions(**{"renew": True, **options}),
        )
    )


def pass_time(dog: IdleWatchdog, fake_time: FakeTime, seconds: float) -> None:
    """Let the watchdog work for so long."""
    end = fake_time.now + seconds
    while fake_time.now <= end and (next_at := dog.tick()) <= end:
        fake_time.now = max(next_at, fake_time.now)
    fake_time.now = max(end, fake_time.now)
