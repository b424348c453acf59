"""What a caller does besides as it waits: it warns of a long wait, and looks for a deadlock."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from .. import clock
from ..errors import LockDeadlock, LockUnavailable, WaitStep
from ..holder import Holder
from ..protocol.replies import text
from ..protocol.requests import Request, Script
from . import parent
from .attempt import Attempt

if TYPE_CHECKING:
    from ..connections.backend import Backend
    from ..protocol.replies import Busy

logger = logging.getLogger("django_setnx_lock.lock")

DEADLOCK = Script("deadlock")
# What a caller says of itself is believed until it has had time to say it twice, and a while.
_LATE = 0.5


class WatchfulAttempt(Attempt):
    """An attempt that says in the log for whom it waits, and looks whether that is itself.

    The last to begin to wait finds a deadlock: all others have said by then that they wait. Once
    one is refused, nobody else finds it.
    """

    _has_warned = False
    _looked_at = 0.0

    async def _longest_sleep(self, io: Backend, busy: Busy) -> float:
        longest, options = await super()._longest_sleep(io, busy), self.target.options
        warn_at = self._began + (options.wait_warning or math.inf)
        if not self._has_warned:
            left = warn_at - clock.now()
            longest = min(longest, max(left, 0) + 0.001)
            if left <= 0:
                self._has_warned = True
                waited, key = clock.now() - self._began, self.target.key
                logger.warning("has waited %.1f s for the lock %r, %s", waited, key, busy)
        every = options.deadlock_timeout
        request = self._looking(every) if every is not None else None
        if every is None or request is None:
            return longest
        if clock.now() >= max(self._looked_at, self._began) + every:
            self._looked_at = clock.now()
            await self._look(io, busy, request)
        return min(longest, max(self._looked_at, self._began) + every - clock.now() + 0.001)

    def _looking(self, every: float) -> Request | None:
        """Return the request that says who waits, and what it holds at the server where it queues.

        None for a caller that holds nothing there. No variable of who awaits the reply has the
        tokens: reports of errors show those.
        """
        session, target = self.session, self.target
        if target.scripts.polls or not session.has_index:
            return None
        held = dict(parent.environment.held_at(session))
        for (place, name), reference in list(self.owner.holds.items()):
            grant = reference()
            is_held = grant is not None and grant.is_here and not grant.is_over
            if place == session.place and is_held and grant.owner is self.owner and grant.held_by():
                held[name] = grant.token
        life = str(int((2 * every + _LATE) * 1000))
        args = (self.token, life, self._record, *held.values())
        return Request(DEADLOCK, (*target.keys[:2], *held), args) if held else None

    async def _look(self, io: Backend, busy: Busy, request: Request) -> None:
        """Say who waits, while it holds what. Raises LockDeadlock."""
        target, key = self.target, self.target.key
        try:
            found = (await self.session.call(io, request, key, limits=1)).value
        except LockUnavailable as error:
            # It is told of where it asks for the lock itself.
            logger.debug("cannot look for a deadlock at the lock %r: %s", key, error)
            return
        if not found:
            return
        prefix = target.keys[0].removesuffix(key)
        keys = [text(name).removeprefix(prefix) for name in found[1::2]]
        who = [Holder.from_json(text(record)) for record in found[::2]]
        cycle = tuple(map(WaitStep, who, [*keys[-1:], *keys[:-1]], keys))
        refused = LockDeadlock(
            f"waiting for the lock {key!r} is a deadlock: {'; '.join(map(str, cycle))}",
            cycle=cycle,
            key=key,
            holder=busy.holder,
            remaining=busy.remaining,
        )
        # Its place in the queue is given up, which no copy of a request can take again.
        refused.in_doubt = self.was_retried  # type: ignore[attr-defined]  # for who gives it up
        logger.debug("%s", refused)
        raise refused
