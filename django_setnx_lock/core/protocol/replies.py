"""What the scripts' replies mean. Pure: no I/O, no clock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from redis.exceptions import ResponseError

from ..errors import LockLost
from ..holder import Holder
from ..plain import plain
from ..stop_request import StopRequest

# Whatever the client's ``decode_responses``.
_OK = (b"OK", "OK")


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
    # Whether several hold it together: one of them may let go and not be heard.
    is_group: bool = False
    # For how many seconds the holder has had it; None where that is not known.
    held_for: float | None = None


@dataclass(frozen=True, slots=True)
class Gone:
    pass


Answer: TypeAlias = Granted | Busy | Gone


def is_ok(reply: Sequence[Any]) -> bool:
    """Whether the lock was granted, or is held, or what else was asked for was done."""
    return reply[0] in _OK


def read_acquire(reply: Sequence[Any]) -> Answer:
    if reply[0] in _OK:
        return Granted(int(reply[1]), text(reply[2]) if len(reply) > 2 else None)
    match text(reply[0]):
        case "BUSY":
            record = text(reply[3]) if len(reply) > 3 else None
            how = text(reply[2])
            return Busy(
                seconds_left(reply[1]),
                Holder.from_json(record),
                foreign=how == "foreign",
                handed_on=how in ("baton", "group"),
                is_group=how == "group",
                held_for=int(reply[4]) / 1000 if len(reply) > 4 else None,
            )
        case "GONE":
            return Gone()
        case _:
            _unknown(reply)


@dataclass(frozen=True, slots=True)
class Left:
    """Granted and given up again, as another one was not to be had."""

    # The waiter that it was handed to.
    head: str | None


def read_acquire_all(reply: Sequence[Any]) -> list[Answer | Left | ResponseError]:
    """Return the answer for each lock that was asked for; only the last can be an error."""
    return [_read_one(one) for one in reply[1:]]


def _read_one(reply: Sequence[Any]) -> Answer | Left | ResponseError:
    match text(reply[0]):
        case "LEFT":
            return Left(text(reply[1]))
        case "ERROR":
            return ResponseError(text(reply[1]))
        case _:
            return read_acquire(reply)


def read_handed_on(reply: Sequence[Any]) -> str | None:
    """Return the waiter that the lock was handed to, from a release, cancel, check or force."""
    at = 1 if reply[0] in _OK or text(reply[0]) != "LOST" else 2
    return text(reply[at]) if len(reply) > at else None


def read_passed_on(reply: Sequence[Any]) -> bool:
    """Whether a look has handed the lock to somebody else."""
    return int(reply[2]) == 1


def read_kept(reply: Sequence[Any], key: str) -> Sequence[Any]:
    """Return the reply to release, renew or check. Raises LockLost when the lock is not ours."""
    if reply[0] in _OK:
        return reply
    if text(reply[0]) == "LOST":
        raise lost(key, text(reply[1]))
    _unknown(reply)


def read_deadlock(reply: Sequence[Any]) -> list[tuple[Holder | None, str]]:
    """Return each waiter of a deadlock with the name it waits for, the caller first; empty if none.

    The next one holds that, and the caller what the last one waits for.
    """
    return [
        (Holder.from_json(text(record)), text(name) or "")
        for record, name in zip(reply[1::2], reply[2::2], strict=True)
    ]


def read_stop(reply: Sequence[Any]) -> StopRequest | None:
    """Return what an operator asks the holder for, from the reply to a check or renewal."""
    return StopRequest.from_record(text(reply[2])) if len(reply) > 2 else None


def lost(key: str, mark: str | None = None) -> LockLost:
    """Return the error for a lock that is no longer ours; ``mark``: its token's tombstone."""
    try:
        how = json.loads(mark or "null")
    except (ValueError, RecursionError):
        how = None
    if not isinstance(how, dict):
        return LockLost(
            f"the lock {key!r} is no longer ours: its lease ran out or its key was removed", key=key
        )
    by, reason = (_text_in(how, name) for name in ("by", "reason"))
    why = f": {reason}" if reason else ""
    return LockLost(
        f"the lock {key!r} was force-released by {by or 'an operator'}{why}",
        key=key,
        forced_by=by,
        reason=reason,
    )


def _text_in(how: dict[str, Any], name: str) -> str:
    value = how.get(name)
    return plain(value) if isinstance(value, str) else ""


def text(value: Any) -> str | None:
    """Return a reply as text, whatever the client's ``decode_responses``."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value is None else str(value)


def seconds_left(ms: Any) -> float | None:
    """Return a PTTL reply in seconds; None for a key that never expires."""
    return None if int(ms) < 0 else int(ms) / 1000


def _unknown(reply: Sequence[Any]) -> NoReturn:
    raise AssertionError(f"a script of this package answered {reply!r}")
