"""What the page that draws who waits for whom shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Generic, TypeVar

from ..core.inspection import LockInfo
from ..core.wait_graph import Link, WaitGraph

# What the page has of a lock.
_Row = TypeVar("_Row")
# So many lines are drawn at most.
MOST = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Line(Generic[_Row]):
    """A lock in nested lists: whether a list begins before it, and how many end after it.

    ``ends``: whether its item ends after it, and those lists.
    """

    row: _Row
    opens: bool
    closes: range
    ends: bool
    behind: int
    names: str
    is_repeated: bool
    is_circle: bool


def lines_of(graph: WaitGraph, row: Callable[[LockInfo], _Row]) -> tuple[list[Line[_Row]], bool]:
    """Return the lines, and whether there are more than are drawn."""
    links: list[Link | None] = [None, *islice(graph.drawing(), MOST + 1)]
    is_cut = len(links) > MOST + 1
    links = [*links[: MOST + 1], None]
    lines = []
    for number, (link, after) in enumerate(pairwise(links[1:])):
        if link is None:
            break
        before = links[number]
        depth = after.depth if after else -1
        more = link.lock.waiting - len(link.lock.waiters)
        names = ", ".join(str(one.holder or "?") for one in link.lock.waiters)
        lines.append(
            Line(
                row=row(link.lock),
                opens=before is None or link.depth > before.depth,
                closes=range(max(link.depth - depth, 0)),
                ends=0 <= depth <= link.depth,
                behind=link.behind,
                names=f"{names} +{more}" if more > 0 else names,
                is_repeated=link.is_repeated,
                is_circle=link.is_circle,
            )
        )
    return lines, is_cut
