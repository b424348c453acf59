"""The options of a lock and the arguments of its methods: decided, and checked, once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from inspect import iscoroutinefunction
from typing import Any, Final, NamedTuple

from .errors import LockUnsupported
from .protocol.kinds import PREFIXES, PROTOCOLS, scripts_of
from .protocol.requests import PLAIN, Scripts

DEFAULT_TIMEOUT = 30.0
_LONGEST = 1e9
_MOST_PERMITS = 1_000_000
# Words of the scripts that a token must not begin with.
_RESERVED = ("kept:", "readers:", "permits:", "read:", "permit:")


class Unset:
    """The type of :data:`UNSET`."""

    def __repr__(self) -> str:
        return "UNSET"


#: The value of a parameter that was not given, where None has a meaning of its own.
UNSET: Final = Unset()


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
    timeout = DEFAULT_TIMEOUT if timeout is None else timeout
    lease_ms = milliseconds(timeout, "timeout")
    max_hold = seconds_or_none(max_hold, "max_hold")
    min_hold = seconds_or_none(min_hold, "min_hold")
    if max_hold is not None:
        lease_ms = min(lease_ms, int(max_hold * 1000))
        if min_hold is not None and min_hold > max_hold:
            text = f"min_hold, {min_hold:g}, must not be more than max_hold, {max_hold:g}"
            raise ValueError(text)
    waiting_time(sleep, "sleep")
    seconds_or_none(wait_warning, "wait_warning")
    seconds_or_none(deadlock_timeout, "deadlock_timeout")
    prefix = _prefix_of(shared, limit)
    if prefix and min_hold is not None:
        raise LockUnsupported("min_hold is for a lock that is held alone")
    if limit is not None and reentrant:
        raise LockUnsupported("limit and reentrant do not go together: who has a permit has one")
    lease = lease_ms / 1000
    return Options(
        prefix=prefix,
        is_shared=bool(prefix),
        timeout=float(timeout),
        lease=lease,
        lease_ms=str(lease_ms),
        blocking_timeout=waiting_time(blocking_timeout),
        renew=renew,
        max_hold=max_hold,
        min_hold_ms=int((min_hold or 0) * 1000),
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
    if protocol != "setnx" and (options.is_shared or options.min_hold_ms):
        what = "shared and limit are" if options.is_shared else "min_hold is"
        text = f"{what} not to be had with protocol={protocol!r}"
        raise LockUnsupported(text, key=target.key)
    options = options._replace(prefix=PREFIXES.get(protocol, options.prefix))
    return target._replace(options=options, scripts=scripts_of(protocol, expire=expire))


def checked_callback(on_lost: Any) -> Callable[..., object] | None:
    """Return ``on_lost`` as given. Raises TypeError for what cannot be called, or is awaited."""
    if on_lost is not None and (not callable(on_lost) or iscoroutinefunction(on_lost)):
        raise TypeError(f"on_lost is a callable (held), and not async; not {on_lost!r}")
    return on_lost  # type: ignore[no-any-return]  # it can be called


def _seconds(value: object, what: str, least: float, or_none: str = "") -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number and least <= value <= _LONGEST):  # type: ignore[operator]  # it is a number
        span = f"from {least:g} to {_LONGEST:g}"
        raise ValueError(f"{what} is {or_none}a number of seconds {span}, not {value!r}")
    return float(value)  # type: ignore[arg-type]  # it is a number


def milliseconds(seconds: object, what: str) -> int:
    """``seconds`` in whole milliseconds.

    Raises ValueError unless it is a number from 0.001 to 1e9 (some 31 years).
    """
    return int(_seconds(seconds, what, 0.001) * 1000)


def seconds_or_none(seconds: object, what: str) -> float | None:
    """``seconds`` as given. Raises ValueError unless it is None or a number from 0.001 to 1e9."""
    return None if seconds is None else _seconds(seconds, what, 0.001, "None or ")


def waiting_time(seconds: object, what: str = "blocking_timeout") -> float | None:
    """``seconds`` as given. Raises ValueError unless it is None or a number from 0 to 1e9."""
    return None if seconds is None else _seconds(seconds, what, 0, "None or ")


def checked_replicas(replicas: object, what: str = "replicas") -> int:
    """``replicas`` as a number; 0 for None. Raises ValueError unless it is None or an int >= 0."""
    if replicas is not None and (type(replicas) is not int or replicas < 0):
        raise ValueError(f"{what} is None or a number of replicas, 0 or more, not {replicas!r}")
    return replicas or 0


def checked_token(token: object) -> str:
    """Return ``token``, a str or bytes, as text.

    Raises TypeError when it is neither; ValueError when it is empty, is no UTF-8, has white space,
    or begins with a word that the scripts know.
    """
    if not isinstance(token, (str, bytes)):
        raise TypeError(f"a token is a str or bytes, not {type(token).__name__}")
    # Without the token itself: it is a secret.
    try:
        text = token.decode() if isinstance(token, bytes) else str.__str__(token)
        text.encode()
    except UnicodeError:
        raise ValueError("a token must be UTF-8: for raw bytes give token.hex()") from None
    if not text or text.startswith(_RESERVED):
        raise ValueError(f"a token must not be empty, nor begin with {' or '.join(_RESERVED)}")
    if text.split() != [text]:
        raise ValueError("a token must have no white space: the scripts part tokens by it")
    return text
