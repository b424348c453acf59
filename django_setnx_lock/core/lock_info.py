"""What is told of a lock, of who holds it, and of who waits for it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .errors import LockUnsupported
from .holder import Holder
from .liveness import GRACE, is_overdue, renewed_ago
from .stop_request import StopRequest
from .values import limit_of


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


#: How many locks are found, if nothing else is asked for; they are read in less than 0.2 s.
MOST_FOUND = 2000
# Of these a holder needs attention, the most urgent first.
TROUBLES = (State.GONE, State.NOT_RENEWED)

# How surely its holder is dead; in another state it lives, as far as is known.
SEVERITY: Mapping[State | None, int] = {
    State.GONE: 2,
    State.NOT_RENEWED: 1,
    State.NEVER_EXPIRES: 1,
}

# Who holds it in one of these renews it by its token, and hears of what stands beside it.
_OURS = (State.HELD, State.READ, State.PERMITS, *TROUBLES)


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
    """A caller that waits for a lock: number ``position`` in the queue, from 1.

    ``holder`` is its record, None if it left none. It has ``waited`` so many seconds, None if that
    is not known. ``fingerprint`` stands for its token there.
    """

    position: int
    holder: Holder | None
    waited: float | None
    fingerprint: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AwaitedLock:
    """A lock that the holder of another one waits for. The fields are as in :class:`WaiterInfo`."""

    key: str
    name: str
    waited: float | None
    fingerprint: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ShareInfo:
    """One of several who hold a lock together. The fields are as in :class:`LockInfo`."""

    state: State = State.HELD
    holder: Holder | None
    fence: int
    remaining: float
    held_for: float
    fingerprint: str
    stop_requested: StopRequest | None = None
    waits_for: AwaitedLock | None = None
    token: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class LockInfo:
    """One lock as Redis had it at one moment.

    ``remaining`` and ``held_for`` are seconds; ``remaining`` is None when the lock never
    expires or is not held, ``held_for`` is None when not known. ``fingerprint`` stands for
    the holder's token, which it does not give away; it is empty when nobody holds the lock.
    ``longest_wait``: for how many seconds the first in the queue has waited; None without a queue.
    ``waiters``: the first of the ``waiting`` by name, as many as were asked for, but at least one.
    ``waits_for``: the lock that its holder waits for itself, if it has said so, which it does after
    some time of waiting.
    ``stop_requested``: who asked its holder to stop, if anybody did.
    ``as_of``: when that was, as a Unix time by the clock of the server.
    ``unit`` is that of the time at the name, ``s`` or ``ms``, and empty where no time stands there.
    ``shares``: who holds it together, if it is ``READ`` or its ``PERMITS`` are in use, the first to
    end first; ``holder`` and ``fence`` are those of the latest, and ``fingerprint`` stands for all.
    """

    key: str
    name: str
    state: State
    holder: Holder | None = None
    fence: int | None = None
    remaining: float | None = None
    held_for: float | None = None
    waiting: int = 0
    longest_wait: float | None = None
    fingerprint: str = ""
    kind: str = "string"
    unit: str = ""
    stop_requested: StopRequest | None = None
    waiters: tuple[WaiterInfo, ...] = ()
    waits_for: AwaitedLock | None = None
    shares: tuple[ShareInfo, ...] = ()
    as_of: float = 0.0
    token: bytes = field(default=b"", repr=False)

    @property
    def is_held(self) -> bool:
        """Whether somebody holds it, or it was left to somebody."""
        return bool(self.fingerprint)

    @property
    def states(self) -> frozenset[State]:
        """Its state, and of those who hold it together those that need attention."""
        return frozenset([self.state, *(one.state for one in self.shares if one.state in TROUBLES)])

    @property
    def longest_hold(self) -> float:
        """The seconds that the oldest of its holders has had it; 0 if not known, or if it is kept.

        The holder of a lock that is kept is done with it.
        """
        if self.state is State.KEPT:
            return 0.0
        return max((one.held_for or 0.0 for one in self.shares or (self,)), default=0.0)

    @property
    def granted_at(self) -> float | None:
        """When it was granted, as a Unix time by the clock of the server; None if not known."""
        return None if self.held_for is None else self.as_of - self.held_for

    @property
    def renewed_ago(self) -> float | None:
        """The seconds since its lease was renewed, or granted; None where that is not known."""
        if self.holder is None or self.remaining is None:
            return None
        if self.state not in (State.HELD, *TROUBLES):
            return None
        return renewed_ago(self.holder, held_by(self, self.as_of), self.remaining)

    @property
    def limit(self) -> int | None:
        """How many permits there are, if some are in use: the most that a holder knows of."""
        known = (limit_of(one.token) for one in self.shares)
        return max((limit for limit in known if limit), default=None)

    def of_one(self, share: ShareInfo) -> LockInfo:
        """Return this lock as if ``share`` alone held it."""
        return replace(
            self,
            state=share.state,
            holder=share.holder,
            fence=share.fence,
            remaining=share.remaining,
            held_for=share.held_for,
            fingerprint=share.fingerprint,
            stop_requested=share.stop_requested,
            waits_for=share.waits_for,
            shares=(),
            token=share.token,
        )


# What an operator sees first, as nobody else will mend it.
_URGENT = (State.GONE, State.NOT_RENEWED, State.NO_LOCK, State.NEVER_EXPIRES)


def _worst(info: LockInfo) -> tuple[float, ...]:
    urgency = min((_URGENT.index(one) for one in info.states if one in _URGENT), default=9)
    return urgency, -(info.longest_wait or 0.0), -info.waiting


#: The orders of a list, by what each sorts.
ORDERS: Mapping[str, Callable[[LockInfo], Any]] = {
    "worst": _worst,
    "key": lambda info: info.key,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class LockPage:
    """Some of the held locks, those whose leases end first where there are more.

    ``total``: how many locks were found, those included that are not among these ``locks``.
    ``is_cut``: whether there may be others that were not looked at.
    """

    locks: Sequence[LockInfo]
    total: int
    is_cut: bool = False


def hears_requests(lock: LockInfo) -> bool:
    """Whether a holder of ``lock`` would hear that it is asked to stop, as far as can be seen."""
    return lock.state in _OURS and not lock.unit


def refuse_unless_ours(seen: LockInfo, what: str) -> None:
    """Raise LockUnsupported unless ``seen`` is held by its token, and is no other program's."""
    if hears_requests(seen):
        return
    why = f"it is {seen.state.value!r}, and has no holder who would know of it"
    if seen.unit:
        why = f"it is held with protocol='timestamp-{seen.unit}'"
    raise LockUnsupported(f"{what}: {why}", key=seen.key)


