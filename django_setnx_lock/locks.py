"""``lock(key, ...)``: the core lock with the project's settings and connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, cast, overload

from . import async_safety  # noqa: F401 - it has calls that block refused in event loops
from .conf import get_config
from .connection import get_client, masters
from .core.held import Held
from .core.inspection import Inspector
from .core.keys import index_for, name_for
from .core.lock import RedisLock
from .core.many.held import LossRelay, MultiHeld
from .core.many.lock import MultiLock
from .core.redlock import Redlock
from .core.replicas import DEFAULT_TIMEOUT
from .core.unset import UNSET, Unset
from .transactions import AT_COMMIT, waits_for_commit

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


@overload
def lock(
    key: str, *, on_lost: Callable[[Held], object] | None = None, **options: Unpack[Options]
) -> RedisLock: ...
@overload
def lock(
    key: str,
    another: str,
    /,
    *more: str,
    on_lost: Callable[[MultiHeld], object] | None = None,
    **options: Unpack[Options],
) -> MultiLock: ...
def lock(
    key: str,
    *more: str,
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
    on_lost: Callable[[Any], object] | None = None,
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
    polling: bool | None = None,
    release: Release | None = None,
) -> RedisLock | MultiLock:
    """The lock called ``key``: ``with lock("order:42") as held: ...``.

    With several keys, ``with lock("from", "to") as held: ...``, a :class:`MultiLock`, which takes
    all of them or none (docs/many.md); :func:`lock_all` does for any number of keys.

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
    it is held alone). ``polling``: whether the server lets scripts touch none but the keys that
    they were told of (None: the setting ``POLLING``, False, for ``setnx`` on one server).
    ``release``: ``commit`` to hold it until the transactions have ended that are open where it is
    let go, ``exit`` not to (None: the setting ``RELEASE``, ``commit``); docs/transactions.md. The
    rest is as in :class:`RedisLock`.

    Opens no connection until the lock is taken. Raises ValueError or TypeError for a bad key,
    time or protocol, ImproperlyConfigured when the cache cannot hold locks. Taking it raises
    :class:`LockBusy` and :class:`LockUnavailable`.
    """
    if more:
        # All parameters, and nothing else yet.
        options = dict(locals())
        for one in more:
            if not isinstance(one, str):
                raise TypeError(
                    f"the positional arguments of lock() are keys, and {one!r} is none: name the "
                    "others, as timeout="
                )
        return lock_all((options.pop("key"), *options.pop("more")), **options)
    config = get_config()
    prefix = key_prefix()
    wait: Any = config["BLOCKING_TIMEOUT"] if blocking_timeout is UNSET else blocking_timeout
    several = masters(using)
    kind = config["PROTOCOL"] if protocol is None else protocol
    if polling is None:
        polling = config["POLLING"] if kind == "setnx" and several is None else False
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
        protocol=kind,
        unit=config["UNIT"] if unit is None else unit,
        expire=expire,
        polling=polling,
        shared=shared,
        limit=limit,
        ending=AT_COMMIT if waits_for_commit(release) else None,
    )


def lock_all(
    keys: Iterable[str],
    *,
    on_lost: Callable[[MultiHeld], object] | None = None,
    **options: Unpack[Options],
) -> MultiLock:
    """The lock over all of ``keys``: ``with lock_all(["from", "to"]) as held: ...``.

    They are taken together, all or none, whatever the order in which they are given; one given
    twice is taken once. ``on_lost``: called once with the handle of all (None). ``options``: those
    of :func:`lock`, the same for all keys; ``blocking_timeout`` bounds the taking of all of them.

    Raises ValueError for no key at all, TypeError for ``keys`` that are one str, else as
    :func:`lock`.
    """
    if isinstance(keys, str):
        raise TypeError(f"keys is a list of keys, not {keys!r}: write [{keys!r}]")
    relay = None if on_lost is None else LossRelay(on_lost)
    locks = [lock(key, on_lost=relay, **options) for key in dict.fromkeys(keys)]
    return MultiLock.of(locks, relay)


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
        polling=config["POLLING"],
    )


def key_prefix() -> str:
    """What the names of all the project's locks begin with."""
    return str(get_config()["KEY_PREFIX"])
