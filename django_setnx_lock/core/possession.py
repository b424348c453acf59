"""What this process knows of a lock that it holds, by one handle of perhaps several."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import clock, watchdog
from .flow import Strand
from .lease import Lease, Upkeep
from .target import Target

if TYPE_CHECKING:
    from weakref import ref

    from .aio.owner import Owner
    from .errors import LockLost
    from .flow import Flow
    from .grant import Grant
    from .watchlist import WatchList

_Handle = TypeVar("_Handle", bound="Possession")
_PLAIN = Upkeep()
_numbers = itertools.count()


def next_number() -> int:
    """A number that is smaller than those of all handles to come."""
    return next(_numbers)


class Possession:
    """A lock that is held. What may be done about it is added by :class:`~.grant.Grant`.

    The lease is counted on a local clock from before the request for it was sent, so it ends
    here before it ends in Redis. ``lease`` is that time; ``number`` is this handle's own in
    this process. ``on_trouble``, if set, is called when a renewal has failed and when the lock
    was found to be lost, by the thread that found it, which it must not keep. Who sets it tells
    of both: a loss that the renewal finds is not logged then.
    """

    _released = False
    _may_still_stand = False
    _strand: Strand | None = None
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
    # Whether it is a share that is content with others reading at the same time.
    reads_only = False
    # Whether it was let go by its holder, which has effect later. See Ending.
    is_put_off = False
    # For how many ms from the grant on its name stays taken, however soon it is let go.
    least_ms = 0

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
            self._strand = Strand()

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
        """The secret value in Redis, at the name or, with ``timestamp``, beside it.

        Whoever knows it can release the lock.
        """
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
        return self._root or self  # type: ignore[return-value]  # every handle is a Grant

    @property
    def wants_renewal(self) -> bool:
        """Whether the lock is to be renewed for as long as this handle is held."""
        return self._upkeep.renew

    @property
    def is_reentrant(self) -> bool:
        """Whether who holds it may have it again."""
        return self._upkeep.reentrant

    @property
    def is_noted(self) -> bool:
        """Whether it is known for the one of its flow, so that it can be had again at all."""
        return self._upkeep.is_noted

    @property
    def is_known_lost(self) -> bool:
        """Whether the loss was found."""
        return bool(self._losses)

    @property
    def released(self) -> bool:
        """Whether it was let go."""
        return self._released

    @property
    def is_let_go(self) -> bool:
        """Whether its holder let it go, even if that has effect later only."""
        return self._released or self.is_put_off

    @property
    def is_here(self) -> bool:
        """Whether this process took it: after a fork, the child owns nothing."""
        return self._pid == os.getpid()

    @property
    def lost(self) -> bool:
        """Whether it is known to be ours no longer, or its lease is over. Asks nobody."""
        return not self._released and (bool(self._losses) or self.lease.is_over(clock.now()))

    @property
    def loss(self) -> LockLost | None:
        """Why it is lost, once that was found. Asks nobody."""
        return self._losses[0] if self._losses else None

    def remaining(self) -> float:
        """Seconds left of the lease by the local clock; 0.0 when lost or released."""
        if self._released or self.lost or not self.is_here:
            return 0.0
        self.lease.settle()
        return max(self.lease.end - clock.now(), 0.0)

    @property
    def is_orphaned(self) -> bool:
        """Whether the thread or task that took it has ended, and did not hand it over."""
        if self._owner is not None:
            return self._owner.has_ended
        return self._strand is not None and self._strand.has_ended

    @property
    def owner(self) -> str:
        """What took it: ``thread`` or ``task``."""
        return "thread" if self._owner is None else "task"

    @property
    def watchdog(self) -> WatchList:
        """What renews it."""
        owner = (self._root or self)._owner
        return watchdog.WATCHDOG if owner is None else owner.watchdog
