"""A lock as an operator sees it: its state, its holder, and who waits for it."""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from ..holder import Holder
from ..protocol.replies import StopRequest


class State(str, enum.Enum):
    """The state of a lock."""

    HELD = "held"
    NOT_RENEWED = "not renewed"
    GONE = "holder gone"
    READ = "read"
    PERMITS = "in use"
    KEPT = "kept"
    NEVER_EXPIRES = "never expires"
    FOREIGN = "foreign"
    CHANGING_HANDS = "changing hands"
    FREE = "free"
    NO_LOCK = "not a lock"

    @property
    def slug(self) -> str:
        """The state as addresses, options, JSON and metrics have it: its word, with hyphens."""
        return self.value.replace(" ", "-")


# Of these a holder needs attention, the most urgent first.
TROUBLES = (State.GONE, State.NOT_RENEWED)
# Who holds it in one of these renews it by its token, and hears of what stands beside it.
_OURS = (State.HELD, State.READ, State.PERMITS, *TROUBLES)

# A lock that was held for so many seconds, and whose process does not say that it lives, has lost
# it: three times it could have said so.
GRACE = 10.0
# The lease of a lock that is renewed is never shorter than two thirds of what it was: a renewal is
# due when a third is over, and this is one and a half times that.
_OVERDUE = 0.5
# A token is text that others may have written: no more digits than the largest limit has.
_PERMIT = re.compile(r"permit:([0-9]{1,7}):")


class Outcome(str, enum.Enum):
    """The outcome of what an operator did to a lock.

    ``CHANGED_HANDS``: somebody else has the lock now. ``REVIVED``: the holder that was seen has the
    lock, and lives again.
    """

    RELEASED = "released"
    ASKED = "asked to stop"
    ASKED_BEFORE = "asked to stop before"
    REVIVED = "lives again"
    CHANGED_HANDS = "changed hands"
    FREE = "free"


@dataclass(frozen=True, kw_only=True, slots=True)
class WaiterInfo:
    """A caller that waits for the lock ``key``, whose name in Redis is ``name``.

    ``holder`` is its record, None if it left none. It has ``waited`` so many seconds, None if that
    is not known. ``fingerprint`` stands for its token there.
    """

    key: str
    name: str
    holder: Holder | None
    waited: float | None
    fingerprint: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LockInfo:
    """One lock as Redis had it at one moment.

    ``remaining`` and ``held_for`` are seconds; ``remaining`` is None when the lock never
    expires or is not held, ``held_for`` is None when not known. ``fingerprint`` stands for
    the holder's token, which it does not give away; it is empty when nobody holds the lock.
    ``waiters``: the first of the ``waiting`` by name, as many as were asked for, but at least one.
    ``waits_for``: its holder in the queue of another lock, if it has said so, which it does after
    some time of waiting.
    ``stop_requested``: who asked its holder to stop, if anybody did.
    ``as_of``: when that was, as a Unix time by the clock of the server.
    ``unit`` is that of the time at the name, ``s`` or ``ms``, and empty where no time stands there.
    ``shares``: the lock once for each who holds it, if several do, the first to end first; then
    ``holder`` and ``fence`` are those of the latest, and ``fingerprint`` stands for all.
    """

    key: str
    name: str
    state: State
    holder: Holder | None = None
    fence: int | None = None
    remaining: float | None = None
    held_for: float | None = None
    waiting: int = 0
    fingerprint: str = ""
    kind: str = "string"
    unit: str = ""
    stop_requested: StopRequest | None = None
    waiters: tuple[WaiterInfo, ...] = ()
    waits_for: WaiterInfo | None = None
    shares: tuple[LockInfo, ...] = ()
    as_of: float = 0.0
    token: str = field(default="", repr=False)

    @property
    def is_held(self) -> bool:
        """Whether somebody holds it, or it was left to somebody."""
        return bool(self.fingerprint)

    @property
    def holders(self) -> tuple[LockInfo, ...]:
        """The lock once for each who holds it."""
        return self.shares or (self,)

    @property
    def states(self) -> frozenset[State]:
        """Its state, and of those who hold it together those that need attention."""
        return frozenset([self.state, *(one.state for one in self.shares if one.state in TROUBLES)])

    @property
    def hears_requests(self) -> bool:
        """Whether a holder would hear that it is asked to stop, as far as can be seen."""
        return self.state in _OURS and not self.unit

    @property
    def longest_wait(self) -> float | None:
        """For how many seconds the first in the queue has waited; None without a queue."""
        return self.waiters[0].waited if self.waiters else None

    @property
    def longest_hold(self) -> float:
        """The seconds that the oldest of its holders has had it; 0 if not known, or if it is kept.

        The holder of a lock that is kept is done with it.
        """
        if self.state is State.KEPT:
            return 0.0
        return max(one.held_for or 0.0 for one in self.holders)

    @property
    def granted_at(self) -> float | None:
        """When it was granted, as a Unix time by the clock of the server; None if not known."""
        return None if self.held_for is None else self.as_of - self.held_for

    @property
    def renewed_ago(self) -> float | None:
        """The seconds since its lease was renewed, or granted; None where that is not known."""
        holder, left = self.holder, self.remaining
        if holder is None or left is None or self.state not in (State.HELD, *TROUBLES):
            return None
        if not (holder.renewed and left <= holder.lease):
            return None
        # A renewal does not lengthen it beyond max_hold; requests take time.
        held_for, slack = self._held_by_holder, max(1.0, holder.lease / 6)
        if holder.max_hold and held_for + left >= holder.max_hold - slack:
            return None
        # A waiter that takes the lock up has a short lease first.
        return min(holder.lease - left, held_for)

    @property
    def limit(self) -> int | None:
        """How many permits there are, if some are in use: the most that a holder knows of."""
        known = [_PERMIT.match(one.token) for one in self.shares]
        return max((int(found[1]) for found in known if found), default=0) or None

    @property
    def _held_by_holder(self) -> float:
        """For how many seconds its holder has had it, who may have taken it over."""
        held_for, since = self.held_for or 0.0, self.holder.since if self.holder else 0
        return min(held_for, max(self.as_of - since / 1000, 0.0)) if since else held_for

    @property
    def silent_process(self) -> str:
        """The process of its holder, if that should have said by now that it lives; else ""."""
        if self.holder is None or self.state is not State.HELD or self._held_by_holder < GRACE:
            return ""
        return self.holder.process

    def judged(self, gone: Collection[str]) -> LockInfo:
        """Return it as the processes that are ``gone`` tell it."""
        state, holder, ago = self.state, self.holder, self.renewed_ago
        if holder is not None and state is State.HELD:
            if self.silent_process in gone:
                state = State.GONE
            elif ago is not None and ago > holder.lease * _OVERDUE:
                state = State.NOT_RENEWED
        if state is self.state and not self.shares:
            return self
        return replace(self, state=state, shares=tuple([one.judged(gone) for one in self.shares]))


@dataclass(frozen=True, kw_only=True, slots=True)
class LockPage:
    """Some of the held locks, those whose leases end first where there are more.

    ``total``: how many locks were found, those included that are not among these ``locks``.
    ``is_cut``: whether there may be others that were not looked at. ``looked_at``: how many were.
    """

    locks: Sequence[LockInfo]
    total: int
    is_cut: bool
    looked_at: int
