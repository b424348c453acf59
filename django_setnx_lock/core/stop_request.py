"""An operator's request to the holder of a lock: to stop what it does."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .plain import plain


@dataclass(frozen=True, kw_only=True, slots=True)
class StopRequest:
    """The request of an operator, as the holder hears it and the page shows it.

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
        try:
            data = json.loads(record)
        except (ValueError, RecursionError):
            return None
        found = data.get("stop") if isinstance(data, dict) else None
        if not isinstance(found, dict):
            return None
        by, reason = (found.get(name) for name in ("by", "reason"))
        at = found.get("at")
        return cls(
            by=plain(by) if isinstance(by, str) else "",
            reason=plain(reason) if isinstance(reason, str) else "",
            at=at / 1000 if type(at) is int and 0 < at < 1 << 53 else 0.0,
        )
