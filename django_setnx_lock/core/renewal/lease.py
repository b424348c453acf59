"""How long a lock may be believed to be ours, and when to renew it. No I/O."""

from __future__ import annotations

import math
import threading

_LONGEST_PAUSE = 0.25


class Lease:
    """The time that a lock is ours, as far as this process knows: never longer than in Redis.

    All times are in seconds, on the local clock. ``end``: until when it is ours. ``due``:
    when to renew it. ``asked``: whether a renewal is under way. ``trouble``: why the last
    one failed. ``tried_since``: since when renewals have been tried without success, or
    should have been, the one under way among them; None when the last succeeded.
    """

    asked = False
    tried_since: float | None = None
    trouble: Exception | None = None
    _hold_until = math.inf

    def __init__(self, seconds: float, end: float, max_hold: float | None = None) -> None:
        self.seconds = seconds
        self.end = end
        self.due = end - seconds * 2 / 3
        if max_hold is not None:
            self._hold_until = end - seconds + max_hold
        # Renewals come from another thread. Reentrant, for handlers of signals.
        self._changing = threading.RLock()

    def is_over(self, now: float) -> bool:
        """Return whether it has ended."""
        return now >= self.end

    def is_ready(self, now: float) -> bool:
        """Return whether it may be renewed along with others that are due now."""
        return self.due - self.seconds / 6 <= now

    @property
    def reached_max_hold(self) -> bool:
        """True when it is not to be renewed beyond ``end``."""
        return self.end > self._hold_until - 0.01

    def to_ask(self, now: float) -> int:
        """Return the least milliseconds that a renewal sent now asks for.

        Beyond ``max_hold`` one: it never cuts, and tells whether the lock is still ours.
        """
        return max(round(self.bounded(self.seconds, now) * 1000), 1)

    def bounded(self, seconds: float, now: float) -> float:
        """Return how much of a lease of ``seconds`` from ``now`` on ``max_hold`` allows."""
        return max(min(seconds, self._hold_until - now), 0.001)

    def confirm(self, sent: float, seconds: float) -> None:
        """Believe Redis that from ``sent`` on the lock is ours for ``seconds`` at least."""
        with self._changing:
            self.end = max(self.end, sent + seconds)

    def plan(self, sent: float) -> None:
        """Renew it a third of the lease after ``sent``; at once if less is left than could be."""
        whole = min(sent + self.seconds, self._hold_until)
        is_whole = self.end >= whole - max(self.seconds / 100, 0.002)
        self.due = sent + self.seconds / 3 if is_whole else sent

    def failed(self, now: float, error: Exception) -> None:
        """Take note that a renewal has failed: try again soon."""
        self.asked = False
        if self.tried_since is None:
            self.tried_since = now
        self.trouble = error
        self.due = now + min(_LONGEST_PAUSE, self.seconds / 10)
