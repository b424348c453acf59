"""What the commands say of who holds a lock, and of who runs them, as one line for a terminal."""

from __future__ import annotations

import getpass
import os
import sys
from datetime import datetime, timedelta

from django_setnx_lock.core.errors import LockBusy
from django_setnx_lock.core.holder import Holder, plain
from django_setnx_lock.core.inspection.lock_info import LockInfo

# How many of those who hold a lock together are named.
_FEW = 3


def printable(text: str) -> str:
    """Return all of ``text`` as :func:`plain` text: keys and notes are others' words."""
    return plain(text, longest=sys.maxsize)


def user_name() -> str:
    """Return the name of the user we run as, or the number of one that has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid {os.getuid()}"


def holding(busy: LockBusy, seen: LockInfo | None) -> str:
    """Say by whom the lock is held, since when, and how long the lease still runs.

    ``seen`` is what was found at a second look, by which the lock may be free again.
    """
    holders, remaining, held_for = _known(busy, seen)
    nobody = "a foreign program, which left no record of who it is"
    whom = ", ".join(str(holder or nobody) for holder in holders[:_FEW])
    if len(holders) > _FEW:
        whom += f" and {len(holders) - _FEW} more"
    since = ""
    if held_for is not None:
        ago = timedelta(seconds=round(held_for))
        since = f" since {datetime.now().astimezone() - ago:%Y-%m-%d %H:%M:%S %z} ({ago} ago)"
    until = "never ends" if remaining is None else f"runs for another {remaining:.1f} s"
    return f"held by {whom}{since}; its lease {until}"


def _known(
    busy: LockBusy, seen: LockInfo | None
) -> tuple[list[Holder | None], float | None, float | None]:
    if seen is None or not seen.is_held:
        return [busy.holder], busy.remaining, None
    holders = [one.holder for one in seen.holders]
    return holders, seen.remaining, seen.held_for if len(holders) == 1 else None
