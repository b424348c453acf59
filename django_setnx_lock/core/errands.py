"""What the watchdog asks Redis for: renewals, and looks after who the lock was handed to."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from . import clock, protocol
from .errors import LockLost

if TYPE_CHECKING:
    from .grant import Grant
    from .target import Target

logger = logging.getLogger("django_setnx_lock.renewal")

_FIRST_LOOK = 0.02
# Longer than a baton waits for the one it is made out to.
_AFTER_CLAIM = 1.05
_LOOK_AGAIN_AFTER_ERROR = (0.1, 0.3, 0.6, 1.0)


class Errand(Protocol):
    """One request to be sent for a lock, and what to do with its answer."""

    target: Target
    key: str

    @property
    def deadline(self) -> float:
        """From when on the answer is of no use, on the local clock."""

    def request(self, now: float) -> protocol.Request:
        """What to send at ``now``."""

    def answered(self, reply: Sequence[Any], sent: float, now: float) -> None:
        """Redis has answered what was sent at ``sent``."""

    def failed(self, error: Exception, now: float) -> None:
        """It has not, or with an error."""


class Renewal:
    """Has the lease of ``held`` start anew. ``lost`` is told when it cannot."""

    def __init__(self, held: Grant, lost: Callable[[Grant, LockLost], None]) -> None:
        self.held = held
        self.target = held.target
        self.key = held.key
        self._lost = lost
        self._cuts = 0
        self._dialect = held.target.dialect

    @property
    def deadline(self) -> float:
        return self.held.lease.end

    def request(self, now: float) -> protocol.Request:
        lease = self.held.lease
        lease.asked = True
        if lease.tried_since is None:
            lease.tried_since = now
        self._cuts = lease.cuts
        self._dialect = self.held.target.dialect
        held, lease_ms = self.held, lease.to_ask(now)
        if lease.trouble is not None and not held.is_followed:
            alone = self.target.alone(held.token, lease_ms, lease.trouble)
            if alone is not None:
                return alone
        return held.renewing(lease_ms, "least")

    def answered(self, reply: Sequence[Any], sent: float, now: float) -> None:
        lease = self.held.lease
        lease.asked = False
        try:
            protocol.read_kept(reply, self.key)
        except LockLost as error:
            if self.held.target.dialect is self._dialect:
                self._lost(self.held, error)
            else:
                # It stands in Redis in another way since.
                lease.failed(now, error)
            return
        # What comes after the end is too late: the lock may have been seen to be lost.
        if now < lease.end:
            lease.confirm(sent, int(reply[1]) / 1000, self._cuts)
            self._log_success()
            lease.trouble = lease.tried_since = None
            lease.plan(sent)

    def failed(self, error: Exception, now: float) -> None:
        lease = self.held.lease
        if lease.trouble is None and self.held.on_trouble is None:
            left = max(lease.end - now, 0)
            logger.info("cannot renew the lock %r, trying on for %.1f s: %s", self.key, left, error)
        else:
            logger.debug("cannot renew the lock %r: %s", self.key, error)
        lease.failed(now, error)
        self.held.tell_trouble()

    def _log_success(self) -> None:
        held = self.held
        if held.lease.trouble is not None and held.on_trouble is None:
            logger.info("the lock %r is renewed again", self.key)
        elif logger.isEnabledFor(logging.DEBUG):
            # Not its remaining(), which may wait for the answer to a claim.
            left = held.lease.end - clock.now()
            logger.debug("renewed the lock %r: %.1f s left", self.key, left)


class Look:
    """Looks whether the waiter ``head`` has claimed the lock that was handed to it.

    If not it goes to the next in the queue, whom to look after in turn; ``done`` is called
    when there is nobody to look after. ``is_last``: whether it is not to look again.
    """

    deadline = math.inf

    def __init__(self, target: Target, head: str, now: float, done: Callable[[Look], None]) -> None:
        self.target = target
        self.client = target.client
        self.key = target.key
        self.owed_since = now
        self.due = now + _FIRST_LOOK
        self.is_last = False
        self._head = head
        self._done = done
        self._pauses = list(_LOOK_AGAIN_AFTER_ERROR)

    def request(self, now: float) -> protocol.Request:
        return self.target.dialect.look(self.target.keys, self._head, is_last=self.is_last)

    def answered(self, reply: Sequence[Any], sent: float, now: float) -> None:
        head = protocol.read_handed_on(reply)
        if not head or self.is_last:
            self._done(self)
            return
        # Who handed it to another meanwhile looks after that one, too.
        self.due = now + (_FIRST_LOOK if protocol.read_passed_on(reply) else _AFTER_CLAIM)
        self._head = head

    def failed(self, error: Exception, now: float) -> None:
        if self._pauses and not self.is_last:
            self.due = now + self._pauses.pop(0)
        else:
            # The waiters themselves look now and then.
            self._done(self)
