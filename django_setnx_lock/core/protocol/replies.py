"""What the replies of the scripts mean. Our connections decode nothing: texts are bytes."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ..errors import LockLost
from ..holder import Holder
from ..plain import plain


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
        """What is left of the lease in seconds; None for what never ends."""
        return None if self.ms < 0 else self.ms / 1000

    @property
    def holder(self) -> Holder | None:
        """Who has the lock; None where nobody knows."""
        return Holder.from_json(text(self.record))

    def __str__(self) -> str:
        whom = str(self.holder or "somebody else")
        until = "never expires" if self.remaining is None else f"has {self.remaining:.1f} s left"
        return f"held by {whom}; the lease {until}"


def lost(key: str, mark: bytes | None) -> LockLost:
    """Return the error for a lock that is no longer ours; ``mark``: who forced it, as JSON."""
    try:
        how = json.loads(mark or b"null")
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
