"""``lock(key, ...)``: the core lock with the project's settings and connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from . import async_safety  # noqa: F401 - it has calls that block refused in event loops
from .conf import get_config
from .connection import get_client, masters
from .core.held import Held
from .core.inspection import Inspector
from .core.keys import index_for, name_for
from .core.lock import RedisLock
from .core.redlock import Redlock
from .core.replicas import DEFAULT_TIMEOUT
from .core.unset import UNSET, Unset
from .transactions import AT_COMMIT, waits_for_commit

if TYPE_CHECKING:
    from .transactions import Release


def lock(
    key: str,
    *,
    timeout: float | None = None,
    sleep: float = 0.1,
    blocking: bool = True,
    blocking_timeout: float | Unset | None = UNSET,
    using: str | Sequence[str] | None = None,
    thread_local: bool = True,
    raise_on_release_error: bool = True,
    renew: bool | None = None,
    max_hold: float | None = None,
    min_hold: float | None = None,
    replicas: int | None = None,
    replica_timeout: float = DEFAULT_TIMEOUT,
    on_lost: Callable[[Held], object] | None = None,
    label: str = "",
    user: str = "",
    note: str = "",
    template: str = "",
    reentrant: bool | None = None,
    protocol: str | None = None,
    unit: str | None = None,
    expire: bool = True,
    shared: bool = False,
    limit: int | None = None,
    release: Release | None = None,
) -> RedisLock:
    """The lock called ``key``: ``with lock("order:42") as held: ...``.

    ``timeout``: the lease in seconds (None: the setting ``TIMEOUT``, 30).
    ``blocking``: whether taking it waits at all (True). ``blocking_timeout``: how many
    seconds at most (default: the setting ``BLOCKING_TIMEOUT``, 10; None: without limit).
    ``using``: the cache alias (default: the setting ``CACHE``); a tuple of them makes a
    :class:`Redlock` on several masters (docs/redlock.md). ``renew``: whether the lease
    is renewed while the lock is held (None: the setting ``RENEW``, True). ``max_hold``: for
    how many seconds at most (None: without limit). ``min_hold``: for how many seconds from the
    grant on nobody else gets it, however soon it is let go (None: none). ``replicas``: how
    many replicas have to acknowledge it before it counts as taken (None: the setting ``REPLICAS``,
    0), within ``replica_timeout`` seconds (1). ``label``, ``user`` and
    ``note`` are shown to operators beside host and process; ``template`` (as ``order:<pk>``) is
    sent to the receivers of signals. ``reentrant``: whether the thread or asyncio task that holds
    it gets it again (None: the setting ``REENTRANT``, True). ``protocol``: ``setnx`` or
    ``timestamp`` (None: the setting ``PROTOCOL``, ``setnx``). ``unit``: of the time that stands
    there with ``timestamp``, ``s`` or ``ms`` (None: the setting ``UNIT``, ``ms``). ``shared``:
    whether others that are shared may be held at the same time, as by :func:`rwlock` (False).
    ``limit``: how many with a limit may be, as by :func:`semaphore`, which are not reentrant (None:
    it is held alone). ``release``: ``commit`` to hold it until the transactions have ended that
    are open where it is let go, ``exit`` not to (None: the setting ``RELEASE``, ``commit``);
    docs/transactions.md. The rest is as in :class:`RedisLock`.

    Opens no connection until the lock is taken. Raises ValueError or TypeError for a bad key,
    time or protocol, ImproperlyConfigured when the cache cannot hold locks. Taking it raises
    :class:`LockBusy` and :class:`LockUnavailable`.
    """
    config = get_config()
    prefix = key_prefix()
    wait: Any = config["BLOCKING_TIMEOUT"] if blocking_timeout is UNSET else blocking_timeout
    several = masters(using)
    make: Callable[..., RedisLock] = RedisLock if several is None else Redlock
    return make(
        several or get_client(cast("str | None", using)),
        name_for(prefix, key),
        config["TIMEOUT"] if timeout is None else timeout,
        sleep,
        blocking=blocking,
        blocking_timeout=wait,
        thread_local=thread_local,
        raise_on_release_error=raise_on_release_error,
        renew=config["RENEW"] if renew is None else renew,
        max_hold=max_hold,
        min_hold=min_hold,
        replicas=config["REPLICAS"] if replicas is None else replicas,
        replica_timeout=replica_timeout,
        on_lost=on_lost,
        key=key,
        index=index_for(prefix) if config["INDEX"] else None,
        label=label,
        user=user,
        note=note,
        template=template,
        reentrant=(config["REENTRANT"] and limit is None) if reentrant is None else reentrant,
        protocol=config["PROTOCOL"] if protocol is None else protocol,
        unit=config["UNIT"] if unit is None else unit,
        expire=expire,
        shared=shared,
        limit=limit,
        ending=AT_COMMIT if waits_for_commit(release) else None,
    )


def inspector(using: str | None = None) -> Inspector:
    """Looks at the project's locks in the cache ``using`` (None: the setting ``CACHE``).

    Of several caches in the setting it is the first. Raises ImproperlyConfigured when the cache
    cannot hold locks.
    """
    config = get_config()
    return Inspector(
        get_client(using),
        key_prefix(),
        use_index=config["INDEX"],
        unit=config["UNIT"] if config["PROTOCOL"] == "timestamp" else "",
    )


def key_prefix() -> str:
    """What the names of all the project's locks begin with."""
    return str(get_config()["KEY_PREFIX"])
