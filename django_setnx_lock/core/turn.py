"""One attempt of one caller to take one lock."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from . import clock, events, protocol, reentrancy, sharing, waiting, watchdog
from .ahead import FRESH, ClaimedLease
from .calling import UNDO_WITHIN, call_replicated
from .errors import LockBusy, LockUnavailable
from .held import Held
from .holder import Holder
from .lease import Upkeep
from .outage import Outage
from .replicas import Replicas
from .target import Target

if TYPE_CHECKING:
    from .aio.owner import Owner
    from .watchlist import WatchList

logger = logging.getLogger("django_setnx_lock.lock")


class Turn:
    """An attempt, known to Redis by its token."""

    # See Possession.
    least_ms = 0
    # Those that have to know of a grant.
    replicas: Replicas | None = None
    # Since it waits.
    outage: Outage | None = None

    def __init__(
        self, target: Target, lease_ms: int, holder: Holder, upkeep: Upkeep | None = None
    ) -> None:
        self.target = target
        self.upkeep = upkeep or Upkeep()
        self.held: Held | None = None
        self.owner: Owner | None = None
        self.lease_ms = lease_ms
        self.record = holder.to_json()
        self.token = target.dialect.new_token()
        self._waits = False
        self._began = clock.now()

    def request(self, *, waits: bool) -> protocol.Request:
        wait_ms = waiting.SLICE_MS if waits else 0
        self._waits = waits
        target = self.target
        return target.dialect.acquire(
            target.keys, target.index, self.token, self.lease_ms, self.record, wait_ms
        )

    def ask(self, *, waits: bool, within: float | None = None) -> Held | protocol.Busy:
        """Ask once. A grant that took longer to arrive than it lasts is given back.

        ``within``: the seconds in which the answer has to come (None: the limits of the client).
        """
        sent = clock.now()
        request, target = self.request(waits=waits), self.target
        if self.replicas is None:
            reply = target.ask(request, waits=waits, within=within, undo=self.undo)
        else:
            reply = call_replicated(
                target.client, request, target.key, self.replicas, within=within, undo=self.undo
            )
        return self.read(reply, sent)

    def undo(self) -> list[protocol.Request]:
        """What undoes the request that was sent last."""
        return [self.leaving()]

    def read(self, reply: Any, sent: float) -> Held | protocol.Busy:
        """What ``reply`` to a request sent at ``sent`` means."""
        answer, now = protocol.read_acquire(reply), clock.now()
        if self.is_late(answer, sent, now):
            self.leave()
        return self.settle(answer, sent, now)

    def ahead(self, answer: protocol.Busy) -> protocol.Ahead | None:
        """What to send ahead before sleeping upon ``answer``; None if that is of no use.

        The lock has to be renewed, so that it is seen to if its whole lease is not had at once.
        """
        upkeep = self.upkeep
        is_seen_to = upkeep.renew and upkeep.max_hold is None
        if answer.foreign or not is_seen_to or self.lease_ms <= protocol.CLAIM_MS:
            return None
        if self.replicas is not None or self.target.dialect.is_shared():
            # Nothing sent ahead tells what has reached them, or joins others.
            return None
        return protocol.ahead(
            self.target.keys, self.target.index, self.token, self.lease_ms, self.record
        )

    def take_up(self, claim: waiting.Claim) -> Held | None:
        """The lock that what was sent ahead has taken; None when it is to be asked for again."""
        now, seconds = clock.now(), self.lease_ms / 1000
        if now >= claim.sent + FRESH:
            claim.give_back()
            return None
        held = Held(
            self.target,
            token=self.token,
            fence=claim.fence,
            timeout=seconds,
            deadline=now + seconds,
            upkeep=self.upkeep,
        )
        held.lease = ClaimedLease(seconds, claim)
        return self._has(held, claim.sent)

    def is_late(self, answer: protocol.Answer, sent: float, now: float) -> bool:
        """Whether ``answer`` is a grant that is to be given back."""
        return isinstance(answer, protocol.Granted) and now >= sent + self.lease_ms / 1000

    def settle(self, answer: protocol.Answer, sent: float, now: float) -> Held | protocol.Busy:
        """What ``answer`` means that came ``now``; if it was late, it has been given back."""
        if isinstance(answer, protocol.Busy):
            if self.outage is not None:
                self.outage.is_over()
            if self._sees_to_it(answer):
                self.watchlist.has_seen(self.target, sent)
            return answer
        if isinstance(answer, protocol.Granted) and not self.is_late(answer, sent, now):
            held = Held(
                self.target,
                token=self.token,
                fence=answer.fence,
                timeout=self.lease_ms / 1000,
                deadline=sent + self.lease_ms / 1000,
                upkeep=self.upkeep,
                owner=self.owner,
            )
            if answer.head:
                self.watchlist.owe_look(self.target, answer.head)
            return self._has(held, sent)
        # A token that was given up or forced out is never used again.
        self.token = self.target.dialect.new_token()
        return protocol.Busy(remaining=0.0, holder=None)

    def _sees_to_it(self, answer: protocol.Busy) -> bool:
        """Whether nobody else need look who has the lock.

        It is held by one of ours, and if perhaps for the claim time only, this caller asks then.
        """
        if answer.foreign or answer.handed_on:
            return False
        left = answer.remaining
        return self._waits or left is None or left > protocol.CLAIM_MS / 1000

    def _has(self, held: Held, sent: float) -> Held:
        """The lock was taken by what was sent then: see to it."""
        self.held = held
        if self.least_ms:
            held.least_ms = self.least_ms
        if not self.target.dialect.is_shared():
            self.watchlist.has_seen(self.target, sent)
        held.begin_upkeep()
        if logger.isEnabledFor(logging.DEBUG):
            waited = clock.now() - self._began
            logger.debug(
                "took the lock %r: fence %d, waited %.3f s", self.target.key, held.fence, waited
            )
        if self.upkeep.is_noted:
            reentrancy.note(held)
        if events.ACQUIRED.listeners:
            events.ACQUIRED.tell(
                key=self.target.key,
                template=self.target.template,
                fence=held.fence,
                waited=clock.now() - self._began,
            )
        return held

    def has_adopted(self, held: Held, sent: float) -> Held:
        """The lock was taken over, as ``held``, by what was sent then: see to it."""
        self.token = held.token
        return self._has(held, sent)

    @property
    def watchlist(self) -> WatchList:
        """What renews the lock, and looks after whoever it is handed to."""
        return watchdog.WATCHDOG if self.owner is None else self.owner.watchdog

    def leave(self) -> None:
        """Give up: whatever was or will be granted to this token is undone."""
        self.read_left(self.target.call(self.leaving(), within=UNDO_WITHIN))

    def read_left(self, reply: Any) -> None:
        """Take note of the ``reply`` to :meth:`leaving`."""
        head = protocol.read_handed_on(reply)
        if head:
            self.watchlist.owe_look(self.target, head)
        logger.debug("gave up the lock %r", self.target.key)

    def outlast(self, error: LockUnavailable, give_up_at: float | None) -> float:
        """As :meth:`Outage.pause`. Raises ``error`` also when the caller does not wait yet."""
        if self.outage is None:
            raise error
        return self.outage.pause(error, give_up_at)

    def tell_wait(self, answer: protocol.Busy) -> None:
        """The caller waits from now on; say in the log for whom."""
        self.outage = Outage(self.target.client)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("waits for the lock %r, %s", self.target.key, _who_has(answer))

    def leaving(self) -> protocol.Request:
        """The request that gives up. What was granted is renewed no longer."""
        if self.held is not None:
            self.held.watchdog.forget(self.held)
            sharing.close(self.held)
        return self.target.dialect.leave(self.target.keys, self.target.index, self.token)

    def busy(self, answer: protocol.Busy) -> LockBusy:
        """The error for an ``answer`` that ends the attempt."""
        key = self.target.key
        error = LockBusy(
            f"the lock {key!r} is {_who_has(answer)}",
            key=key,
            holder=answer.holder,
            remaining=answer.remaining,
        )
        logger.debug("%s", error)
        if events.BUSY.listeners:
            events.BUSY.tell(
                key=key,
                template=self.target.template,
                waited=clock.now() - self._began,
                error=error,
            )
        return error


def _who_has(answer: protocol.Busy) -> str:
    whom = str(answer.holder) if answer.holder else "somebody else"
    left = answer.remaining
    until = "never expires" if left is None else f"has {left:.1f} s left"
    return f"held by {whom}; the lease {until}"
