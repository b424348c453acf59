"""What Redis granted: one for each acquisition, however many handles refer to it."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import ref

from .. import clock, events
from ..errors import LockError, LockLost, LockUnavailable
from ..protocol.replies import Reply, StopRequest, lost, text
from ..protocol.requests import LOOK, Request

if TYPE_CHECKING:
    from ..connections.backend import Backend
    from ..connections.session import Session
    from ..options import Target
    from ..process import Owner

# A lock that is held for so many seconds is listed, for operators.
LISTED_AFTER = 0.5


class Grant:
    """A lock that Redis granted: held, then released or lost.

    ``lease``: the seconds of a full lease. ``end``: until when the lock is ours by the local clock,
    counted from before the request was sent: it ends here before it ends in Redis. ``due``: when to
    ask for more. ``hold_until``: beyond which it is not renewed. ``owner``: what took it; None once
    it was handed over. ``handles``: each a :class:`.LockHandle`; weak, as a lock whose handles were
    thrown away is renewed no longer.
    """

    # Whether it was written to the index; whether a copy of a request of its token may be under
    # way; whether nothing was done under it; whether nobody may have it again.
    is_listed = was_retried = was_in_vain = is_let_go = False
    # How often Redis was asked to let it go.
    times_asked = 0
    loss: LockLost | None = None
    # Whether Redis may have it still though it is lost here: an answer may be missing.
    may_stand = False
    stop_request: StopRequest | None = None
    # For how many seconds the caller waited for it, if that was long.
    waited: float | None = None
    # Why renewals fail.
    trouble: Exception | None = None
    # What is to be cancelled when the lock is lost, and what renews it.
    scopes: tuple[Any, ...] = ()
    renewal: Any = None
    handles: tuple[ref[Any], ...] = ()
    hold_until = math.inf

    def __init__(
        self, target: Target, session: Session, token: str, fence: int, sent: float, owner: Owner
    ) -> None:
        self.target = target
        self.session = session
        self.token = token
        self.fence = fence
        self.sent = sent
        self.owner: Owner | None = owner
        self.pid = os.getpid()
        self.lease = lease = target.options.lease
        self.end = sent + lease
        is_kept = target.options.renew or len(target.keys) > 2
        self.due = sent + min(lease / 3, LISTED_AFTER) if is_kept else math.inf
        if target.options.max_hold is not None:
            self.hold_until = sent + target.options.max_hold

    @property
    def key(self) -> str:
        """What the caller calls the lock."""
        return self.target.key

    @property
    def is_over(self) -> bool:
        """Whether the lock is lost or its lease over, whoever knows of it."""
        return self.loss is not None or clock.now() >= self.end

    @property
    def is_here(self) -> bool:
        """Whether this process took it: after a fork, the child owns nothing."""
        return self.pid == os.getpid()

    def held_by(self) -> list[Any]:
        """Return the handles by which it is held: neither released nor thrown away."""
        handles = [reference() for reference in self.handles]
        return [handle for handle in handles if handle is not None and not handle.released]

    @property
    def is_renewed(self) -> bool:
        """Whether that was asked for with one of its handles."""
        return any(handle.target.options.renew for handle in self.held_by())

    @property
    def ended_owner(self) -> str:
        """What took it, in a word, if that has ended without letting it go; else ""."""
        owner = self.owner
        return owner.kind if owner is not None and owner.kind and owner.has_ended else ""

    def confirm(self, reply: Reply) -> None:
        """Believe the ``reply`` to a renewal. Raises LockLost, LockError where it is let go."""
        value = reply.value
        if value[0] != b"OK":
            if self.times_asked and value[1] is None and not self.is_over:
                # By another thread or task, which is about to know.
                raise LockError(f"the lock {self.key!r} was released meanwhile", key=self.key)
            self.may_stand = False
            raise self.lose(lost(self.key, value[1])).again()
        self.end = max(self.end, reply.sent + int(value[1]) / 1000)
        self.notify_of_stop(value[2] if len(value) > 2 else None)

    # Requests

    def release_request(self) -> Request | None:
        """Return the request that lets the lock go."""
        target = self.target
        args: tuple[str, ...] = (self.token, "repeat" if self.was_retried else "")
        if target.options.min_hold_ms and not self.was_in_vain:
            args = (*args, str(target.options.min_hold_ms))
        # The index is written by the first renewal, and asked for only where it may have been.
        keys = target.keys if self.is_listed else target.keys[:2]
        return Request(target.scripts.release, keys, args)

    def renew_request(self, ms: int | None) -> Request:
        """Return the request for ``ms`` of the lease at least; 0 lists it, -1 only asks.

        None is for a full one, but not beyond ``max_hold``.
        """
        if ms is None:
            ms = max(int(min(self.lease, self.hold_until - clock.now()) * 1000), 0)
        keys = self.target.keys if self.is_listed else self.target.keys[:2]
        return Request(self.target.scripts.renew, keys, (self.token, str(ms)))

    # Loss

    def lose(self, error: LockLost) -> LockLost:
        """Have the lock be lost because of ``error``; return the first reason that is known.

        Calls ``on_lost`` and the listeners the first time.
        """
        # One thread is first: the others find it there.
        first: LockLost = self.__dict__.setdefault("loss", error)
        if first is not error:
            return first
        if self.renewal is not None:
            self.renewal.unregister(self)
        for scope in self.scopes:
            scope.cancel()
        try:
            self.notify_of_trouble(is_lost=True)
        finally:  # whatever on_lost raises, as an interrupt
            events.LOST.tell(**self.about(), error=error)
            self.notify_of_end(error)
        return error

    def ran_out(self) -> LockLost:
        """Return the error for a lease that is over by the local clock."""
        key, max_hold = self.key, self.target.options.max_hold
        self.may_stand = self.is_renewed
        why = f"the lease of the lock {key!r} ran out"
        if self.end > self.hold_until - 0.01:
            # A renewal would not lengthen it.
            why = f"the lock {key!r} was held for its max_hold of {max_hold:g} s"
        elif self.is_renewed and self.trouble is not None:
            why = f"the lock {key!r} could not be renewed before its lease ended: {self.trouble}"
        elif self.is_renewed and self.ended_owner:
            why += f": the {self.ended_owner} that took it has ended"
        elif self.is_renewed:
            why += ": this process stood still and did not renew it"
        return LockLost(why, key=key)

    def notify_of_stop(self, record: bytes | None) -> None:
        """Call ``on_trouble`` and the listeners, once, if a holder ``record`` asks to stop."""
        if self.stop_request is None and record:
            stop = StopRequest.from_record(text(record))
            if stop is not None and self.__dict__.setdefault("stop_request", stop) is stop:
                self.notify_of_trouble()
                events.STOP_REQUESTED.tell(**self.about(), stop_request=stop)

    def notify_of_trouble(self, *, is_lost: bool = False) -> None:
        """Have all handles call ``on_trouble``, and ``on_lost`` if the lock is lost."""
        for handle in self.held_by():
            handle.notify_of_trouble(is_lost=is_lost)

    def notify_of_end(self, error: LockLost | None = None) -> None:
        """Have the history know of the end, if that is a loss, or of what was long."""
        about = self.about()
        if error is not None or self.waited is not None or about["held_for"] >= events.LONG_HOLD:
            events.ENDED.tell(**about, target=self.target, waited=self.waited, error=error)

    def about(self) -> dict[str, Any]:
        """Return what listeners get of a lock that is, or was, held."""
        return {"key": self.key, "fence": self.fence, "held_for": clock.now() - self.sent}


async def look(
    io: Backend, session: Session, target: Target, given: bytes | None, mine: str = ""
) -> bool:
    """See that those whom the lock was ``given`` to wake up, else have it given to the next.

    ``given``: their tokens. Return whether ``mine`` is among them, which is awake.
    """
    named = text(given).split()
    tokens = [token for token in named if token != mine]
    # What it was given for ends by itself, and what the caller did is done.
    with suppress(LockUnavailable):
        while tokens:
            request = Request(LOOK, target.keys, (" ".join(tokens),))
            reply = await session.call(io, request, target.key)
            tokens = text(reply.value).split()
    return mine in named
