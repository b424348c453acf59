"""How long a waiter pauses before it asks again."""

from __future__ import annotations

import random

_FIRST, _LONGEST = 0.004, 0.1
# A waiter counts as waiting for this long after each time it asked.
PRESENCE_MS = 2_000


def pause(tries: int, remaining: float | None, left: float | None) -> float:
    """Seconds to pause after ``tries`` busy answers (at least 1).

    The pauses double and are jittered, so that many waiters do not ask in step. They reach
    neither far beyond the end of the holder's lease (``remaining``) nor beyond the caller's
    own time (``left``); None means without end.
    """
    longest = min(_FIRST * 2.0 ** min(tries, 10), _LONGEST)
    seconds = longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, secures nothing
    if remaining is not None:
        seconds = min(seconds, remaining + 0.001)
    if left is not None:
        seconds = min(seconds, left)
    return seconds
