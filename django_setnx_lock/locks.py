"""``lock(key, ...)``: the core lock with the project's settings and connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, overload

from .conf import get_config
from .connection import get_client, masters
from .core.connections.execute import checked_replicas
from .core.inspection import Inspector
from .core.locks.handle import LockHandle
from .core.locks.lock import RedisLock, RWLock
from .core.locks.multi_handle import LossRelay, MultiLockHandle
from .core.locks.multi_lock import MultiLock
from .core.locks.options import UNSET, Unset
from .core.locks.redlock import Redlock
from .core.protocol.keys import heartbeat_prefix_for, index_for, name_for
from .transactions import AT_COMMIT, checked_release, waits_for_commit

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .transactions import Release


class Options(TypedDict, total=False):
    """What :func:`lock` takes besides the key and ``on_lost``."""

    timeout: float | None
    sleep: float
    blocking: bool
    blocking_timeout: float | Unset | None
    using: str | Sequence[str] | None
    thread_local: bool
    raise_on_release_error: bool
    renew: bool | None
    max_hold: float | None
    min_hold: float | None
    replicas: int | None
    replica_timeout: float
    label: str
    user: str
    note: str
    template: str
    reentrant: bool | None
    protocol: str | None
    unit: str | None
    expire: bool
    shared: bool
    limit: int | None
    polling: bool | None
    release: Release | None
    wait_warning: float | Unset | None


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
    **given: Unpack[Options],
) -> RedisLock | MultiLock:
    """Return the lock called ``key``: ``with lock("order:42") as held: ...``.

    With several keys, ``with lock("from", "to") as held: ...``, a :class:`MultiLock`, which takes
    all of them or none, whatever the order in which they are given (:doc:`many`).

    ``timeout``: the lease in seconds (None: the setting ``TIMEOUT``, 30).
    ``blocking``: whether taking it waits at all (True). ``blocking_timeout``: how many
    seconds at most (default: the setting ``BLOCKING_TIMEOUT``, 10; None: without limit).
    ``using``: the cache alias (default: the setting ``CACHE``); a tuple of them makes a
    :class:`Redlock` on several masters (:doc:`redlock`). ``renew``: whether the lease
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
    it is held alone). ``polling``: whether the server lets scripts touch none but the keys that
    they were told of (None: the setting ``POLLING``, False, for ``setnx`` on one server).
    ``release``: ``commit`` to hold it until the transactions have ended that are open where it is
    let go, ``exit`` not to (None: the setting ``RELEASE``, ``commit``); :doc:`transactions`.
    ``wait_warning``: after how many seconds of waiting a warning in the log says who holds the lock
    (default: the setting ``WAIT_WARNING``, 5; None: never). The rest is as in :class:`RedisLock`.

    Opens no connection until the lock is taken. Raises ValueError or TypeError for a bad key,
    time or protocol, ImproperlyConfigured when the cache cannot hold locks. Taking it raises
    :class:`LockBusy` and :class:`LockUnavailable`.
    """
    options: dict[str, Any] = {"on_lost": on_lost, **given}
    if more:
        for one in more:
            if not isinstance(one, str):
                raise TypeError(
                    f"the positional arguments of lock() are keys, and {one!r} is none: name the "
                    "others, as timeout="
                )
        relay = options["on_lost"] = None if on_lost is None else LossRelay(on_lost)
        return MultiLock.of([lock(one, **options) for one in dict.fromkeys((key, *more))], relay)
    config = get_config()
    prefix = key_prefix()
    using, release = options.pop("using", None), options.pop("release", None)
    several = masters(using)
    for name in ("timeout", "renew", "replicas", "protocol", "unit"):
        if options.get(name) is None:
            options[name] = config[name.upper()]
    if options.get("blocking_timeout", UNSET) is UNSET:
        options["blocking_timeout"] = config["BLOCKING_TIMEOUT"]
    if options.get("wait_warning", UNSET) is UNSET:
        options["wait_warning"] = config["WAIT_WARNING"]
    if options.get("reentrant") is None:
        options["reentrant"] = config["REENTRANT"] and options.get("limit") is None
    if options.get("polling") is None:
        can_poll = options["protocol"] == "setnx" and several is None
        options["polling"] = config["POLLING"] and can_poll
    make: Callable[..., RedisLock] = RedisLock if several is None else Redlock
    return make(
        several or get_client(using),
        name_for(prefix, key),
        **options,
        key=key,
        index=index_for(prefix) if config["INDEX"] else None,
        deadlock_timeout=config["DEADLOCK_TIMEOUT"],
        ending=AT_COMMIT if waits_for_commit(release) else None,
        heartbeat_prefix=heartbeat_prefix_for(prefix),
    )


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ValueError or TypeError as :func:`lock` will for ``options``, at decoration."""
    checked_replicas(options.get("replicas"))
    checked_release(options.get("release"))
    given: dict[str, Any] = {
        name: value
        for name, value in options.items()
        if name not in {"using", "replicas", "release"} and value not in (None, UNSET)
    }
    RedisLock(None, "lock:a", **given)


def inspector(using: str | None = None) -> Inspector:
    """Return an Inspector of the project's locks.

    ``using``: the cache alias (None: the setting ``CACHE``, of several the first). Raises
    ImproperlyConfigured when the cache cannot hold locks.
    """
    config = get_config()
    return Inspector(
        get_client(using),
        key_prefix(),
        use_index=config["INDEX"],
        unit=config["UNIT"] if config["PROTOCOL"] == "timestamp" else "",
        polling=config["POLLING"],
    )


def key_prefix() -> str:
    """Return the prefix of all the project's names in Redis."""
    return str(get_config()["KEY_PREFIX"])


def rwlock(key: str, **options: Any) -> RWLock:
    """Return a lock of many readers or one writer: ``with rwlock("report").read(): ...``.

    ``options``: those of :func:`lock`, which is what ``.write()`` takes: a caller of
    ``lock(key)`` is a writer. Raises as :func:`lock`.
    """
    return RWLock.made_by(partial(lock, key, **options))


def semaphore(key: str, limit: int, **options: Any) -> RedisLock:
    """Return a lock with ``limit`` permits: ``with semaphore("exports", 3): ...``.

    First come, first served. Each permit has a lease of its own and is renewed as any lock is. All
    callers must give the same ``limit``, a number from 1 to 1,000,000. A holder that takes it
    again gets another permit. ``options``: those of :func:`lock`, which raises what this raises.
    """
    return lock(key, limit=limit, **options)
