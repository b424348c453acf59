"""What to send for each operation and how to read the reply. Pure: no I/O, no clock."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

from redis.exceptions import ResponseError

from . import scripts
from .errors import LockLost
from .holder import Holder
from .keys import LockKeys

DEFAULT_TIMEOUT = 30.0
LONGEST = 1e9
# For how long a lock is left to a waiter; the scripts know it as CLAIM.
CLAIM_MS = 1000


class Request(NamedTuple):
    """One run of a script.

    Numbers go as text: hiredis 3.5 crashes when a signal handler raises while it packs ints.
    """

    script: scripts.Script
    keys: tuple[str, ...]
    args: tuple[str | bytes, ...]

    @property
    def arguments(self) -> tuple[str | bytes, ...]:
        """What EVAL and EVALSHA take after the script."""
        return (str(len(self.keys)), *self.keys, *self.args)

    @property
    def by_sha(self) -> tuple[str | bytes, ...]:
        """The command for a server that knows the script."""
        return ("EVALSHA", self.script.sha, *self.arguments)

    @property
    def in_full(self) -> tuple[str | bytes, ...]:
        """The command for any server."""
        return ("EVAL", self.script.source, *self.arguments)


@dataclass(frozen=True, slots=True)
class Granted:
    fence: int
    # Somebody else to whom something was left by the way.
    head: str | None = None


@dataclass(frozen=True, slots=True)
class Busy:
    remaining: float | None
    holder: Holder | None
    # Whether somebody has it who will not tell the waiters when he lets go.
    foreign: bool = False
    # Whether it is, or may be, on its way to the next waiter.
    handed_on: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    pass


Answer: TypeAlias = Granted | Busy | Gone


def milliseconds(seconds: object, what: str) -> int:
    """``seconds`` in whole milliseconds.

    Raises ValueError unless it is a number from 0.001 to 1e9 (some 31 years).
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise ValueError(f"{what} is a number of seconds, not {seconds!r}")
    if not 0.001 <= seconds <= LONGEST:
        raise ValueError(
            f"{what} must be at least 0.001 and finite, and at most {LONGEST:g} seconds, "
            f"not {seconds!r}"
        )
    return int(seconds * 1000)


def least_hold(min_hold: object, max_hold: float | None = None) -> int:
    """``min_hold``, seconds or None, in whole milliseconds; 0 for None.

    Raises ValueError as :func:`milliseconds`, and when it is more than ``max_hold``.
    """
    if min_hold is None:
        return 0
    least_ms = milliseconds(min_hold, "min_hold")
    if max_hold is not None and least_ms > milliseconds(max_hold, "max_hold"):
        raise ValueError(f"min_hold, {min_hold!r}, must not be more than max_hold, {max_hold!r}")
    return least_ms


