"""``lock(key, ...)``: the core lock with the project's settings and connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from . import conf
from .conf import get_config
from .connection import get_client, masters, steady_client
from .core.inspection.inspector import Inspector
from .core.locks.layered import RedisLock, RWLock
from .core.locks.redlock import Redlock
from .core.locks.several import MultiLock
from .core.options import UNSET, Unset
from .core.protocol.keys import index_for, name_for
from .key_template import UNFILLED
from .options import LockOptions, lock_options
from .transactions import CommitLock, CommitRedlock

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .core.locks.layered import LockHandle
    from .core.locks.several import MultiLockHandle
    from .options import Options

Maker = Callable[..., RedisLock]
# After so many seconds a waiter looks whether it waits for itself, by way of others.
_DEADLOCK_TIMEOUT = 1.0
_MOST_PLANS = 256
_DEFAULTS = LockOptions()
_INSTEAD = {"shared": "rwlock(key).read()", "limit": "semaphore(key, limit)"}


@lru_cache(maxsize=1024)
def _name_of(prefix: str, key: str) -> str:
    name = name_for(prefix, key)
    if "<" in key and UNFILLED.search(key):
        raise ValueError(
            f"{key!r} is a template, not a key: fill it in with KeyTemplate({key!r}).format(...)"
        )
    return name


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
    all of them or none, whatever the order in which they are given (:doc:`kinds`).

    ``options``: ``timeout``, ``blocking_timeout``, ``renew``, ``max_hold``, ``min_hold``,
    ``reentrant``, ``until_commit``, ``replicas``, ``using``, ``label`` and ``note``, as
    :class:`LockOptions` has them, and so ``on_lost``.

    Opens no connection until the lock is taken. Raises ValueError or TypeError for a bad key or
    option, ImproperlyConfigured when the cache cannot hold locks. Taking it raises
    :class:`LockBusy` and :class:`LockUnavailable`.
    """
    chosen = _DEFAULTS
    if options:
        for name in _INSTEAD:
            if name not in options:
                continue
            raise TypeError(f"lock() has no option {name!r}: write {_INSTEAD[name]}")
        chosen = lock_options(options)
    if more:
        return make_lock((key, *more), chosen, on_lost=on_lost)
    return make_one(key, chosen, on_lost=on_lost)


def make_lock(
    keys: Sequence[str],
    options: LockOptions,
    *,
    user: str = "",
    on_lost: Callable[[Any], object] | None = None,
) -> RedisLock | MultiLock:
    """Return the lock of ``keys``, of one or several, with ``options``. Raises as :func:`lock`.

    ``user``: shown to operators. ``on_lost``: that of ``options``, where they have none.
    """
    if len(keys) == 1:
        return make_one(keys[0], options, user=user, on_lost=on_lost)
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(
                f"the positional arguments of lock() are keys, and {key!r} is none: name the "
                "others, as timeout="
            )
    if on_lost is None:
        on_lost = options.on_lost
    each = options if options.on_lost is None else replace(options, on_lost=None)
    make = partial(make_one, options=each, user=user)
    return MultiLock.of([make(key) for key in dict.fromkeys(keys)], on_lost)


class _Plan(NamedTuple):
    """What ``options`` and the settings say of a lock, whatever its key.

    ``client``: None where it is asked for each time. ``kind``: what makes the lock, which is given
    ``timeout`` and ``rest``.
    """

    options: LockOptions
    client: Any
    prefix: str
    kind: Maker
    timeout: float
    rest: dict[str, Any]


def make_one(
    key: str,
    options: LockOptions,
    *,
    user: str = "",
    wait_warning: float | Unset | None = UNSET,
    on_lost: Callable[[Any], object] | None = None,
) -> RedisLock:
    """Return the lock of one ``key`` as :func:`make_lock` does.

    ``wait_warning``: after how many seconds of waiting a warning in the log says who holds the lock
    (None: never; default: the setting ``WAIT_WARNING``).
    """
    # A plan refers to its options, so that no others have their id.
    plan = conf.known.plans.get((id(options), wait_warning)) or _plan(options, wait_warning)
    client = plan.client
    if client is None:
        using: Any = options.using
        client = masters(using) or get_client(using)
    try:
        name = _name_of(plan.prefix, key)
    except TypeError:
        # Why it is no key, though it may have no hash.
        name = name_for(plan.prefix, key)
    if on_lost is None:
        on_lost = options.on_lost
    return plan.kind(client, name, plan.timeout, key=key, user=user, on_lost=on_lost, **plan.rest)


def _plan(options: LockOptions, wait_warning: float | Unset | None) -> _Plan:
    here = conf.known
    using: Any = options.using
    config, limit = get_config(), options.limit
    prefix, protocol, warning = config["KEY_PREFIX"], config["PROTOCOL"], config["WAIT_WARNING"]
    several = masters(using)
    client = None if several is not None else steady_client(using)
    if several is not None and protocol == "hosted":
        # Those have one protocol.
        protocol = "setnx"

    def chosen(value: Any, setting: str) -> Any:
        return config[setting] if value is None else value

    patience = options.blocking_timeout
    reentrant = config["REENTRANT"] and limit is None
    until_commit = chosen(options.until_commit, "UNTIL_COMMIT")
    if several is None:
        kind: Maker = CommitLock if until_commit else RedisLock
    else:
        kind = CommitRedlock if until_commit else Redlock
    rest = {
        "blocking_timeout": config["BLOCKING_TIMEOUT"] if patience is UNSET else patience,
        "renew": chosen(options.renew, "RENEW"),
        "max_hold": options.max_hold,
        "min_hold": options.min_hold,
        # Such a server may be a cluster behind a proxy, where the index has another slot.
        "index": None if protocol == "hosted" else index_for(prefix),
        "label": options.label,
        "note": options.note,
        "reentrant": reentrant if options.reentrant is None else options.reentrant,
        "shared": options.shared,
        "limit": limit,
        "wait_warning": warning if wait_warning is UNSET else wait_warning,
        "deadlock_timeout": _DEADLOCK_TIMEOUT,
    }
    # What most locks are without is left out.
    if protocol != "setnx":
        rest["protocol"] = protocol
    if replicas := chosen(options.replicas, "REPLICAS"):
        rest["replicas"] = replicas
    plan = _Plan(options, client, prefix, kind, chosen(options.timeout, "TIMEOUT"), rest)
    # A callback is not to be kept alive.
    if options.on_lost is None:
        if len(here.plans) >= _MOST_PLANS:
            here.plans.clear()
        here.plans[id(options), wait_warning] = plan
    return plan


def inspector(using: str | None = None) -> Inspector:
    """Return an Inspector of the project's locks.

    ``using``: the cache alias (None: the setting ``CACHE``, of several the first). Raises
    ImproperlyConfigured when the cache cannot hold locks.
    """
    return Inspector(get_client(using), key_prefix(), protocol=get_config()["PROTOCOL"])


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
    readers, writers = (lock_options({**options, "shared": shared}) for shared in (True, False))
    return RWLock.made_by(
        lambda shared: make_one(key, readers if shared else writers, on_lost=on_lost)
    )


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
    return make_one(key, lock_options({**options, "limit": limit}), on_lost=on_lost)
