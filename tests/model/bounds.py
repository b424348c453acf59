"""Within which bounds to search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .rules import Rules
from .server import LONG, World, names

State = tuple[Any, ...]
Step = tuple[str, World]
Steps = Iterator[Step]
UNCOUNTED = 99
SILENT = ("crash", "vanish", "stall")
_FAULTS_LEFT = names.index("faults")

ALL_FAULTS = frozenset(
    {
        "again",  # no reply in time: the request is sent again, the first copy may come late
        "cancel",  # cancellation, interrupt or error at an await
        "clock",  # the server's clock steps back
        "cut",  # a loop's connection to its mailbox breaks, with what was fetched last
        "crash",  # kill -9: the server learns of it
        "exit",  # a process ends in good order
        "expire",  # a holder does not renew in time, or a reply takes longer than the lease
        "force",
        "foreign",  # a client that knows nothing but SET NX PX
        "impatient",  # the waiter's own time is over
        "fail-fast",  # a caller that does not wait at all
        "vanish",  # power or network gone: the server keeps its BLPOP
        "stall",  # slower than a claim, or than a slice and its margin
    }
)


@dataclass(frozen=True)
class Bounds:
    """``clients``: how many. ``turns``: acquires a client. ``faults``: how many in all.

    ``more``: how many turns more the first client has.
    """

    clients: int = 2
    turns: int = 1
    faults: int = 1
    kinds: frozenset[str] = ALL_FAULTS
    rules: Rules = field(default_factory=Rules)
    leases: tuple[int, ...] = (LONG,) * 4
    # How often a waiter may be overtaken where LOOK passed it, and claims be waited for in vain.
    overtaken: int = UNCOUNTED
    wasted: int = 1
    # LOOK comes later than what its head had under way reaches the server.
    trips_end: bool = False
    # Holders may make their leases shorter.
    cuts: bool = False
    # The one kind of violation to look for; "": every kind.
    only: str = ""
    more: int = 0
    # The clients that send ahead what takes up the lock.
    ahead: str = ""
    # Those that are tasks, whose loops listen for them.
    in_loops: str = ""
    # They are in one loop, and a release names another that waits.
    one_loop: bool = False
    # Those that keep the name taken for a while when they let the lock go.
    keeps: str = ""

    def is_within(self, wider: Bounds) -> bool:
        """Whether every state within these bounds is one within ``wider``, too."""
        alike = (
            "rules",
            "more",
            "overtaken",
            "wasted",
            "trips_end",
            "only",
            "ahead",
            "keeps",
            "in_loops",
            "one_loop",
        )
        return (
            self.clients <= wider.clients
            and self.turns <= wider.turns
            and self.faults <= wider.faults
            and self.kinds <= wider.kinds
            and self.cuts <= wider.cuts
            and self.leases[: self.clients] == wider.leases[: self.clients]
            and all(getattr(self, name) == getattr(wider, name) for name in alike)
        )

    def fault(self, state: State, kind: str) -> World | None:
        if kind not in self.kinds or state[_FAULTS_LEFT] == 0:
            return None
        w = World(*state)
        w.faults -= 1
        w.silent += int(kind in SILENT)
        return w
