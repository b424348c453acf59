"""The warning about a wait that takes too long."""

from __future__ import annotations

import logging
import math

from .. import clock
from ..protocol.replies import Busy

logger = logging.getLogger("django_setnx_lock.lock")

# A sleep may end so much early. Its caller is not to ask twice for one warning.
_EARLY = 0.01


class WaitWarning:
    """Warns in the log, once, when a caller has waited for ``after`` seconds from now on.

    None: never.
    """

    def __init__(self, after: float | None) -> None:
        self._after = after
        self._began = clock.now()

    def due_in(self, key: str, answer: Busy) -> float:
        """Return how many seconds to sleep at most, so that the warning comes in time.

        Warns if it is due by now, that ``key`` is busy by ``answer``.
        """
        if self._after is None:
            return math.inf
        waited = clock.now() - self._began
        if waited < self._after - _EARLY:
            return self._after - waited
        self._after = None
        logger.warning("has waited %.1f s for the lock %r, %s", waited, key, who_has(answer))
        return math.inf


def who_has(answer: Busy) -> str:
    """Return who holds the lock by ``answer``, and how much is left of the lease."""
    whom = str(answer.holder) if answer.holder else "somebody else"
    left = answer.remaining
    until = "never expires" if left is None else f"has {left:.1f} s left"
    return f"held by {whom}; the lease {until}"
