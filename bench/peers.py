"""One small adapter for each way to take a lock.

The libraries are imported by name when they are asked for: they may be missing, and few have types.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, ClassVar

import redis
import redis.asyncio

from bench.address import POOL_SECONDS, POOL_SIZE, url

if TYPE_CHECKING:
    from collections.abc import Callable

# Longer than any part of a run: no peer gives up waiting.
PATIENCE = 600
# What a large pool has: more than thousands of waiters that have a connection each.
LARGE = 10_000


class Peer(ABC):
    """A library, as one process uses it. ``lock()`` gives what stands behind ``with``.

    ``small``: the process has a pool of two connections, for which its threads wait. ``large``: its
    pool is larger than redis-py's own, for callers by the thousand.
    """

    title: ClassVar[str]
    package: ClassVar[str]
    has_lease: ClassVar[bool] = True
    renews: ClassVar[bool] = False  # by itself, in the background
    extends: ClassVar[bool] = True  # when told to
    # Beside redis-py's own defaults, where the library cannot work with those.
    client_options: ClassVar[dict[str, Any]] = {}

    def __init__(self, *, small: bool = False, large: bool = False) -> None:
        if small:
            options = {
                **self.client_options,
                "max_connections": POOL_SIZE,
                "timeout": POOL_SECONDS,
            }
            pool: Any = redis.BlockingConnectionPool.from_url(url(), **options)
            self.client = redis.Redis(connection_pool=pool)
        else:
            options = {"max_connections": LARGE} if large else {}
            self.client = redis.Redis.from_url(url(), **{**self.client_options, **options})

    @abstractmethod
    def lock(self, name: str, lease: float) -> AbstractContextManager[Any]:
        """Return a new lock that waits as long as it takes; ``lease`` in seconds."""

    def lock_of_task(
        self, name: str, lease: float, *, refused: Callable[[], None]
    ) -> AbstractAsyncContextManager[Any]:
        """Return the same for ``async with``, where the library has such a thing.

        A library that keeps no queue() calls ``refused`` when a caller was refused for the first
        time.
        """
        raise NotImplementedError(f"{self.title} has no lock for tasks")

    def attempt(self, name: str, lease: float) -> bool:
        """Try to take the lock without waiting, and return whether that worked."""
        lock: Any = self.lock(name, lease)
        return bool(lock.acquire(blocking=False))

    def key(self, name: str) -> str:
        """Return what the lock ``name`` is called in Redis."""
        return name

    def queue(self, name: str) -> str | None:
        """Return the sorted set in Redis that has a member for each waiter, if there is one."""
        return None

    def renew(self, held: Any) -> None:
        """Start the lease anew of what ``with`` gave."""
        held.reacquire()

    def token(self, held: Any) -> str | None:
        """Return the value by which the server knows this turn, if it can be had."""
        return None


class Floor(Peer):
    title = "floor: two bare round trips"
    package = "redis"
    extends = False
    script = "return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1])"

    def __init__(self, *, small: bool = False, large: bool = False) -> None:
        super().__init__(small=small, large=large)
        self.sha = self.client.script_load(self.script)

    def lock(self, name: str, lease: float) -> BareLock:
        return BareLock(self.client, self.sha, name, int(lease * 1000))


class BareLock(AbstractContextManager[None]):
    """SET NX PX, then compare-and-delete by EVALSHA; no waiting, no checks."""

    def __init__(self, client: redis.Redis, sha: Any, name: str, lease_ms: int) -> None:
        self.client, self.sha, self.name, self.lease_ms = client, sha, name, lease_ms
        self.token = secrets.token_hex(16)

    def __enter__(self) -> None:
        self.client.set(self.name, self.token, nx=True, px=self.lease_ms)

    def __exit__(self, *raised: object) -> None:
        self.client.evalsha(self.sha, 1, self.name, self.token)


class RefusedLock(redis.asyncio.lock.Lock):
    """redis-py's lock for tasks, which says when it was refused for the first time."""

    refused: Callable[[], None] | None = None

    async def do_acquire(self, token: str | bytes) -> bool:
        had = await super().do_acquire(token)
        if not had and self.refused is not None:
            self.refused()
            self.refused = None
        return had


class RedisPy(Peer):
    title = "redis-py"
    package = "redis"

    def lock_of_task(
        self, name: str, lease: float, *, refused: Callable[[], None]
    ) -> AbstractAsyncContextManager[Any]:
        lock: RefusedLock = self.client_of_tasks.lock(name, timeout=lease, lock_class=RefusedLock)
        lock.refused = refused
        return lock

    @cached_property
    def client_of_tasks(self) -> Any:
        return redis.asyncio.Redis.from_url(url(), max_connections=LARGE)

    def lock(self, name: str, lease: float) -> AbstractContextManager[Any]:
        lock: AbstractContextManager[Any] = self.client.lock(name, timeout=lease)
        return lock

    def token(self, held: Any) -> str | None:
        return str(held.local.token.decode())


class DjangoRedis(RedisPy):
    title = "django-redis cache.lock"
    package = "django-redis"

    def __init__(self, *, small: bool = False, large: bool = False) -> None:
        self.cache: Any = import_module("django.core.cache").caches["small" if small else "default"]

    def lock(self, name: str, lease: float) -> AbstractContextManager[Any]:
        lock: AbstractContextManager[Any] = self.cache.lock(name, timeout=lease)
        return lock

    def key(self, name: str) -> str:
        return str(self.cache.make_key(name))


