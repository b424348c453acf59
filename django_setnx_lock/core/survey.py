"""What there is to say about all locks at once, at a cost that has a bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .inspection import Inspector, LockInfo, State


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What was seen of the locks.

    ``locks``: those that were looked at and are not free. ``listed``: how many names there are,
    also of locks that were not looked at. ``is_cut``: whether there are such locks. ``waits``: for
    how many seconds the first in the queue has waited, by the names of the locks with a queue.
    ``onward``: where a search goes on; empty when all names were looked through.
    """

    locks: Sequence[LockInfo]
    listed: int
    is_cut: bool
    waits: Mapping[str, float]
    onward: str = ""


def survey(
    look: Inspector,
    *,
    limit: int,
    search: str = "",
    everything: bool = False,
    start: str = "",
    within: float | None = None,
) -> Survey:
    """Return what there is to say of at most ``limit`` locks, chosen by :meth:`Inspector.sample`.

    The other arguments are its own. Raises LockUnavailable.
    """
    found = look.sample(limit, search=search, everything=everything, start=start, within=within)
    return Survey(
        locks=found.locks,
        listed=found.total,
        is_cut=found.total > limit,
        waits=look.waits(found.locks),
        onward=found.onward,
    )


def held_for(lock: LockInfo) -> float:
    """Return for how many seconds ``lock`` is held, by the oldest of its holders; 0 if not known.

    Also 0 for a lock that is kept: its holder is done with it.
    """
    if lock.state is State.KEPT:
        return 0.0
    return max((one.held_for or 0.0 for one in lock.shares or (lock,)), default=0.0)
