"""Servers in memory behind the caches of locks, and their time."""

from __future__ import annotations

import asyncio
import itertools
import math
import sys
import time
from collections.abc import Iterator
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
from ..core.locks.attempt import Attempt
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
_PAUSE = 0.001
# So many seconds of real time has a thread that was woken, to sleep again or to have the lock.
_AWAKE_FOR = 1.0
# The clocks stop that often: the answer of a server that is asked meanwhile is not to be too late.
_STEP = 2.0


class MemoryServer(fakeredis.FakeServer):
    """A server in memory that knows the scripts already, as one does that was used before."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(version=(7,))
        self.memory = memory
        for sha, source in inside.SCRIPTS.items():
            self.script_cache[sha.encode()] = source.encode()


class MemoryConnection(fakeredis.FakeRedisConnection):
    _server: MemoryServer

    def _connect(self) -> Any:
        socket: Any = super()._connect()
        # With the lock of the server held, as the clocks are when they go on.
        block = socket._blocking

        def blocking(seconds: float | None, *more: Any) -> Any:
            with self._server.memory.sleeping(seconds):
                return block(seconds, *more)

        socket._blocking = blocking
        return socket


connection.register(MemoryConnection, fakeredis.aioredis.FakeAsyncRedisConnection)


class Memory(ExitStack):
    """One server in memory for each server and database that CACHES names; a context manager.

    In place are all django-redis caches that locks can be kept in, and those that the setting
    ``CACHE`` names whatever their backend is, as tests often have another. ``ahead``: how many
    seconds the clocks of the servers and of locks are ahead.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0
        # Who waits in a thread, and when each that sleeps at a server will wake by itself.
        self._waiting: set[object] = set()
        self._aliases: list[str] = []
        self._servers: list[MemoryServer] = []
        self._urls: list[str] = []
        self._asleep: dict[object, float] = {}

    def __enter__(self) -> Memory:
        changed = self._caches()
        for alias in set(self._aliases).difference(redis_aliases()):
            # With new settings Django closes those of before, which one without a LOCATION refuses.
            with suppress(AttributeError):
                del caches[alias]
        self.enter_context(override_settings(CACHES=changed))
        self.callback(self._end)
        real = clock.now
        self.enter_context(patch.object(clock, "now", lambda: real() + self.ahead))
        # The module as fakeredis sees it, which may be ahead for what is around this.
        seen = [sys.modules[name] for name in list(sys.modules) if name.startswith("fakeredis.")]
        timed = [module for module in seen if hasattr(getattr(module, "time", None), "monotonic")]
        wall: Any = timed[0].time
        self._wall = SimpleNamespace(**{**vars(wall), "time": lambda: wall.time() + self.ahead})
        for module in timed:
            self.enter_context(patch.object(module, "time", self._wall))
        self.enter_context(patch.object(Attempt, "take", self._observed(Attempt.take)))
        self.enter_context(patch.object(Attempt, "_sleep", self._shortened(Attempt._sleep)))
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
        named = [alias for alias in aliases_in(get_config()["CACHE"]) if alias in settings.CACHES]
        changed = dict(settings.CACHES)
        servers: dict[object, tuple[str, MemoryServer]] = {}
        self._aliases = list(dict.fromkeys([*named, *redis_aliases()]))
        for alias in self._aliases:
            url = f"redis://memory-{next(_numbers)}.invalid:6379/0"
            place = database_of(alias) if alias in redis_aliases() else alias
            url, server = servers.setdefault(place, (url, MemoryServer(self)))
            options = dict(settings.CACHES[alias].get("OPTIONS") or {})
            at = {"connection_class": MemoryConnection, "server": server}
            changed[alias] = {
                **settings.CACHES[alias],
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": url,
                "OPTIONS": {
                    **{name: options[name] for name in _KEPT if name in options},
                    "CONNECTION_POOL_KWARGS": at,
                },
            }
        self._urls = [url for url, _ in servers.values()]
        self._servers = [server for _, server in servers.values()]
        return changed

    def left_held(self) -> list[LockInfo]:
        """Return the locks that somebody holds. Asks each server."""
        seen: dict[tuple[str, str], LockInfo] = {}
        for alias in self._aliases:
            client = get_client(alias)
            locks = Inspector(client, key_prefix()).all(everything=True)
            where = str(id(client.connection_pool))
            seen |= {(where, lock.name): lock for lock in locks if lock.state not in _NOT_LEFT}
        return list(seen.values())

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """Make nobody reach a server meanwhile."""
        self._connect(is_connected=False)
        try:
            yield
        finally:
            self._connect(is_connected=True)

    def _connect(self, *, is_connected: bool) -> None:
        with self._all_awake():
            for server in self._servers:
                server.connected = is_connected

    # Time

    def advance(self, seconds: float) -> None:
        """Go on by ``seconds``; what is due meanwhile is done meanwhile."""
        for _ in self._steps(seconds):
            inside.renew_now()

    async def aadvance(self, seconds: float) -> None:
        """Do the same for locks that were taken in this event loop, and in threads."""
        for _ in self._steps(seconds):
            await inside.arenew_now()
            await asyncio.sleep(_PAUSE)

    def _steps(self, seconds: float) -> Iterator[None]:
        if not seconds >= 0:
            raise ValueError(f"clocks only go forward, not by {seconds!r} s")
        end = self.ahead + seconds
        is_patient = self._all_sleep()
        yield
        while self.ahead < end:
            wakes_in = min(list(self._asleep.values()), default=math.inf) - self._wall.time()
            due_in = inside.next_due() - clock.now()
            step = min(max(min(wakes_in, due_in), _PAUSE), _STEP)
            with self._all_awake():
                self.ahead = min(end, self.ahead + step)
            yield
            # Time that goes on while somebody is about to ask would take him for dead.
            is_patient = is_patient and self._all_sleep()

    def _observed(self, take: Any) -> Any:
        """Return what takes a lock, noted where a thread may wait: it queues before it sleeps."""

        async def observed(attempt: Any, io: Any, limit: float | None) -> Any:
            if limit != 0 and not io.is_asyncio and not attempt.target.scripts.polls:
                self._waiting.add(attempt)
            try:
                return await take(attempt, io, limit)
            finally:
                self._waiting.discard(attempt)

        return observed

    def _shortened(self, sleep: Any) -> Any:
        """Return the sleeping of an attempt, where time passes at once if all it can do is pass."""

        async def shortened(attempt: Any, io: Any, seconds: float, *, is_first: bool) -> Any:
            if await inside.may_be_let_go(io, attempt):
                return await sleep(attempt, io, seconds, is_first=is_first)
            if io.is_asyncio:
                await self.aadvance(seconds)
                return None
            with self.sleeping(None):
                self.advance(seconds)
            return None

        return shortened

    @contextmanager
    def sleeping(self, seconds: float | None) -> Iterator[None]:
        """Note that the caller sleeps at a server for ``seconds`` (None: without end)."""
        sleeper = object()
        self._asleep[sleeper] = self._wall.time() + (seconds or math.inf)
        try:
            yield
        finally:
            del self._asleep[sleeper]

    def _all_sleep(self) -> bool:
        """Return whether all threads that wait sleep, soon; one that polls does not."""
        give_up_at = time.monotonic() + _AWAKE_FOR
        while any(server.connected for server in self._servers):
            ends = list(self._asleep.values())
            # Somebody who is to wake by now may not have done so.
            is_still = min(ends, default=math.inf) > self._wall.time()
            if is_still and len(ends) >= len(self._waiting):
                break
            if time.monotonic() > give_up_at:
                return False
            time.sleep(_PAUSE)
        return True

    @contextmanager
    def _all_awake(self) -> Iterator[None]:
        """Make all who sleep look at what the block has changed, while no server does anything."""
        with ExitStack() as locked:
            for server in self._servers:
                locked.enter_context(server.lock)
            yield
            for server in self._servers:
                for database in list(server.dbs.values()):
                    database.condition.notify_all()
