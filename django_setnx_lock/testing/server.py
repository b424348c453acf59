"""A server in memory behind the caches that locks are kept in, for the time of one test."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from django.conf import settings
from django.core.cache import caches
from django.test import override_settings

from ..conf import get_config
from ..connection import aliases_in, database_of, get_client, redis_aliases
from ..core import sharing, watchdog
from ..core.inspection import Inspector, LockInfo, State
from ..locks import key_prefix
from .wire import MemoryConnection, MemoryServer, Wire

_numbers = itertools.count(1)
# What a cache keeps of its OPTIONS: how values are written, not where to.
_KEPT = ("SERIALIZER", "COMPRESSOR", "PICKLE_VERSION", "IGNORE_EXCEPTIONS")
_NOT_LEFT = frozenset({State.FREE, State.OVER, State.KEPT, State.NO_LOCK})


class MemoryServers:
    """One server in memory for each server and database that CACHES names; a context manager.

    In place are all django-redis caches that locks can be kept in, and those that the setting
    ``CACHE`` names whatever their backend is, as tests often have another.
    """

    def __init__(self) -> None:
        self.wire = Wire(key_prefix())
        self.aliases: list[str] = []
        self.servers: list[MemoryServer] = []
        self._urls: list[str] = []
        self._open = ExitStack()

    def __enter__(self) -> MemoryServers:
        self._open.enter_context(override_settings(CACHES=self._caches()))
        return self

    def __exit__(self, *error: object) -> None:
        self._forget_handles()
        pools = caches[self.aliases[0]].client.connection_factory._pools if self.aliases else {}  # type: ignore[attr-defined]  # BaseCache has none
        # Kept for the life of the process otherwise.
        for url in self._urls:
            pool = pools.pop(url, None)
            if pool is not None:
                pool.disconnect()
        self._open.close()

    def _caches(self) -> dict[str, Any]:
        named = [one for one in aliases_in(get_config()["CACHE"]) if one in settings.CACHES]
        changed = dict(settings.CACHES)
        servers: dict[object, tuple[str, MemoryServer]] = {}
        self.aliases = list(dict.fromkeys([*named, *redis_aliases()]))
        for alias in self.aliases:
            url = f"redis://memory-{next(_numbers)}.invalid:6379/0"
            place = database_of(alias) if alias in redis_aliases() else alias
            url, server = servers.setdefault(place, (url, MemoryServer(self.wire)))
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
        self.servers = [server for _, server in servers.values()]
        return changed

    def all_sleep(self) -> bool:
        """Whether all who wait for a lock sleep now. Where no server is reached nobody can."""
        reached = [server for server in self.servers if server.connected]
        return not reached or self.wire.asleep() == sum(server.waiting() for server in reached)

    @contextmanager
    def all_awake(self) -> Iterator[None]:
        """Have all who sleep look at what the block has changed, while no server does anything."""
        with ExitStack() as locked:
            for server in self.servers:
                locked.enter_context(server.lock)
            yield
            for server in self.servers:
                server.wake_sleepers()

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """Have nobody reach a server meanwhile."""
        self._connect(is_connected=False)
        try:
            yield
        finally:
            self._connect(is_connected=True)

    def _connect(self, *, is_connected: bool) -> None:
        with self.all_awake():
            for server in self.servers:
                server.connected = is_connected

    def left_held(self) -> list[LockInfo]:
        """The locks that somebody holds. Asks each server."""
        seen: dict[tuple[str, str], LockInfo] = {}
        for alias in self.aliases:
            client = get_client(alias)
            page = Inspector(client, key_prefix()).page(limit=1000, everything=True)
            where = str(id(client.connection_pool))
            seen |= {(where, one.name): one for one in page.locks if one.state not in _NOT_LEFT}
        return list(seen.values())

    def _forget_handles(self) -> None:
        """Have nothing that was taken on these servers renewed, or had again, from now on."""
        for held in self.handles(watchdog.WATCHDOG._patrol.living()):
            sharing.close(held)
            held.end_renewal()

    def handles(self, among: Iterable[Any]) -> list[Any]:
        """Those of ``among`` that were taken on these servers."""
        mine = set(map(id, self.servers))
        return [
            one
            for one in among
            if id(one.client.connection_pool.connection_kwargs.get("server")) in mine
        ]
