"""What the replies of the scripts mean. Our connections decode nothing: texts are bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import LockLost
from ..holder import Holder, json_object, text_in


class Reply(NamedTuple):
    """The answer to a request: ``sent``: when it was sent, on the local clock.

    ``was_retried``: whether another copy of the request may be carried out yet.
    """

    value: Any
    sent: float
    was_retried: bool


def text(value: bytes | None) -> str:
    """Return a reply as text, whatever others wrote there; "" for none."""
    return "" if value is None else value.decode("utf-8", "backslashreplace")


class Busy(NamedTuple):
    """The answer that somebody else has the lock.

    ``ms``: what is left of the lease; below 0: it never ends. ``record``: the holder's; None where
    that wakes nobody, as another program.
    """

    ms: int
    record: bytes | None

    @property
    def remaining(self) -> float | None:
        """The seconds left of the lease; None for a lock that never ends."""
        return None if self.ms < 0 else self.ms / 1000

    @property
    def holder(self) -> Holder | None:
        """The holder of the lock, or None if it left no record that can be read."""
        return Holder.from_json(text(self.record))

    def __str__(self) -> str:
        whom = str(self.holder or "somebody else")
        until = "never expires" if self.remaining is None else f"has {self.remaining:.1f} s left"
        return f"held by {whom}; the lease {until}"


@dataclass(frozen=True, kw_only=True, slots=True)
class StopRequest:
    """The request of an operator that a holder stop.

    ``by``: the operator. ``by`` and ``reason`` may be empty. ``at``: a Unix time by the clock of
    the server.
    """

    by: str = ""
    reason: str = ""
    at: float = 0.0

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"{self.by or 'an operator'} asks to stop{why}"

    @classmethod
    def from_record(cls, record: str | None) -> StopRequest | None:
        """Return the request in the text of a holder record; None when there is none in it."""
        # True of nearly all records, and quicker than to read each.
        if not record or '"stop":' not in record:
            return None
        found = (json_object(record) or {}).get("stop")
        if not isinstance(found, dict):
            return None
        at = found.get("at")
        return cls(
            by=text_in(found, "by"),
            reason=text_in(found, "reason"),
            at=at / 1000 if type(at) is int and 0 < at < 1 << 53 else 0.0,
        )


def lost(key: str, mark: bytes | None) -> LockLost:
    """Return the error for a lock that is no longer ours; ``mark``: who forced it, as JSON."""
    how = None if mark is None else json_object(mark)
    if how is None:
        return LockLost(
            f"the lock {key!r} is no longer ours: its lease ran out or its key was removed", key=key
        )
    by, reason = text_in(how, "by"), text_in(how, "reason")
    why = f": {reason}" if reason else ""
    return LockLost(
        f"the lock {key!r} was force-released by {by or 'an operator'}{why}",
        key=key,
        forced_by=by,
        reason=reason,
    )
