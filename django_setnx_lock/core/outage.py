"""What a waiter does while no primary can be asked. Pure: no I/O, no sleep."""

from __future__ import annotations

import logging
import random
from typing import Any

from . import clock
from .errors import LockUnavailable

logger = logging.getLogger("django_setnx_lock.lock")

# Sentinels that are set up as by default need half of that to notice and to agree.
LONGEST = 60.0
_PAUSE = 0.2
# What a failover ends.
_PASSING = frozenset({"unreachable", "timeout", "readonly"})


class Outage:
    """The time in which one who waits for a lock cannot ask for it.

    Where Sentinels say which server is the primary, they will name another one, so the wait goes
    on: until the caller's own time is over, or for a minute. Elsewhere it does not.
    """

    def __init__(self, client: Any) -> None:
        pool = getattr(client, "connection_pool", None)
        self._is_borne = getattr(pool, "sentinel_manager", None) is not None
        self._began: float | None = None

    def is_over(self) -> None:
        """Take note that the waiter was answered."""
        self._began = None

    def pause(self, error: LockUnavailable, give_up_at: float | None) -> float:
        """How many seconds to wait before asking again after ``error``.

        ``give_up_at``: when the caller's own time is over, on the local clock (None: never).
        Raises ``error`` where the wait does not go on.
        """
        if not self._is_borne or error.cause not in _PASSING:
            raise error
        now = clock.now()
        if self._began is None:
            self._began = now
            logger.debug("waits on for the lock %r through an outage: %s", error.key, error)
        end = self._began + LONGEST
        if give_up_at is not None:
            end = min(end, give_up_at)
        if now >= end:
            raise error
        # With jitter, so that those who wait do not ask the new primary all at once.
        return min(_PAUSE * random.uniform(0.5, 1.0), end - now)  # noqa: S311 - no secret
