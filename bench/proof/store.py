"""What holders write to: it refuses a fence below the highest, and notes all that happens."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from bench.figures import Turn, overlaps

if TYPE_CHECKING:
    from pathlib import Path

_FENCE = struct.Struct("q")


class StaleWrite(Exception):
    """The store has seen a higher fence."""


class Store:
    """A file of notes, and one with the highest fence, which several processes share."""

    def __init__(self, folder: Path) -> None:
        self._notes = os.open(folder / "notes", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._fence = os.open(folder / "fence", os.O_CREAT | os.O_RDWR)

    def note(self, what: str, turn: str) -> None:
        os.write(self._notes, f"{what} {turn} {time.monotonic()!r}\n".encode())

    def write(self, turn: str, fence: int | None) -> None:
        """Write as the holder of ``turn``. Raises StaleWrite, with a fence alone."""
        fcntl.flock(self._fence, fcntl.LOCK_EX)
        try:
            (highest,) = _FENCE.unpack(os.pread(self._fence, _FENCE.size, 0) or bytes(_FENCE.size))
            if fence is not None and fence < highest:
                self.note("refused", turn)
                raise StaleWrite
            os.pwrite(self._fence, _FENCE.pack(fence or 0), 0)
            self.note("written", turn)
        finally:
            fcntl.flock(self._fence, fcntl.LOCK_UN)


class Findings(NamedTuple):
    """``stale``: writes after one of a later holder; ``stall``: the longest time without a holder.

    A holder is one from its grant to its last write.
    """

    grants: int
    overlaps: int
    stale: int
    refused: int
    errors: int
    stall: float

    @classmethod
    def read(cls, notes: Path, began: float, ended: float) -> Findings:
        """Count what stands in ``notes`` of a storm from ``began`` to ``ended``."""
        turns: dict[str, Turn] = {}
        counts: Counter[str] = Counter()
        latest = float("-inf")
        for line in notes.read_text().splitlines():
            what, turn, at = line.split()
            moment = float(at)
            counts[what] += 1
            if what == "granted":
                turns[turn] = Turn(0, moment, moment, moment)
            elif what == "written":
                turns[turn] = turns[turn]._replace(ended=moment)
                counts["stale"] += turns[turn].began < latest
                latest = max(latest, turns[turn].began)
        stall, end = 0.0, began
        for each in sorted(turns.values(), key=lambda each: each.began):
            stall, end = max(stall, each.began - end), max(end, each.ended)
        return cls(
            len(turns),
            overlaps(turns.values()),
            counts["stale"],
            counts["refused"],
            counts["error"],
            max(stall, ended - end),
        )
