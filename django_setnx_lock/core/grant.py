"""What this process knows of a lock that it was given."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Literal

from . import clock, events, protocol, watchdog
from .errors import LockLost
from .lease import Lease, Upkeep
from .target import Target

if TYPE_CHECKING:
    from .aio.block import Block
    from .aio.owner import Owner
    from .watchlist import WatchList

logger = logging.getLogger("django_setnx_lock")
_PLAIN = Upkeep()
_numbers = itertools.count()


class Grant:
    """A lock that was granted. Asks nobody itself: the handles build on it, and the watchdog.

    The lease is counted on a local clock from before the request for it was sent, so it ends
    here before it ends in Redis. ``lease`` is that time; ``number`` is this handle's own in
    this process.
    """

    _released = False
    _may_still_stand = False
    _thread: threading.Thread | None = None

    def __init__(
        self,
        target: Target,
        *,
        token: str,
        fence: int,
        timeout: float,
        deadline: float,
        upkeep: Upkeep = _PLAIN,
        owner: Owner | None = None,
    ) -> None:
        self.lease = Lease(timeout, deadline, upkeep.max_hold)
        self.number = next(_numbers)
        self._target = target
        self._token = token
        self._fence = fence
        self._upkeep = upkeep
        # The task that took it, if one did.
        self._owner = owner
        self._pid = os.getpid()
        self._taken_at = deadline - timeout
        # The first tells why it is lost. Several threads may find it lost at once.
        self._losses: list[LockLost] = []
        if upkeep.renew and owner is None:
            self._thread = threading.current_thread()

    def __repr__(self) -> str:
        state = "released" if self._released else "lost" if self.lost else "held"
        return f"<{type(self).__name__} {self.key!r} fence={self._fence} {state}>"

    @property
    def key(self) -> str:
        """The key as the caller wrote it."""
        return self._target.key

    @property
    def name(self) -> str:
        """The name in Redis."""
        return self._target.keys.name

    @property
    def client(self) -> Any:
        """The redis-py client it was taken with."""
        return self._target.client

    @property
    def token(self) -> str:
        """The secret value at the name in Redis. Whoever knows it can release the lock."""
        return self._token

    @property
    def fence(self) -> int:
        """The fencing number: larger than that of every earlier holder of this name."""
        return self._fence

    @property
    def timeout(self) -> float:
        """The lease in seconds, as asked for."""
        return self.lease.seconds

    @property
    def released(self) -> bool:
        """Whether it was let go."""
        return self._released

    @property
    def is_here(self) -> bool:
        """Whether this process took it: after a fork, the child owns nothing."""
        return self._pid == os.getpid()

    @property
    def lost(self) -> bool:
        """Whether it is known to be ours no longer, or its lease is over. Asks nobody."""
        return not self._released and (bool(self._losses) or clock.now() >= self.lease.end)

    def remaining(self) -> float:
        """Seconds left of the lease by the local clock; 0.0 when lost or released."""
        if self._released or self.lost or not self.is_here:
            return 0.0
        return max(self.lease.end - clock.now(), 0.0)

    def handover(self) -> None:
        """Let the lock outlive the thread or task that took it: whoever has the handle holds it.

        Without this a lock is renewed no longer when that has ended. The event loop that a task
        took it in has to go on all the same.
        """
        self._thread = None
        if self._owner is not None:
            self._owner.let_go()
        if self.remaining():
            self.begin_upkeep()

    @property
    def is_orphaned(self) -> bool:
        """Whether the thread or task that took it has ended, and did not hand it over."""
        if self._owner is not None:
            return self._owner.has_ended
        return self._thread is not None and not self._thread.is_alive()

    @property
    def renews(self) -> bool:
        """Whether it is renewed while it is held."""
        return self._upkeep.renew

    def enter(self, block: Block | None) -> None:
        """The task that took it runs ``block`` under it, or no longer does."""
        if self._owner is not None:
            self._owner.runs(block)

    @property
    def owner(self) -> str:
        """What took it: ``thread`` or ``task``."""
        return "thread" if self._owner is None else "task"

    @property
    def watchdog(self) -> WatchList:
        """What renews it."""
        return watchdog.WATCHDOG if self._owner is None else self._owner.watchdog

    def begin_upkeep(self) -> None:
        """Have it renewed from now on, if it is to be."""
        if self._upkeep.renew:
            self.watchdog.watch(self)

    def releasing(self) -> protocol.Request:
        """The request that lets the lock go, which is renewed no longer."""
        if self.watchdog.forget(self) and clock.now() >= self.lease.end:
            self.lose(self.ran_out())
        return protocol.release(self._target.keys, self._target.index, self._token)

    def renewing(self, lease_ms: int, how: Literal["replace", "add", "least"]) -> protocol.Request:
        """The request that gives the lease more time."""
        return protocol.renew(self._target.keys, self._target.index, self._token, lease_ms, how)

    def lose(self, error: LockLost) -> LockLost:
        """Take note that the lock is lost, because of ``error``. Gives the first reason known.

        Calls ``on_lost`` the first time.
        """
        self.watchdog.forget(self)
        self._losses.append(error)
        if self._losses[0] is not error or self._released:
            return self._losses[0]
        if self._owner is not None:
            self._owner.lost()
        if events.LOST.listeners:
            events.LOST.tell(**self.about(), error=error)
        if self._upkeep.on_lost:
            try:
                self._upkeep.on_lost(self)
            except (Exception, SystemExit):
                logger.exception("on_lost of the lock %r failed", self.key)
        return self._losses[0]

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
        self._may_still_stand = self._upkeep.renew
        return LockLost(self._why_over(), key=self.key)

    def _why_over(self) -> str:
        lease, max_hold = self.lease, self._upkeep.max_hold
        if max_hold is not None and lease.reached_max_hold:
            return f"the lock {self.key!r} was held for its max_hold of {max_hold:g} s"
        over = f"the lease of the lock {self.key!r} ran out"
        if not self._upkeep.renew:
            return over
        if lease.trouble or lease.asked:
            why = lease.trouble or "Redis does not answer"
            return f"the lock {self.key!r} could not be renewed before its lease ended: {why}"
        if self.is_orphaned:
            return f"{over}: the {self.owner} that took it has ended"
        return f"{over}: this process stood still and did not renew it"
