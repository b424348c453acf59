"""The decision of a majority of masters. Pure: no I/O, no clock.

The rules are those of Redlock: https://redis.io/docs/latest/develop/use/patterns/distributed-locks/
A reply that is an exception stands for a master that could not be asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import Any

from .replies import Answer, Busy, Granted, is_ok, read_acquire, text

_DRIFT_PART, _DRIFT_LEAST = 0.01, 0.002


def majority(count: int) -> int:
    """How many of ``count`` masters have to agree."""
    return count // 2 + 1


def drift(seconds: float) -> float:
    """By how much the masters' clocks may differ from ours in a lease of ``seconds``."""
    return seconds * _DRIFT_PART + _DRIFT_LEAST


def lease_for(seconds: float) -> float:
    """Return the lease of which ``seconds`` are left without the drift."""
    return (seconds + _DRIFT_LEAST) / (1 - _DRIFT_PART)


def read_acquires(replies: Sequence[Any]) -> Answer | None:
    """Return the majority's answer to an acquire; None when too few masters could be asked.

    It is busy when enough could be asked and nobody got a majority.
    """
    answers = [read_acquire(reply) for reply in _given(replies)]
    needed = majority(len(replies))
    granted = [answer for answer in answers if isinstance(answer, Granted)]
    if len(granted) >= needed:
        return granted[0]
    if len(answers) < needed:
        return None
    return _busiest([answer for answer in answers if isinstance(answer, Busy)])


def read_kept(replies: Sequence[Any]) -> Any:
    """Return the majority's reply to a check, renewal or release; None when there is none.

    A renewal's milliseconds are those that a majority has at the least, the drift taken off.
    """
    needed = majority(len(replies))
    given = list(_given(replies))
    kept = [reply for reply in given if is_ok(reply)]
    if len(kept) >= needed:
        # An operator may have asked it to stop at one of them only.
        asked = [reply[2] for reply in kept if len(reply) > 2][:1]
        return ["OK", _had_by(needed, [reply[1] for reply in kept]), *asked]
    lost = [text(reply[1]) for reply in given if text(reply[0]) == "LOST"]
    if len(lost) > len(replies) - needed:
        # Prefer a mark that says by whom it was forced.
        return ["LOST", max(lost, key=lambda mark: (mark or "").startswith("{"))]
    return None


def may_be_held(replies: Sequence[Any]) -> bool | None:
    """Whether so many of the names exist that nobody can get a majority; None: too few answers."""
    given = list(_given(replies))
    needed = majority(len(replies))
    if len(given) < needed:
        return None
    return sum(map(bool, given)) > len(replies) - needed


def _given(replies: Sequence[Any]) -> Sequence[Any]:
    return [reply for reply in replies if not isinstance(reply, Exception)]


def _busiest(busy: Sequence[Busy]) -> Busy:
    """Return the answer for the holder of most masters, with the longest time it has left."""
    if not busy:
        return Busy(remaining=0.0, holder=None)
    holder = Counter(answer.holder for answer in busy).most_common(1)[0][0]
    left = [answer.remaining for answer in busy if answer.holder == holder]
    longest = max(inf if one is None else one for one in left)
    return Busy(remaining=None if longest == inf else longest, holder=holder)


def _had_by(needed: int, values: Sequence[Any]) -> int | None:
    """Return the milliseconds that ``needed`` masters have; None for replies without a time."""
    if not all(isinstance(value, int) for value in values):
        return None
    ms = sorted((inf if value < 0 else value for value in values), reverse=True)[needed - 1]
    return -1 if ms == inf else max(int(ms - drift(ms / 1000) * 1000), 0)
