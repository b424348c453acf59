"""Servers in memory behind the caches of locks, and the clocks of a test."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from django.conf import settings
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from .. import history
from ..conf import get_config
from ..connection import aliases_in, database_of, get_client, redis_aliases
from ..core import clock
from ..core.connections import connection
from ..core.inspection.inspector import Inspector
from ..core.inspection.lock_info import LockInfo, State
from ..locks import key_prefix
from . import inside

try:
    import fakeredis
    import fakeredis.aioredis
    import lupa  # type: ignore[import-untyped]  # noqa: F401 - without it fakeredis has no Lua
except ImportError as error:  # pragma: no cover - seen by a process of its own
    raise ImproperlyConfigured(
        "django_setnx_lock.testing keeps locks in memory with fakeredis and its Lua: install "
        "them with pip install 'django-setnx-lock[testing]'"
    ) from error

_numbers = itertools.count(1)
# The OPTIONS that a cache keeps: how values are written, not where to.
_KEPT = ("SERIALIZER", "COMPRESSOR", "PICKLE_VERSION", "IGNORE_EXCEPTIONS")
_NOT_LEFT = frozenset({State.FREE, State.KEPT, State.NO_LOCK})
_QUEUE = b":waiters"
# Renewals and whoever waits have that long of real time.
_WITHIN = 10.0
_PAUSE = 0.001
# And whoever has just been woken, to sleep again or to have the lock.
_AWAKE_FOR = 1.0
# A waiter asks again that often, by the clocks, so that nobody takes it for dead.
_STEP = 5.0


class MemoryServer(fakeredis.FakeServer):
    """A server in memory that knows the scripts already, as one does that was used before."""

    def __init__(self, servers: MemoryServers) -> None:
        super().__init__(version=(7,))
        self.servers = servers
        for sha, source in inside.SCRIPTS.items():
            self.script_cache[sha.encode()] = source.encode()

    def waiting(self) -> int:
        """Return how many stand in the queues of locks."""
        with self.lock:
            found = [
                item.value
                for database in self.dbs.values()
                for name, item in list(database._dict.items())
                if name.endswith(_QUEUE) and isinstance(item.value, Sized)
            ]
            return sum(map(len, found))


class MemoryConnection(fakeredis.FakeRedisConnection):
    _server: MemoryServer

    def _connect(self) -> Any:
        socket: Any = super()._connect()
        # With the lock of the server held, as the clocks are when they go on.
        block = socket._blocking

        def blocking(seconds: float | None, *more: Any) -> Any:
            with self._server.servers.sleeping(seconds):
                return block(seconds, *more)

        socket._blocking = blocking
        return socket


connection.register(MemoryConnection, fakeredis.aioredis.FakeAsyncRedisConnection)


class MemoryServers(ExitStack):
    """One server in memory for each server and database that CACHES names; a context manager.

    In place are all django-redis caches that locks can be kept in, and those that the setting
    ``CACHE`` names whatever their backend is, as tests often have another.
    """

    def __init__(self) -> None:
        super().__init__()
        # The time of the servers.
        self.now: Callable[[], float] = time.time
        self._aliases: list[str] = []
        self._servers: list[MemoryServer] = []
        self._urls: list[str] = []
        # When each who waits will wake by himself.
        self._asleep: dict[object, float] = {}

    def __enter__(self) -> MemoryServers:
        changed = self._caches()
        for alias in set(self._aliases).difference(redis_aliases()):
            # With new settings Django closes those of before, which one without a LOCATION refuses.
            with suppress(AttributeError):
                del caches[alias]
        self.enter_context(override_settings(CACHES=changed))
        self.callback(self._end)
        return self

    def _end(self) -> None:
        """Renew nothing that was taken on these servers, and give it to nobody, from now on."""
        inside.forget(set(map(id, self._servers)))
        # Or it would use a connection that is being closed.
        history.flush()
        pools = caches[self._aliases[0]].client.connection_factory._pools if self._aliases else {}  # type: ignore[attr-defined]  # BaseCache has none
        # Kept for the life of the process otherwise.
        for url in self._urls:
            pool = pools.pop(url, None)
            if pool is not None:
                pool.disconnect()

    def _caches(self) -> dict[str, Any]:
        named = [one for one in aliases_in(get_config()["CACHE"]) if one in settings.CACHES]
        changed = dict(settings.CACHES)
        servers: dict[object, tuple[str, MemoryServer]] = {}
        self._aliases = list(dict.fromkeys([*named, *redis_aliases()]))
        for alias in self._aliases:
            url = f"redis://memory-{next(_numbers)}.invalid:6379/0"
            place = database_of(alias) if alias in redis_aliases() else alias
            url, server = servers.setdefault(place, (url, MemoryServer(self)))
            options = dict(settings.CACHES[alias].get("OPTIONS") or {})
            changed[alias] = {
                **settings.CACHES[alias],
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": url,
                "OPTIONS": {
                    **{name: options[name] for name in _KEPT if name in options},
                    "CONNECTION_POOL_KWARGS": {
                        "connection_class": MemoryConnection,
                        "server": server,
                    },
                },
            }
        self._urls = [url for url, _ in servers.values()]
        self._servers = [server for _, server in servers.values()]
        return changed

    @contextmanager
    def sleeping(self, seconds: float | None) -> Iterator[None]:
        """Note that the caller sleeps at a server for ``seconds`` (None: without end)."""
        sleeper = object()
        self._asleep[sleeper] = self.now() + (seconds or float("inf"))
        try:
            yield
        finally:
            del self._asleep[sleeper]

    def all_sleep(self) -> bool:
        """Return whether all who wait for a lock sleep now; without a server nobody can."""
        reached = [server for server in self._servers if server.connected]
        ends = list(self._asleep.values())
        # Somebody who is to wake by now may not have done so.
        is_still = min(ends, default=float("inf")) > self.now()
        waiting = sum(server.waiting() for server in reached)
        return not reached or (is_still and len(ends) == waiting)

    @contextmanager
    def all_awake(self) -> Iterator[None]:
        """Make all who sleep look at what the block has changed, while no server does anything."""
        with ExitStack() as locked:
            for server in self._servers:
                locked.enter_context(server.lock)
            yield
            for server in self._servers:
                for database in list(server.dbs.values()):
                    database.condition.notify_all()

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """Make nobody reach a server meanwhile."""
        self._connect(is_connected=False)
        try:
            yield
        finally:
            self._connect(is_connected=True)

    def _connect(self, *, is_connected: bool) -> None:
        with self.all_awake():
            for server in self._servers:
                server.connected = is_connected

    def left_held(self) -> list[LockInfo]:
        """Return the locks that somebody holds. Asks each server."""
        seen: dict[tuple[str, str], LockInfo] = {}
        for alias in self._aliases:
            client = get_client(alias)
            locks = Inspector(client, key_prefix()).all(everything=True)
            where = str(id(client.connection_pool))
            seen |= {(where, one.name): one for one in locks if one.state not in _NOT_LEFT}
        return list(seen.values())


class Clocks(ExitStack):
    """The local clock of locks and the clock of ``servers``; a context manager."""

    def __init__(self, servers: MemoryServers) -> None:
        super().__init__()
        self.ahead = 0.0
        self.servers = servers

    def __enter__(self) -> Clocks:
        real, wall = clock.now, time.time
        self.enter_context(patch.object(clock, "now", lambda: real() + self.ahead))
        # The module as fakeredis sees it.
        shifted = SimpleNamespace(**{**vars(time), "time": lambda: wall() + self.ahead})
        self.enter_context(patch.object(self.servers, "now", shifted.time))
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "fakeredis" and getattr(module, "time", None) is time:
                self.enter_context(patch.object(module, "time", shifted))
        return self

    def advance(self, seconds: float) -> None:
        """Go on by ``seconds``; what is due meanwhile is done meanwhile."""
        renewals = inside.renewals()
        all_sleep = self._all_sleep()
        for _ in self._steps(seconds, renewals):
            for renewal in renewals:
                for _ in _until_nothing_is_due(renewal):
                    time.sleep(_PAUSE)
            # Time that goes on while somebody is about to ask would take him for dead.
            all_sleep = all_sleep and self._all_sleep()

    def _all_sleep(self) -> bool:
        """Return whether all who wait sleep, soon; one who polls does not."""
        give_up_at = time.monotonic() + _AWAKE_FOR
        while not self.servers.all_sleep():
            if time.monotonic() > give_up_at:
                return False
            time.sleep(_PAUSE)
        return True

    async def aadvance(self, seconds: float) -> None:
        """Do the same for locks that were taken in this event loop, and in threads."""
        renewals = inside.renewals(of_loop=True)
        for _ in self._steps(seconds, renewals):
            for renewal in renewals:
                for _ in _until_nothing_is_due(renewal):
                    await asyncio.sleep(_PAUSE)

    def _steps(self, seconds: float, renewals: list[Any]) -> Iterator[None]:
        if not seconds >= 0:
            raise ValueError(f"clocks only go forward, not by {seconds!r} s")
        end = self.ahead + seconds
        yield
        while self.ahead < end:
            due = min(one.next_due() for one in renewals) - clock.now()
            with self.servers.all_awake():
                self.ahead = min(end, self.ahead + min(max(due, _PAUSE), _STEP))
            yield


def _until_nothing_is_due(renewal: Any) -> Iterator[None]:
    """Wake ``renewal`` again and again until it has caught up; the caller waits in between."""
    give_up_at = time.monotonic() + _WITHIN
    while renewal.next_due() <= clock.now():
        if time.monotonic() > give_up_at:
            raise AssertionError(f"locks were not renewed within {_WITHIN:g} s")
        # It may have looked just before the clocks went on.
        renewal.wake()
        yield
