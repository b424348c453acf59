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
    should have been, the one under way among them; None when the last succeeded. ``cuts``: how
    often the lease was cut.
    """

    asked = False
    tried_since: float | None = None
    trouble: Exception | None = None
    cuts = 0
    _hold_until = math.inf
    _trusted = math.inf

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
        return self.due - self.rhythm / 6 <= now

    @property
    def rhythm(self) -> float:
        """The seconds that one renewal gives."""
        return min(self.seconds, self._trusted)

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

    def confirm(self, sent: float, seconds: float, cuts: int) -> None:
        """Believe Redis that from ``sent`` on the lock is ours for ``seconds`` at least.

        ``cuts``: how often it had been cut when the request was sent: the answer says nothing
        when it was cut since.
        """
        with self._changing:
            if cuts == self.cuts:
                self.end = max(self.end, sent + min(seconds, self._trusted))

    def begin_cut(self, sent: float, seconds: float) -> float:
        """Prepare to cut the lease to ``seconds``. Return ``before`` for :meth:`end_cut`.

        Until Redis has confirmed it the cut may come at any time, also after a renewal: as
        long, nothing is believed for longer than that.
        """
        with self._changing:
            self.end = min(self.end, sent + seconds)
            before = self._trusted
            self._trusted = min(self._trusted, seconds)
            return before

    def end_cut(
        self, sent: float, seconds: float, before: float, *, may_come_again: bool = False
    ) -> None:
        """Take note that Redis has confirmed the cut.

        ``may_come_again``: whether a copy of it is perhaps still under way. Then nothing is
        believed for longer than the cut gave, as long as the lock is held.
        """
        with self._changing:
            self.cuts += 1
            if not may_come_again:
                self._trusted = before
            self.end = sent + min(seconds, before)

    def plan(self, sent: float) -> None:
        """Renew it a third of the lease after ``sent``; at once if less is left than could be."""
        whole = min(sent + self.rhythm, self._hold_until)
        is_whole = self.end >= whole - max(self.rhythm / 100, 0.002)
        self.due = sent + self.rhythm / 3 if is_whole else sent

    def failed(self, now: float, error: Exception) -> None:
        """Take note that a renewal has failed: try again soon."""
        self.asked = False
        if self.tried_since is None:
            self.tried_since = now
        self.trouble = error
        self.due = now + min(_LONGEST_PAUSE, self.rhythm / 10)
