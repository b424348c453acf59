"""What the replies of the scripts mean. Our connections decode nothing: texts are bytes."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ...errors import LockLost
from ...plain import plain


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
