"""One attempt of one caller to take one lock on several masters."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from .. import clock, events, protocol, reentrancy
from ..held import Held
from ..turn import Turn
from . import quorum
from .held import MastersHeld, MastersLease
from .masters import Masters

logger = logging.getLogger("django_setnx_lock.lock")


class MastersTurn(Turn):
    """An attempt, known to all masters by the same token."""

    @property
    def masters(self) -> Masters:
        """Whom to ask."""
        masters: Masters = self.target.client
        return masters

    def ask(self, *, waits: bool, within: float | None = None) -> Held | protocol.Busy:
        """Ask once. What was granted in vain is given back. Raises LockUnavailable.

        ``waits`` is of no effect: there is no queue that all masters have in common. Nor is
        ``within``: it takes the time of the masters.
        """
        sent = clock.now()
        replies = self.masters.ask(self.request(waits=False))
        answer = quorum.read_acquires(replies)
        seconds = self.lease_ms / 1000
        ends = sent + seconds - quorum.drift(seconds)
        if isinstance(answer, protocol.Granted) and clock.now() < ends:
            return self._has_majority(sent, ends)
        self._give_back(replies)
        self.token = protocol.new_token()
        if answer is None:
            raise self.masters.unavailable(replies, self.target.key)
        if isinstance(answer, protocol.Busy):
            return answer
        return protocol.Busy(remaining=0.0, holder=None)

    def _give_back(self, replies: Sequence[Any]) -> None:
        """Leave all masters, but for those that gave the attempt up when they said busy.

        Those that did not answer are told behind what they were asked, and not waited for.
        """
        found = dict(enumerate(replies))
        to = [number for number, reply in found.items() if not _is_busy(reply)]
        answered = [number for number in to if not isinstance(found[number], Exception)]
        if to:
            self.masters.ask(self.leaving(), to=to, awaited=answered, insists=True)
        logger.debug("gave up the lock %r", self.target.key)

    def leave(self) -> None:
        """Give up: whatever was or will be granted to this token is undone."""
        self.masters.ask(self.leaving(), insists=True)
        logger.debug("gave up the lock %r", self.target.key)

    def _has_majority(self, sent: float, ends: float) -> MastersHeld:
        held = self.held = MastersHeld(
            self.target,
            token=self.token,
            fence=0,
            timeout=self.lease_ms / 1000,
            # From when on it is held is reckoned from it.
            deadline=sent + self.lease_ms / 1000,
            upkeep=self.upkeep,
        )
        held.lease = MastersLease(ends - sent, ends, self.upkeep.max_hold)
        held.begin_upkeep()
        waited = clock.now() - self._began
        logger.debug("took the lock %r on a majority: waited %.3f s", self.target.key, waited)
        if self.upkeep.is_noted:
            reentrancy.note(held)
        if events.ACQUIRED.listeners:
            events.ACQUIRED.tell(
                key=self.target.key, template=self.target.template, fence=None, waited=waited
            )
        return held


def _is_busy(reply: Any) -> bool:
    return not isinstance(reply, Exception) and protocol.text(reply[0]) == "BUSY"
