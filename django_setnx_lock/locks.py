"""``lock(key, ...)``: the core lock with the project's settings and connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from .conf import get_config
from .connection import get_client, masters
from .core.inspection import Inspector
from .core.locks.handle import LockHandle
from .core.locks.lock import RedisLock, RWLock
from .core.locks.multi_handle import LossRelay, MultiLockHandle
from .core.locks.multi_lock import MultiLock
from .core.locks.options import UNSET, Unset
from .core.locks.redlock import Redlock
from .core.protocol.keys import heartbeat_prefix_for, index_for, name_for
from .options import LockOptions, lock_options
from .transactions import AT_COMMIT, waits_for_commit

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import Options

# After so many seconds a waiter looks whether it waits for itself, by way of others.
_DEADLOCK_TIMEOUT = 1.0


@overload
def lock(
    key: str, *, on_lost: Callable[[LockHandle], object] | None = None, **options: Unpack[Options]
) -> RedisLock: ...
@overload
def lock(
    key: str,
    another: str,
    /,
    *more: str,
    on_lost: Callable[[MultiLockHandle], object] | None = None,
    **options: Unpack[Options],
) -> MultiLock: ...
def lock(
    key: str,
    *more: str,
    on_lost: Callable[[Any], object] | None = None,
    **options: Unpack[Options],
) -> RedisLock | MultiLock:
    """Return the lock called ``key``: ``with lock("order:42") as held: ...``.

    With several keys, ``with lock("from", "to") as held: ...``, a :class:`MultiLock`, which takes
    all of them or none, whatever the order in which they are given (:doc:`many`).

    ``options``: ``timeout``, ``blocking_timeout``, ``renew``, ``max_hold``, ``min_hold``,
    ``reentrant``, ``until_commit``, ``replicas``, ``using``, ``label`` and ``note``, as
    :class:`LockOptions` has them, and so ``on_lost``.

    Opens no connection until the lock is taken. Raises ValueError or TypeError for a bad key or
    option, ImproperlyConfigured when the cache cannot hold locks. Taking it raises
    :class:`LockBusy` and :class:`LockUnavailable`.
    """
    for name, instead in (("shared", "rwlock(key).read()"), ("limit", "semaphore(key, limit)")):
        if name in options:
            raise TypeError(f"lock() has no option {name!r}: write {instead}")
    given = options if on_lost is None else {**options, "on_lost": on_lost}
    return make_lock((key, *more), lock_options(given))


def make_lock(
    keys: Sequence[str],
    options: LockOptions,
    *,
    user: str = "",
    wait_warning: float | Unset | None = UNSET,
) -> RedisLock | MultiLock:
    """Return the lock of ``keys``, of one or several, with ``options``. Raises as :func:`lock`.

    ``user``: shown to operators. ``wait_warning``: after how many seconds of waiting a warning in
    the log says who holds the lock (None: never; default: the setting ``WAIT_WARNING``).
    """
    if len(keys) == 1:
        return make_one(keys[0], options, user=user, wait_warning=wait_warning)
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(
                f"the positional arguments of lock() are keys, and {key!r} is none: name the "
                "others, as timeout="
            )
    relay = None if options.on_lost is None else LossRelay(options.on_lost)
    each = replace(options, on_lost=relay)
    locks = [
        make_one(key, each, user=user, wait_warning=wait_warning) for key in dict.fromkeys(keys)
    ]
    return MultiLock.of(locks, relay)


def make_one(
    key: str,
    options: LockOptions,
    *,
    user: str = "",
    wait_warning: float | Unset | None = UNSET,
) -> RedisLock:
    """Return the lock of one ``key`` as :func:`make_lock` does."""
    config, using = get_config(), options.using
    prefix, timeout, renew = config["KEY_PREFIX"], options.timeout, options.renew
    limit, reentrant, replicas = options.limit, options.reentrant, options.replicas
    patience, protocol = options.blocking_timeout, config["PROTOCOL"]
    several = masters(using)
    kind: Callable[..., RedisLock] = RedisLock
    if several is not None:
        # Nobody queues there, so nothing depends on what the servers let scripts touch.
        kind, protocol = Redlock, "setnx" if protocol == "hosted" else protocol
    return kind(
        get_client(using) if several is None else several,  # type: ignore[arg-type]  # one alias
        name_for(prefix, key),
        config["TIMEOUT"] if timeout is None else timeout,
        blocking_timeout=config["BLOCKING_TIMEOUT"] if patience is UNSET else patience,
        renew=config["RENEW"] if renew is None else renew,
        max_hold=options.max_hold,
        min_hold=options.min_hold,
        replicas=config["REPLICAS"] if replicas is None else replicas,
        on_lost=options.on_lost,
        key=key,
        # Such a server may be a cluster behind a proxy, where the index has another slot.
        index=None if protocol == "hosted" else index_for(prefix),
        label=options.label,
        user=user,
        note=options.note,
        reentrant=config["REENTRANT"] and limit is None if reentrant is None else reentrant,
        protocol=protocol,
        shared=options.shared,
        limit=limit,
        ending=AT_COMMIT if waits_for_commit(options.until_commit) else None,
        wait_warning=config["WAIT_WARNING"] if wait_warning is UNSET else wait_warning,
        deadlock_timeout=_DEADLOCK_TIMEOUT,
        heartbeat_prefix=heartbeat_prefix_for(prefix),
    )


def inspector(using: str | None = None) -> Inspector:
    """Return an Inspector of the project's locks.

    ``using``: the cache alias (None: the setting ``CACHE``, of several the first). Raises
    ImproperlyConfigured when the cache cannot hold locks.
    """
    protocol = get_config()["PROTOCOL"]
    has_index = protocol != "hosted"
    return Inspector(get_client(using), key_prefix(), use_index=has_index, protocol=protocol)


def key_prefix() -> str:
    """Return the prefix of all the project's names in Redis."""
    return str(get_config()["KEY_PREFIX"])


def rwlock(
    key: str, *, on_lost: Callable[[LockHandle], object] | None = None, **options: Unpack[Options]
) -> RWLock:
    """Return a lock of many readers or one writer: ``with rwlock("report").read(): ...``.

    ``options``: those of :func:`lock`, which is what ``.write()`` takes: a caller of
    ``lock(key)`` is a writer. Raises as :func:`lock`.
    """
    given = lock_options({**options, "on_lost": on_lost})
    return RWLock.made_by(lambda shared: make_one(key, replace(given, shared=shared)))


def semaphore(
    key: str,
    limit: int,
    *,
    on_lost: Callable[[LockHandle], object] | None = None,
    **options: Unpack[Options],
) -> RedisLock:
    """Return a lock with ``limit`` permits: ``with semaphore("exports", 3): ...``.

    First come, first served. Each permit has a lease of its own and is renewed as any lock is. All
    callers must give the same ``limit``, a number from 1 to 1,000,000. A holder that takes it
    again gets another permit. ``options``: those of :func:`lock`, which raises what this raises.
    """
    return make_one(key, lock_options({**options, "on_lost": on_lost, "limit": limit}))