def holder_seen(seen: LockInfo, fingerprint: str) -> LockInfo | Outcome:
    """Return ``seen`` as held by the holder of that ``fingerprint``, or why it is not."""
    if not seen.is_held:
        return Outcome.FREE
    holders = [seen.of_one(share) for share in seen.shares] or [seen]
    return next((one for one in holders if one.fingerprint == fingerprint), Outcome.CHANGED_HANDS)


def held_by(one: LockInfo | ShareInfo, as_of: float) -> float:
    """Return for how many seconds that holder has it, who may have taken it over."""
    held_for = one.held_for or 0.0
    if one.holder is not None and one.holder.since:
        return min(held_for, max(as_of - one.holder.since / 1000, 0.0))
    return held_for


def processes_to_ask(locks: Iterable[LockInfo]) -> list[str]:
    """Return the processes of ``locks`` that should have said by now that they live."""
    old: dict[str, None] = {}
    for lock in locks:
        holders: list[LockInfo | ShareInfo] = [lock, *lock.shares]
        for one in holders:
            process = one.holder.process if one.holder is not None else ""
            if process and one.state is State.HELD and held_by(one, lock.as_of) >= GRACE:
                old[process] = None
    return list(old)


def _state_of(one: LockInfo | ShareInfo, lock: LockInfo, gone: Collection[str]) -> State:
    """Return the state of one holder of ``lock``, as the processes that are ``gone`` tell it."""
    if one.holder is None or one.state is not State.HELD:
        return one.state
    since = held_by(one, lock.as_of)
    if one.holder.process in gone and since >= GRACE:
        return State.GONE
    # A time in whole seconds may end up to one sooner than the lease.
    left = (one.remaining or 0.0) + (lock.unit == "s")
    return State.NOT_RENEWED if is_overdue(one.holder, since, left) else State.HELD


def with_states(lock: LockInfo, gone: Collection[str]) -> LockInfo:
    """Return ``lock`` as the processes that are ``gone`` tell it."""
    state = _state_of(lock, lock, gone)
    if state is lock.state and not lock.shares:
        return lock
    states = [_state_of(one, lock, gone) for one in lock.shares]
    shares = tuple(replace(one, state=now) for one, now in zip(lock.shares, states, strict=True))
    return replace(lock, state=state, shares=shares)
