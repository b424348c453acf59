"""On what terms a command runs under its lock: how it is ended, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django_setnx_lock.core import protocol

TERM: Final = "term"
KILL: Final = "kill"
IGNORE: Final = "ignore"
#: What can be done with a command whose lock is lost.
ON_LOST = (TERM, KILL, IGNORE)

_KILL_AFTER = 10.0
_MARGIN = 1.0


@dataclass(frozen=True)
class Terms:
    """Times in seconds. ``kill_after``: from TERM to KILL. ``margin``: how long before the end of
    the lease a command is dead whose lock cannot be renewed. ``max_time``: how long it may run.
    """

    kill_after: float
    margin: float
    on_lost: str = TERM
    max_time: float | None = None
    foreground: bool = False
    stdin: bool = True
    main_only: bool = False

    @property
    def notice(self) -> float:
        """How long before its end a lease that cannot be renewed is given up."""
        if self.on_lost == IGNORE:
            return 0
        return self.margin + (self.kill_after if self.on_lost == TERM else 0)


def terms(
    lease: float,
    *,
    kill_after: float | None = None,
    max_time: float | None = None,
    on_lost: str = TERM,
    foreground: bool = False,
    stdin: bool = True,
    main_only: bool = False,
) -> Terms:
    """The terms for a lock with a lease of so many seconds.

    Raises ValueError for a value that is none, and when there is no time to end the command
    before the lease does.
    """
    if on_lost not in ON_LOST:
        raise ValueError(f"--on-lost is one of {', '.join(ON_LOST)}, not {on_lost!r}")
    protocol.waiting_time(kill_after, "--kill-after")
    if max_time is not None:
        protocol.milliseconds(max_time, "--max-time")
    margin = min(_MARGIN, lease / 10)
    default = min(_KILL_AFTER, lease / 3)
    found = Terms(
        kill_after=default if kill_after is None else kill_after,
        # With a warning only, there is nothing to have done before the end.
        margin=0 if on_lost == IGNORE else margin,
        on_lost=on_lost,
        max_time=max_time,
        foreground=foreground,
        stdin=stdin,
        main_only=main_only,
    )
    if lease <= found.notice:
        raise ValueError(
            f"the lease of {lease:g} s leaves no time: it must be longer than --kill-after, "
            f"{found.kill_after:g} s, and a margin of {margin:g} s; raise --timeout above "
            f"{found.notice:g}, or lower --kill-after below {lease - margin:g}"
        )
    return found
