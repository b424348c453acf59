"""The arithmetic: from the times of turns to figures. All times are seconds on one clock."""

from __future__ import annotations

import bisect
import itertools
import math
import re
import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# The arguments of a command as MONITOR prints them.
_ARGUMENT = re.compile(rb'"((?:[^"\\]|\\.)*)"')


class Turn(NamedTuple):
    """One acquisition: ``who`` began to want it, was in from ``began`` to ``ended``."""

    who: int
    wanted: float
    began: float
    ended: float
    token: str | None = None


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the smallest value that at least ``percent`` of ``values`` do not exceed."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


def median(values: Iterable[float]) -> float:
    return float(statistics.median(values))


def overlaps(turns: Iterable[Turn]) -> int:
    """Return how many turns began before an earlier one had ended."""
    found, latest_end = 0, -math.inf
    for turn in sorted(turns, key=lambda turn: turn.began):
        found += turn.began < latest_end
        latest_end = max(latest_end, turn.ended)
    return found


def handovers(turns: Iterable[Turn]) -> list[float]:
    """Return the time from each release till the next holder was in.

    Only where the next is another than before, who was waiting at the release and came after it.
    """
    ordered = sorted(turns, key=lambda turn: turn.began)
    return [
        after.began - before.ended
        for before, after in itertools.pairwise(ordered)
        if before.who != after.who and after.wanted < before.ended <= after.began
    ]


def most_overtaken(turns: Iterable[Turn]) -> int:
    """Return the most turns that were wanted after, and began before, one and the same turn."""
    return _most_passed([turn.wanted for turn in sorted(turns, key=lambda turn: turn.began)])


def most_overtaken_by_arrival(turns: Iterable[Turn], arrivals: Sequence[str]) -> int:
    """Return the same by the order in which the server first saw each turn's token.

    Raises ValueError when it never saw one.
    """
    place = {token: number for number, token in enumerate(arrivals)}
    ordered = sorted(turns, key=lambda turn: turn.began)
    missing = [turn for turn in ordered if turn.token not in place]
    if missing:
        raise ValueError(f"{len(missing)} turns of which the server saw nothing")
    return _most_passed([place[turn.token] for turn in ordered if turn.token])


def arrivals(monitored: bytes, tokens: Iterable[str]) -> list[str]:
    """Return ``tokens`` in the order in which a client first sent them, from MONITOR's output."""
    left = {token.encode(): token for token in tokens}
    # What a script does is no arrival.
    lines = (line for line in monitored.split(b"\r\n") if b" lua] " not in line)
    sent = (argument for line in lines for argument in _ARGUMENT.findall(line))
    return [left.pop(argument) for argument in sent if argument in left]


def longest_wait(turns: Iterable[Turn]) -> float:
    return max(turn.began - turn.wanted for turn in turns)


def span(turns: Sequence[Turn]) -> float:
    """Return the time from the first wish to the last end."""
    return max(turn.ended for turn in turns) - min(turn.wanted for turn in turns)


def _most_passed(places: Sequence[float]) -> int:
    """Return the most later places that stand before one and the same place."""
    earlier: list[float] = []
    most = 0
    for place in places:
        most = max(most, len(earlier) - bisect.bisect_right(earlier, place))
        bisect.insort(earlier, place)
    return most
