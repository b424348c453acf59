"""How long a lock may be believed to be ours, and when to renew it. No I/O."""

from __future__ import annotations

import math
import threading
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from . import protocol

if TYPE_CHECKING:
    from .ending import Ending

_LONGEST_PAUSE = 0.25


class Upkeep:
    """What is done about a lock while it is held. See :class:`RedisLock`.

    Raises ValueError for a ``max_hold`` that is no time, TypeError for the rest.
    """

    __slots__ = ("ending", "is_noted", "max_hold", "on_lost", "reentrant", "renew")

    def __init__(
        self,
        renew: bool = False,
        max_hold: float | None = None,
        on_lost: Any = None,
        reentrant: bool = False,
        ending: Ending | None = None,
    ) -> None:
        if not isinstance(renew, bool):
            raise TypeError(f"renew is True or False, not {renew!r}")
        if not isinstance(reentrant, bool):
            raise TypeError(f"reentrant is True or False, not {reentrant!r}")
        if max_hold is not None:
            protocol.milliseconds(max_hold, "max_hold")
        if on_lost is not None and (not callable(on_lost) or iscoroutinefunction(on_lost)):
            raise TypeError(f"on_lost is a callable (held), and not async; not {on_lost!r}")
        self.renew = renew
        self.max_hold = max_hold
        self.on_lost = on_lost
        self.reentrant = reentrant
        self.ending = ending
        # Whether it matters that it is left held.
        self.is_noted = reentrant or renew

    def first_lease(self, lease_ms: int) -> int:
        """What of a lease of ``lease_ms`` may be asked for when the lock is taken."""
        if self.max_hold is None:
            return lease_ms
        return min(lease_ms, protocol.milliseconds(self.max_hold, "max_hold"))


class Lease:
    """The time that a lock is ours, as far as this process knows: never longer than in Redis.

    All times are in seconds, on the local clock. ``end``: until when it is ours. ``due``:
    when to renew it. ``asked``: whether a renewal is under way. ``trouble``: why the last
    one failed. ``tried_since``: since when renewals have been tried without success, the one
    under way among them; None when the last succeeded. ``cuts``: how often the lease was cut.
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
        """Whether it has ended."""
        return now >= self.end

    def settle(self) -> None:
        """Read what answer is outstanding, waiting until ``end`` at the longest."""

    def close(self) -> None:
        """The lock is held no longer."""

    @property
    def rhythm(self) -> float:
        """What one renewal gives."""
        return min(self.seconds, self._trusted)

    @property
    def reached_max_hold(self) -> bool:
        """Whether it is not to be renewed beyond ``end``."""
        return self.end > self._hold_until - 0.01

    def to_ask(self, now: float) -> int:
        """The milliseconds that a renewal sent now asks for, at the least.

        Beyond ``max_hold`` one: it never cuts, and tells whether the lock is still ours.
        """
        return max(round(self.bounded(self.seconds, now) * 1000), 1)

    def bounded(self, seconds: float, now: float) -> float:
        """What of a lease of ``seconds`` from ``now`` on ``max_hold`` allows."""
        return max(min(seconds, self._hold_until - now), 0.001)

    def confirm(self, sent: float, seconds: float, cuts: int) -> None:
        """Redis has said that from ``sent`` on the lock is ours for ``seconds`` at least.

        ``cuts``: how often it had been cut when the request was sent: the answer says nothing
        when it was cut since.
        """
        with self._changing:
            if cuts == self.cuts:
                self.end = max(self.end, sent + min(seconds, self._trusted))

    def begin_cut(self, sent: float, seconds: float) -> float:
        """The lease is about to be made ``seconds``; gives what :meth:`end_cut` is to be told.

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
        """Redis has confirmed the cut.

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
        """A renewal has failed: try again soon."""
        self.asked = False
        if self.tried_since is None:
            self.tried_since = now
        self.trouble = error
        self.due = now + min(_LONGEST_PAUSE, self.rhythm / 10)
