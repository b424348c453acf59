"""How a command is made to end: it is asked to, and killed when it has not ended in time."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable

from django_setnx_lock.core import clock

from .child import Child


class Ending:
    """Ends ``child``. ``say`` is told when it is killed.

    ``next``: when there is something to do, on ``clock``. ``killed_at``: None until it was.
    """

    def __init__(self, child: Child, say: Callable[[str], None]) -> None:
        self.next = math.inf
        self.killed_at: float | None = None
        self._child = child
        self._say = say

    def ask(self, kill_at: float) -> None:
        """Ask it to end, and have it killed at ``kill_at``; never later than said before."""
        if self.killed_at is not None:
            return
        if self.next == math.inf:
            self._child.send_to_all(signal.SIGTERM, signal.SIGCONT)
        self.next = min(self.next, kill_at)

    def look(self) -> None:
        """Kill it if it is time for that."""
        if clock.now() >= self.next:
            self.kill("did not end in time")

    def kill(self, why: str = "") -> None:
        """Kill it now; tell ``why``, unless nothing is said, or what is left are its children."""
        if self.killed_at is not None:
            return
        self.next, self.killed_at = math.inf, clock.now()
        allowed = self._child.kill()
        if self._child.status is not None or (allowed and not why):
            return
        end = "is killed" if allowed else "may not be killed by us: it runs on"
        self._say(f"{self._child.program} {f'{why} and ' if why else ''}{end}")