def waiting_time(seconds: object, what: str = "blocking_timeout") -> float | None:
    """``seconds`` as given. Raises ValueError unless it is None or a number from 0 to 1e9."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise ValueError(f"{what} is a number of seconds or None, not {seconds!r}")
    if not 0 <= seconds <= LONGEST:
        raise ValueError(f"{what} must be a finite number >= 0 or None, not {seconds!r}")
    return float(seconds)


def acquire(
    keys: LockKeys, index: str | None, token: str, lease_ms: int, record: str, wait_ms: int
) -> Request:
    return Request(
        scripts.ACQUIRE,
        _keys(keys, keys.gone(token), keys.meta, index),
        (token, str(lease_ms), f" {len(token.encode())} {token} {record}", str(wait_ms)),
    )


def read_acquire(reply: Sequence[Any]) -> Answer:
    match text(reply[0]):
        case "OK":
            return Granted(int(reply[1]), text(reply[2]) if len(reply) > 2 else None)
        case "BUSY":
            record = text(reply[3]) if len(reply) > 3 else None
            how = text(reply[2])
            return Busy(
                seconds_left(reply[1]),
                Holder.from_json(record),
                foreign=how == "foreign",
                handed_on=how in ("baton", "group"),
            )
        case "GONE":
            return Gone()
        case _:
            _unknown(reply)


def acquire_all(requests: Sequence[Request]) -> Request:
    """Ask for several locks at once, by what :func:`acquire` gave for each, in that order."""
    keys: list[str] = []
    args: list[str | bytes] = []
    for request in requests:
        keys += request.keys
        args += (str(len(request.keys)), *request.args)
    return Request(scripts.ACQUIRE_ALL, tuple(keys), tuple(args))


@dataclass(frozen=True, slots=True)
class Left:
    """Granted and given up again, as another one was not to be had."""

    # Whom it was handed to.
    head: str | None


def read_acquire_all(reply: Sequence[Any]) -> list[Answer | Left | ResponseError]:
    """What became of each lock, as far as it was asked for; only the last can be an error."""
    return [_read_one(one) for one in reply[1:]]


def _read_one(reply: Sequence[Any]) -> Answer | Left | ResponseError:
    match text(reply[0]):
        case "LEFT":
            return Left(text(reply[1]))
        case "ERROR":
            return ResponseError(text(reply[1]))
        case _:
            return read_acquire(reply)


class Ahead(NamedTuple):
    """What a waiter sends before it is woken, and at once after what that took.

    ``take`` takes the lock, for the claim time, only if it was left to its token; ``whole`` asks
    for the whole lease.
    """

    take: Request
    whole: Request


def ahead(keys: LockKeys, index: str | None, token: str, lease_ms: int, record: str) -> Ahead:
    request = acquire(keys, index, token, CLAIM_MS, record, 0)
    take = request._replace(args=(*request.args, str(lease_ms)))
    return Ahead(take, renew(keys, index, token, lease_ms, "least"))


def read_ahead(reply: Sequence[Any]) -> int | None:
    """The fence, or None when there was nothing to take up."""
    return int(reply[1]) if text(reply[0]) == "OK" else None


def release(keys: LockKeys, index: str | None, token: str) -> Request:
    return Request(scripts.RELEASE, _keys(keys, keys.gone(token), index), (token,))


def release_kept(
    keys: LockKeys, index: str | None, token: str, least_ms: int, fence: int
) -> Request:
    """What lets the lock go, and keeps its name taken until ``least_ms`` after the grant."""
    return Request(
        scripts.RELEASE,
        _keys(keys, keys.gone(token), keys.meta, index),
        (token, str(least_ms), str(fence)),
    )


def leave(keys: LockKeys, index: str | None, token: str) -> Request:
    return Request(scripts.LEAVE, _keys(keys, keys.gone(token), index), (token,))


def look(keys: LockKeys, head: str, *, is_last: bool = False) -> Request:
    return Request(scripts.LOOK, _keys(keys, keys.meta), (head, str(int(is_last))))


def renew(
    keys: LockKeys,
    index: str | None,
    token: str,
    lease_ms: int,
    how: Literal["replace", "add", "least"],
) -> Request:
    return Request(
        scripts.RENEW,
        _keys(keys, keys.gone(token), keys.meta, index),
        (token, str(lease_ms), to_lease(how)),
    )


def to_lease(how: Literal["replace", "add", "least"]) -> str:
    """What tells a script ``how`` to renew. No two additions are the same: copies are known."""
    return f"add {secrets.token_hex(6)}" if how == "add" else how


def renew_alone(keys: LockKeys, token: str, lease_ms: int) -> Request:
    """As :func:`renew` with ``least``, where nothing but the name itself can be had."""
    return Request(scripts.RENEW_ALONE, (keys.name,), (token, str(lease_ms)))


def check(keys: LockKeys, token: str) -> Request:
    return Request(scripts.CHECK, _keys(keys, keys.gone(token)), (token,))


def read_handed_on(reply: Sequence[Any]) -> str | None:
    """The waiter to look after once that request was answered: release, leave, look, force."""
    lost = text(reply[0]) == "LOST"
    return text(reply[2 if lost else 1]) if len(reply) > 1 + lost else None


def read_passed_on(reply: Sequence[Any]) -> bool:
    """Whether a look has handed the lock to somebody else."""
    return int(reply[2]) == 1


def read_kept(reply: Sequence[Any], key: str) -> Sequence[Any]:
    """The reply to release, renew or check. Raises LockLost when the lock is not ours."""
    match text(reply[0]):
        case "OK":
            return reply
        case "LOST":
            raise lost(key, text(reply[1]))
        case _:
            _unknown(reply)


def force(keys: LockKeys, index: str | None, seen: bytes, by: str, reason: str) -> Request:
    return Request(
        scripts.FORCE,
        _keys(keys, keys.gone(seen.decode("utf-8", "backslashreplace")), index),
        (seen, json.dumps({"by": by, "reason": reason})),
    )


def locked(keys: LockKeys) -> None:
    """Nothing is to be asked: it is held as long as its name exists."""


def takes_tokens() -> bool:
    """Whether the caller may choose the token."""
    return True


def keeps() -> bool:
    """Whether a lock that is let go can be kept from others for a time."""
    return True


def is_shared() -> bool:
    """Whether others may hold it at the same time."""
    return False


def new_token() -> str:
    """What an attempt is known by, which nobody can guess."""
    return secrets.token_hex(16)


def wakes() -> bool:
    """Whether who waits has a mailbox, which is looked into."""
    return True


def inspect(keys: LockKeys, index: str | None, unit: str = "") -> Request:
    """``unit``: that of values which are times, where nothing beside them tells; "" if none are."""
    return Request(
        scripts.INSPECT, _keys(keys, keys.meta, keys.shares, keys.holders, index), (unit,)
    )


def lost(key: str, mark: str | None = None) -> LockLost:
    """The error for a lock that is no longer ours; ``mark`` is what its token was remembered as."""
    try:
        how = json.loads(mark or "null")
    except ValueError:
        how = None
    if not isinstance(how, dict):
        return LockLost(
            f"the lock {key!r} is no longer ours: its lease ran out or its key was removed", key=key
        )
    by, reason = str(how.get("by") or ""), str(how.get("reason") or "")
    why = f": {reason}" if reason else ""
    return LockLost(
        f"the lock {key!r} was force-released by {by or 'an operator'}{why}",
        key=key,
        forced_by=by,
        reason=reason,
    )


def text(value: Any) -> str | None:
    """A reply's string, whatever the client's ``decode_responses``."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value is None else str(value)


def seconds_left(ms: Any) -> float | None:
    """A PTTL reply in seconds; None for a key that never expires."""
    return None if int(ms) < 0 else int(ms) / 1000


def _keys(keys: LockKeys, *more: str | None) -> tuple[str, ...]:
    found = (keys.name, keys.waiters, keys.alive, *more)
    return found if found[-1] is not None else found[:-1]  # type: ignore[return-value]  # only the index, the last, may be None


def _unknown(reply: Sequence[Any]) -> NoReturn:
    raise AssertionError(f"a script of this package answered {reply!r}")
