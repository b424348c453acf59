"""Keeping a lock that was granted, handing it over, and losing it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from . import clock, events, protocol, sharing
from .errors import LockLost
from .flow import Strand
from .possession import Possession
from .shared import READERS, downgrade

if TYPE_CHECKING:
    from .aio.block import Block
    from .aio.owner import Owner

logger = logging.getLogger("django_setnx_lock.events")


class Grant(Possession):
    """A lock that was granted. Asks nobody itself: the handles build on it, and the watchdog."""

    def handover(self) -> None:
        """Let the lock outlive the thread or task that took it: whoever has the handle holds it.

        Without this a lock is renewed no longer when that has ended. Nobody has the lock again
        from then on without waiting for it. The event loop that a task took it in has to go on
        all the same.
        """
        root = self.root
        root._strand = None
        if root._owner is not None:
            root._owner.let_go()
        sharing.close(root)
        if self._is_renewed and self.remaining():
            root.watchdog.watch(root)

    def begin_renewal(self) -> None:
        """Renew it from now on, for a share; nothing if that is done already."""
        if self._strand is None and self._owner is None:
            self._strand = Strand()
        self.watchdog.watch(self)

    def end_renewal(self) -> None:
        """Renew it no longer."""
        self.watchdog.forget(self)

    def give_up(self, why: str) -> None:
        """Neither renew it any more nor let anybody have it again."""
        sharing.close(self)
        self.root.end_renewal()
        self.root._given_up = why

    @property
    def _is_renewed(self) -> bool:
        return any(one.wants_renewal for one in sharing.handles_of(self))

    def belong_to(self, owner: Owner) -> None:
        """Be cancelled with the task of ``owner``, for a share that it has got."""
        root = self.root._owner
        self._owner = root if root is not None and root.is_of_same_task(owner) else owner

    def enter(self, block: Block) -> None:
        """The task that took it runs ``block`` under it."""
        if self._owner is not None:
            self._owner.enter(block)

    def leave(self, block: Block) -> None:
        """It no longer does."""
        if self._owner is not None:
            self._owner.leave(block)

    def begin_upkeep(self) -> None:
        """Have it renewed from now on, if it is to be."""
        if self._upkeep.renew:
            self.watchdog.watch(self)

    def releasing(self) -> protocol.Request:
        """The request that lets the lock go, which is renewed no longer."""
        if self.watchdog.forget(self.root) and self.lease.is_over(clock.now()):
            self.lose(self.ran_out())
        target, least_ms = self._target, self.root.least_ms
        if least_ms:
            return protocol.release_kept(
                target.keys, target.index, self._token, least_ms, self._fence
            )
        return target.dialect.release(target.keys, target.index, self._token)

    def letting_readers_in(self) -> protocol.Request:
        """The request that turns a lock held alone into one held by a reader.

        From then on it is asked for as one, which holds whether or not that has arrived.
        """
        self.lease.settle()
        target = self._target
        for one in {self, *sharing.handles_of(self)}:
            one._target = replace(one._target, dialect=READERS)
        # A renewal that is under way as of one that is held alone says nothing.
        if self.watchdog.forget(self):
            self.watchdog.watch(self)
        return downgrade(target.keys, target.index, self._token)

    def checking(self) -> protocol.Request:
        """The request that asks whether the lock is still ours."""
        return self._target.dialect.check(self._target.keys, self._token)

    def forgo_min_hold(self) -> None:
        """Be free at once when it is let go: nothing was done under it."""
        self.least_ms = 0

    def renewing(self, lease_ms: int, how: Literal["replace", "add", "least"]) -> protocol.Request:
        """The request that gives the lease more time."""
        if self.is_followed:
            return self.checking()
        target = self._target
        return target.dialect.renew(target.keys, target.index, self._token, lease_ms, how)

    def lose(self, error: LockLost) -> LockLost:
        """Take note that the lock is lost, because of ``error``. Gives the first reason known.

        Calls ``on_lost`` and ``on_trouble`` of all who share it the first time.
        """
        self.watchdog.forget(self.root)
        self._losses.append(error)
        handles = sharing.handles_of(self)
        if self._losses[0] is not error or not handles:
            return self._losses[0]
        sharing.close(self)
        for owner in {id(held._owner): held._owner for held in handles}.values():
            if owner is not None:
                owner.lost()
        # Whatever one raises, such as SystemExit, the others are called before.
        with ExitStack() as rest:
            for held in reversed(handles):
                rest.callback(held._tell_loss)
            if events.LOST.listeners:
                events.LOST.tell(**self.about(), error=error)
        return self._losses[0]

    def _tell_loss(self) -> None:
        with ExitStack() as rest:
            rest.callback(self.tell_trouble)
            if self._upkeep.on_lost and self.is_given:
                self._call_back("on_lost", partial(self._upkeep.on_lost, self))

    def _call_back(self, what: str, callback: Callable[[], object]) -> None:
        try:
            callback()
        except (Exception, SystemExit):
            logger.exception("%s of the lock %r failed", what, self.key)

    def tell_trouble(self) -> None:
        """Call ``on_trouble``."""
        if self.on_trouble is not None:
            self._call_back("on_trouble", self.on_trouble)

    def about(self) -> dict[str, Any]:
        """What listeners are told when it is over."""
        return {
            "key": self.key,
            "template": self._target.template,
            "fence": self._fence,
            "held_for": clock.now() - self._taken_at,
        }

    def ran_out(self) -> LockLost:
        """The error for a lease that is over by the local clock; Redis may think otherwise."""
        # A renewal may have been carried out whose answer never came.
        self._may_still_stand = self._is_renewed
        return LockLost(self._why_over(), key=self.key)

    def _why_over(self) -> str:
        lease, max_hold = self.lease, self._upkeep.max_hold
        if max_hold is not None and lease.reached_max_hold:
            return f"the lock {self.key!r} was held for its max_hold of {max_hold:g} s"
        over = f"the lease of the lock {self.key!r} ran out"
        if self.root._given_up:
            return f"{over}: {self.root._given_up}"
        if not self._is_renewed:
            return over
        if lease.trouble or lease.asked:
            why = lease.trouble or "Redis does not answer"
            return f"the lock {self.key!r} could not be renewed before its lease ended: {why}"
        if self.root.is_orphaned:
            return f"{over}: the {self.root.owner} that took it has ended"
        return f"{over}: this process stood still and did not renew it"