class PythonRedisLock(Peer):
    title = "python-redis-lock"
    package = "python-redis-lock"
    # It waits by BLPOP for as long as its lease, which redis-py 8 cuts off after 5 seconds; and a
    # thread and connection for each renewed lock are more than the 100 that its pools then have.
    client_options: ClassVar[dict[str, Any]] = {"socket_timeout": 60, "max_connections": 10_000}

    def lock(self, name: str, lease: float) -> AbstractContextManager[Any]:
        library: Any = import_module("redis_lock")
        lock: AbstractContextManager[Any] = library.Lock(
            self.client, name, expire=int(lease), auto_renewal=self.renews
        )
        return lock

    def key(self, name: str) -> str:
        return f"lock:{name}"

    def renew(self, held: Any) -> None:
        held.extend()

    def token(self, held: Any) -> str | None:
        return str(held.id)


class PythonRedisLockRenewing(PythonRedisLock):
    title = "python-redis-lock, auto_renewal"
    renews = True


class Sherlock(Peer):
    title = "sherlock"
    package = "sherlock"

    def lock(self, name: str, lease: float) -> AbstractContextManager[Any]:
        library: Any = import_module("sherlock")
        lock: AbstractContextManager[Any] = library.RedisLock(
            name, client=self.client, expire=int(lease), timeout=PATIENCE
        )
        return lock

    def renew(self, held: Any) -> None:
        if not held.renew():
            raise RuntimeError("not renewed")


class Pottery(Peer):
    title = "pottery Redlock"
    package = "pottery"

    def lock_of_task(
        self, name: str, lease: float, *, refused: Callable[[], None]
    ) -> AbstractAsyncContextManager[Any]:
        library: Any = import_module("pottery")
        lock: AbstractAsyncContextManager[Any] = library.AIORedlock(
            key=name,
            masters={self.client_of_tasks},
            auto_release_time=lease,
            num_extensions=1_000_000,
        )
        return lock

    @cached_property
    def client_of_tasks(self) -> Any:
        return redis.asyncio.Redis.from_url(url())

    def lock(self, name: str, lease: float) -> AbstractContextManager[Any]:
        library: Any = import_module("pottery")
        lock: AbstractContextManager[Any] = library.Redlock(
            key=name, masters={self.client}, auto_release_time=lease, num_extensions=1_000_000
        )
        return lock

    def key(self, name: str) -> str:
        return f"redlock:{name}"

    def renew(self, held: Any) -> None:
        held.extend()


class Portalocker(Peer):
    title = "portalocker RedisLock"
    package = "portalocker"
    # Fifty waiters need more than the 100 connections that redis-py 8's pools have.
    client_options: ClassVar[dict[str, Any]] = {"max_connections": 10_000}
    has_lease = False
    extends = False

    def lock(self, name: str, lease: float) -> AbstractContextManager[Any]:
        library: Any = import_module("portalocker")
        lock: AbstractContextManager[Any] = library.RedisLock(
            name, connection=self.client, timeout=PATIENCE, interrupt_on_lost=False
        )
        return lock


class Plain(Peer):
    title = "django-setnx-lock, plain"
    package = "django-setnx-lock"

    def lock(self, name: str, lease: float) -> AbstractContextManager[Any]:
        library: Any = import_module("django_setnx_lock.core")
        lock: AbstractContextManager[Any] = library.RedisLock(self.client, name, lease)
        return lock

    def lock_of_task(
        self, name: str, lease: float, *, refused: Callable[[], None]
    ) -> AbstractAsyncContextManager[Any]:
        lock: Any = self.lock(name, lease)
        either_way: AbstractAsyncContextManager[Any] = lock
        return either_way

    def queue(self, name: str) -> str:
        return f"{{{self.key(name)}}}:waiters"

    def token(self, held: Any) -> str | None:
        return str(held.token)


class Full(Plain):
    title = "django-setnx-lock, all on"
    renews = True

    def __init__(self, *, small: bool = False, large: bool = False) -> None:
        self.using = "small" if small else "default"

    def lock(self, name: str, lease: float) -> AbstractContextManager[Any]:
        library: Any = import_module("django_setnx_lock")
        lock: AbstractContextManager[Any] = library.lock(
            name, timeout=lease, blocking_timeout=PATIENCE, using=self.using
        )
        return lock

    def key(self, name: str) -> str:
        return f"lock:{name}"


class Nothing(Peer):
    """The control: whoever comes is let in, so the counting must find overlaps."""

    title = "no lock (control)"
    package = "redis"
    has_lease = False
    extends = False

    def lock(self, name: str, lease: float) -> AbstractContextManager[Any]:
        return nullcontext()

    def lock_of_task(
        self, name: str, lease: float, *, refused: Callable[[], None]
    ) -> AbstractAsyncContextManager[Any]:
        return nullcontext()

    def attempt(self, name: str, lease: float) -> bool:
        return True


PEERS: dict[str, type[Peer]] = {
    "floor": Floor,
    "redis-py": RedisPy,
    "django-redis": DjangoRedis,
    "python-redis-lock": PythonRedisLock,
    "python-redis-lock-renewing": PythonRedisLockRenewing,
    "sherlock": Sherlock,
    "pottery": Pottery,
    "portalocker": Portalocker,
    "plain": Plain,
    "full": Full,
    "nothing": Nothing,
}
OURS = ("plain", "full")
BASE = "redis-py"
# What can be waited for.
LOCKS = tuple(name for name in PEERS if name not in ("floor", "nothing"))


def version_of(name: str) -> str | None:
    """Return the version of the library behind a peer, or None when it is not installed."""
    try:
        return version(PEERS[name].package)
    except PackageNotFoundError:
        return None
