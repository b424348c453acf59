"""How long a lock may be believed to be ours, and when to renew it. No I/O."""

from __future__ import annotations

import math

# A lock that is held for so many seconds is listed, for operators.
LISTED_AFTER = 0.5
# How soon a renewal that failed is tried again, at the latest.
_PAUSE = 0.25


class Lease:
    """The time that a lock is ours, as far as this process knows: never longer than in Redis.

    All times are seconds on the local clock. ``seconds``: the length of a full lease. ``end``:
    until when the lock is ours. ``due``: when to ask for more. ``hold_until``: beyond which it is
    not renewed.
    """

    __slots__ = ("due", "end", "hold_until", "seconds")

    def __init__(self, seconds: float, sent: float, max_hold: float | None) -> None:
        """Begin the lease that was asked for at ``sent``."""
        self.seconds = seconds
        self.end = sent + seconds
        self.due = sent + (seconds / 3 if seconds < 3 * LISTED_AFTER else LISTED_AFTER)
        self.hold_until = math.inf if max_hold is None else sent + max_hold

    @property
    def has_reached_max_hold(self) -> bool:
        """Whether a renewal would not lengthen it."""
        return self.end > self.hold_until - 0.01

    def is_due_soon(self, now: float) -> bool:
        """Return whether a renewal is due, or soon enough to go along with another."""
        return self.due - self.seconds / 6 <= now and self.due != math.inf

    def to_ask(self, now: float) -> int:
        """Return the milliseconds that a renewal asks for at least; 0 beyond ``max_hold``."""
        return max(int(min(self.seconds, self.hold_until - now) * 1000), 0)

    def late(self, now: float) -> float:
        """Return for how many seconds a third of the lease has been over without a renewal."""
        return now - self.end + self.seconds * 2 / 3

    def confirm(self, sent: float, seconds: float) -> None:
        """Believe Redis that from ``sent`` on the lock is ours for ``seconds`` at least."""
        self.end = max(self.end, sent + seconds)

    def plan(self, sent: float) -> None:
        """Have the next renewal a third of the lease after ``sent``."""
        self.due = sent + self.seconds / 3

    def postpone(self, now: float) -> None:
        """Have a renewal that failed tried again soon."""
        self.due = now + min(_PAUSE, self.seconds / 10)
