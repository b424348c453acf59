"""What every part of the bench is given, and what it gives back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.workers import Crew, JobFailed

if TYPE_CHECKING:
    from bench.address import Observer

# The figures of one peer in one round of a part; what cannot be had is None.
Figures = dict[str, Any]


@dataclass
class Bench:
    """One run: the server, who takes part, and how long it may take."""

    observer: Observer
    peers: tuple[str, ...]
    quick: bool

    def choose(self, quick: Any, full: Any) -> Any:
        return quick if self.quick else full

    def taking_part(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self.peers]


@dataclass
class Outcome:
    """What came of one part: for each peer its rounds, or in words why it failed."""

    rounds: dict[str, list[Figures]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, measure: Callable[[Crew], Figures]) -> None:
        """Measure one round of a peer, unless it has failed already."""
        if name in self.failed:
            return
        with Crew() as crew:
            self.note(name, lambda: measure(crew))

    def note(self, name: str, measure: Callable[[], Figures]) -> None:
        """Keep what ``measure`` gives, or the words of its JobFailed."""
        say(f"  {name}")
        try:
            self.rounds.setdefault(name, []).append(measure())
        except JobFailed as error:
            self.failed[name] = str(error)
            say(f"  {name} failed: {error}")

    def summary(self) -> dict[str, Any]:
        """Return for each peer the medians over its rounds, the rounds, or why it failed."""
        said: dict[str, Any] = {
            name: {"figures": medians(rounds), "rounds": rounds}
            for name, rounds in self.rounds.items()
            if rounds and name not in self.failed
        }
        return said | {name: {"failed": why} for name, why in self.failed.items()}


# Of these a median would hide what happened: every round counts.
SUMS = ("overlaps", "lost_updates", "early", "lost", "turns", "failures")
WORSTS = ("most_overtaken", "most_overtaken_by_arrival", "longest_wait_s")


def medians(rounds: list[Figures]) -> Figures:
    """Return the median of each figure over ``rounds``; overlaps and the like add up."""
    summary: Figures = {}
    for name in dict.fromkeys(name for figures in rounds for name in figures):
        values = [figures[name] for figures in rounds if figures.get(name) is not None]
        if values and isinstance(values[0], (int, float)):
            gather = sum if name in SUMS else max if name in WORSTS else median
            summary[name] = gather(values)
    return summary


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
