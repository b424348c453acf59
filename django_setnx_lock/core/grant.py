"""What this process knows of a lock that it was given."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from . import clock, events, protocol, sharing, watchdog
from .errors import LockLost
from .lease import Lease, Upkeep
from .target import Target

if TYPE_CHECKING:
    from weakref import ref

    from .aio.block import Block
    from .aio.owner import Owner
    from .flow import Flow
    from .watchlist import WatchList

logger = logging.getLogger("django_setnx_lock.events")
_Handle = TypeVar("_Handle", bound="Grant")
_PLAIN = Upkeep()
_numbers = itertools.count()


def next_number() -> int:
    """A number that is smaller than those of all handles to come."""
    return next(_numbers)


class Grant:
    """A lock that was granted. Asks nobody itself: the handles build on it, and the watchdog.

    The lease is counted on a local clock from before the request for it was sent, so it ends
    here before it ends in Redis. ``lease`` is that time; ``number`` is this handle's own in
    this process. ``on_trouble``, if set, is called when a renewal has failed and when the lock
    was found to be lost, by the thread that found it, which it must not keep. Who sets it tells
    of both: a loss that the renewal finds is not logged then.
    """

    _released = False
    _may_still_stand = False
    _thread: threading.Thread | None = None
    # That of which this is a share.
    _root: Grant | None = None
    # Why it was given up while it was held.
    _given_up = ""
    # Whose it is, while it may be had again or is looked for at the end of a request.
    flow: Flow | None = None
    # All handles that were not released, by number, once there is a second one.
    handles: dict[int, ref[Grant]] | None = None
    # Whether the caller has it, so that he is to be told of a loss.
    is_given = True
    # Whether somebody else renews and releases it, and this process only looks after it.
    is_followed = False

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
        self.on_trouble: Callable[[], object] | None = None
        self.number = next(_numbers)
        self._target = target
        self._token = token
        self._fence = fence
        self._upkeep = upkeep
        # The task that took it, if one did.
        self._owner = owner
        self._pid = os.getpid()
        self._timeout = timeout
        self._taken_at = deadline - timeout
        # The first tells why it is lost. Several threads may find it lost at once.
        self._losses: list[LockLost] = []
        if upkeep.renew and owner is None:
            self._thread = threading.current_thread()

    @classmethod
    def share(
        cls: type[_Handle], root: Grant, target: Target, timeout: float, upkeep: Upkeep
    ) -> _Handle:
        """Another handle of what ``root`` holds, by ``target``, for who would have ``timeout``."""
        timeout = root.lease.bounded(timeout, clock.now())
        share = cls(
            target,
            token=root._token,
            fence=root._fence,
            timeout=timeout,
            deadline=root.lease.end,
            upkeep=upkeep,
        )
        share._root = root
        share.is_followed = root.is_followed
        share.lease = root.lease
        root.lease.seconds = max(root.lease.seconds, timeout)
        share._losses = root._losses
        share._taken_at = root._taken_at
        return share

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
        return self._timeout

    @property
    def target(self) -> Target:
        """Which lock it is, and whom to ask."""
        return self._target

    @property
    def root(self) -> Grant:
        """The handle that took the lock, which alone is renewed; mostly this one."""
        return self._root or self

    @property
    def wants_renewal(self) -> bool:
        """Whether the lock is to be renewed for as long as this handle is held."""
        return self._upkeep.renew

    @property
    def is_reentrant(self) -> bool:
        """Whether who holds it may have it again."""
        return self._upkeep.reentrant

    @property
    def is_known_lost(self) -> bool:
        """Whether the loss was found."""
        return bool(self._losses)

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

    @property
    def loss(self) -> LockLost | None:
        """Why it is lost, once that was found. Asks nobody."""
        return self._losses[0] if self._losses else None

    def remaining(self) -> float:
        """Seconds left of the lease by the local clock; 0.0 when lost or released."""
        if self._released or self.lost or not self.is_here:
            return 0.0
        return max(self.lease.end - clock.now(), 0.0)

    def handover(self) -> None:
        """Let the lock outlive the thread or task that took it: whoever has the handle holds it.

        Without this a lock is renewed no longer when that has ended. Nobody has the lock again
        from then on without waiting for it. The event loop that a task took it in has to go on
        all the same.
        """
        root = self.root
        root._thread = None
        if root._owner is not None:
            root._owner.let_go()
        sharing.close(root)
        if self._is_renewed and self.remaining():
            root.watchdog.watch(root)

    def begin_renewal(self) -> None:
        """Renew it from now on, for a share; nothing if that is done already."""
        if self._thread is None and self._owner is None:
            self._thread = threading.current_thread()
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

    @property
    def is_orphaned(self) -> bool:
        """Whether the thread or task that took it has ended, and did not hand it over."""
        if self._owner is not None:
            return self._owner.has_ended
        return self._thread is not None and not self._thread.is_alive()

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

    @property
    def owner(self) -> str:
        """What took it: ``thread`` or ``task``."""
        return "thread" if self._owner is None else "task"

    @property
    def watchdog(self) -> WatchList:
        """What renews it."""
        owner = self.root._owner
        return watchdog.WATCHDOG if owner is None else owner.watchdog

    def begin_upkeep(self) -> None:
        """Have it renewed from now on, if it is to be."""
        if self._upkeep.renew:
            self.watchdog.watch(self)

    def releasing(self) -> protocol.Request:
        """The request that lets the lock go, which is renewed no longer."""
        if self.watchdog.forget(self.root) and clock.now() >= self.lease.end:
            self.lose(self.ran_out())
        return protocol.release(self._target.keys, self._target.index, self._token)

    def renewing(self, lease_ms: int, how: Literal["replace", "add", "least"]) -> protocol.Request:
        """The request that gives the lease more time."""
        if self.is_followed:
            return protocol.check(self._target.keys, self._token)
        return protocol.renew(self._target.keys, self._target.index, self._token, lease_ms, how)

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
        if events.LOST.listeners:
            events.LOST.tell(**self.about(), error=error)
        for held in handles:
            held._tell_loss()
        return self._losses[0]

    def _tell_loss(self) -> None:
        if self._upkeep.on_lost and self.is_given:
            try:
                self._upkeep.on_lost(self)
            except (Exception, SystemExit):
                logger.exception("on_lost of the lock %r failed", self.key)
        self.tell_trouble()

    def tell_trouble(self) -> None:
        """Call ``on_trouble``."""
        if self.on_trouble is None:
            return
        try:
            self.on_trouble()
        except (Exception, SystemExit):
            logger.exception("on_trouble of the lock %r failed", self.key)

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
