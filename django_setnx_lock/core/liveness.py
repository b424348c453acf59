"""How a dead holder is told from a living one.

Two signs tell them apart. The lease of a lock that is renewed is never shorter than two thirds of
what it was, so the time left tells when it was renewed last. And a process that holds locks for
longer than a few seconds refreshes one short-lived key, whatever the number of locks. All times are
in seconds.
"""

from __future__ import annotations

from .holder import Holder

#: A process says that it lives once it has held a lock for so long: short holds cost nothing.
HEARTBEAT_AFTER = 3.0
HEARTBEAT_EVERY = 4.0
#: Two refreshes may be missed.
HEARTBEAT_LASTS = 12.0
#: A lock that was held for so long, and whose process does not say that it lives, has lost it.
GRACE = 10.0
# A renewal is due when a third of the lease is over: this is one and a half times that.
_OVERDUE = 0.5
# How far the end of a lease may be from that of max_hold: requests take time.
_SLACK = 1.0


def renewed_ago(holder: Holder, held_for: float, left: float) -> float | None:
    """Return how long ago the lease was renewed, or granted; None where that is not known.

    ``held_for``: since when ``holder`` holds the lock. ``left``: what is left of the lease.
    """
    if (
        not holder.renewed
        or not 0 <= left <= holder.lease
        or not can_still_grow(holder, held_for, left)
    ):
        return None
    return min(holder.lease - left, held_for)


def is_overdue(holder: Holder, held_for: float, left: float) -> bool:
    """Return whether a renewal should have come. The arguments are those of :func:`renewed_ago`."""
    # A waiter that takes the lock up has a short lease first. Therefore held_for counts as well.
    ago = renewed_ago(holder, held_for, left)
    return ago is not None and ago > holder.lease * _OVERDUE


def can_still_grow(holder: Holder, held_for: float, left: float) -> bool:
    """Return whether a renewal would lengthen the lease, which it does not beyond ``max_hold``."""
    slack = max(_SLACK, holder.lease / 6)
    return not holder.max_hold or held_for + left < holder.max_hold - slack
