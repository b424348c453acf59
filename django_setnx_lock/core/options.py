"""The options of a lock: decided, and checked, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from .errors import LockUnsupported
from .protocol.kinds import PREFIXES, PROTOCOLS, scripts_of
from .protocol.requests import PLAIN, Scripts
from .values import DEFAULT_TIMEOUT, least_hold, milliseconds, waiting_time

_MOST_PERMITS = 1_000_000


class Options(NamedTuple):
    """The options of a lock that no server is needed for. See :class:`.RedisLock`.

    ``prefix``: what its tokens begin with. ``is_shared``: whether others with that may be held at
    the same time. ``lease``: the seconds that are asked for when the lock is taken, and
    ``lease_ms`` as text. ``about``: what else the holder record says.
    """

    prefix: str
    is_shared: bool
    timeout: float
    lease: float
    lease_ms: str
    blocking_timeout: float | None
    renew: bool
    max_hold: float | None
    min_hold_ms: int
    reentrant: bool
    wait_warning: float | None
    deadlock_timeout: float | None
    about: tuple[Any, ...]


class Target(NamedTuple):
    """Which lock: the client to ask, the keys in Redis, and what the caller calls it.

    ``is_watched``: whether the thread that renews is to see to it. ``handle``: the class of what is
    taken. ``scripts``: what is sent. ``confirm``: called with backend and grants, raises LockError
    where these are to be given up.
    """

    client: Any
    key: str
    keys: tuple[str, ...]
    options: Options
    on_lost: Callable[..., object] | None
    is_watched: bool
    handle: Callable[..., Any]
    scripts: Scripts = PLAIN
    confirm: Callable[..., Awaitable[None]] | None = None


# Most locks of a program have the same options. Typed: True is not 1 here.
@lru_cache(maxsize=256, typed=True)
def options_of(
    timeout: float | None = None,
    blocking_timeout: float | None = None,
    sleep: float | None = None,
    renew: bool = False,
    max_hold: float | None = None,
    min_hold: float | None = None,
    reentrant: bool = False,
    shared: bool = False,
    limit: int | None = None,
    wait_warning: float | None = None,
    deadlock_timeout: float | None = None,
    label: str = "",
    user: str = "",
    note: str = "",
    says_alive: bool = False,
) -> Options:
    """Return the options of these values. Raises ValueError, TypeError and LockUnsupported."""
    for name, value in (("renew", renew), ("reentrant", reentrant), ("shared", shared)):
        if type(value) is not bool:
            raise TypeError(f"{name} is True or False, not {value!r}")
    lease_ms = milliseconds(DEFAULT_TIMEOUT if timeout is None else timeout, "timeout")
    longest = lease_ms if max_hold is None else milliseconds(max_hold, "max_hold")
    waiting_time(sleep, "sleep")
    if wait_warning is not None:
        milliseconds(wait_warning, "wait_warning")
    if deadlock_timeout is not None:
        milliseconds(deadlock_timeout, "deadlock_timeout")
    prefix = _prefix_of(shared, limit)
    if prefix and min_hold is not None:
        raise LockUnsupported("min_hold is for a lock that is held alone")
    if limit is not None and reentrant:
        raise LockUnsupported("limit and reentrant do not go together: who has a permit has one")
    lease = min(lease_ms, longest) / 1000
    return Options(
        prefix=prefix,
        is_shared=bool(prefix),
        timeout=float(DEFAULT_TIMEOUT if timeout is None else timeout),
        lease=lease,
        lease_ms=str(min(lease_ms, longest)),
        blocking_timeout=waiting_time(blocking_timeout),
        renew=renew,
        max_hold=max_hold,
        min_hold_ms=least_hold(min_hold, max_hold),
        reentrant=reentrant,
        wait_warning=wait_warning,
        deadlock_timeout=deadlock_timeout,
        about=(label, user, note, lease, renew, max_hold or 0.0, says_alive),
    )


def _prefix_of(shared: bool, limit: int | None) -> str:
    if limit is None:
        return "read:" if shared else ""
    if shared:
        raise LockUnsupported("shared and limit do not go together: give one of them")
    if type(limit) is not int or not 1 <= limit <= _MOST_PERMITS:
        raise ValueError(f"limit is a number from 1 to {_MOST_PERMITS:,}, not {limit!r}")
    return f"permit:{limit}:"


def with_protocol(target: Target, protocol: object, expire: object) -> Target:
    """Return ``target`` as it is with that ``protocol``, and ``expire``.

    Raises ValueError for a protocol that does not exist, TypeError for ``expire`` that is no bool,
    and LockUnsupported for what such a lock cannot have.
    """
    if not isinstance(protocol, str) or protocol not in PROTOCOLS:
        raise ValueError(f"protocol is one of {', '.join(map(repr, PROTOCOLS))}, not {protocol!r}")
    if type(expire) is not bool:
        raise TypeError(f"expire is True or False, not {expire!r}")
    options = target.options
    for name, is_given in (("shared", options.is_shared), ("min_hold", options.min_hold_ms)):
        if is_given and protocol != "setnx":
            raise LockUnsupported(
                f"{'shared and limit are' if name == 'shared' else 'min_hold is'} not to be had "
                f"with protocol={protocol!r}",
                key=target.key,
            )
    options = options._replace(prefix=PREFIXES.get(protocol, options.prefix))
    return target._replace(options=options, scripts=scripts_of(protocol, expire=expire))


def checked_callback(on_lost: Any) -> Callable[..., object] | None:
    """Return ``on_lost`` as given. Raises TypeError for what cannot be called, or is awaited."""
    if on_lost is not None and (not callable(on_lost) or iscoroutinefunction(on_lost)):
        raise TypeError(f"on_lost is a callable (held), and not async; not {on_lost!r}")
    return on_lost  # type: ignore[no-any-return]  # it can be called
