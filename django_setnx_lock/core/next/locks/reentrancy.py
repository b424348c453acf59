"""Who holds a lock gets it again: there is one grant, and a handle for each time."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from ... import clock
from ...errors import LockError, LockLost
from ..connections.session import session_of
from .handle import LockHandle
from .renewal import renewal_of

if TYPE_CHECKING:
    from ..connections.backend import Backend
    from ..options import Target
    from ..owner import Owner
    from ..protocol.requests import Request
    from .grant import Grant


class SharedHandle(LockHandle):
    """One of the handles of a grant. The last one that is released lets the lock go."""

    @property
    def timeout(self) -> float:
        """The lease in seconds, as asked for, within ``max_hold`` of who had the lock first."""
        left = self.grant.lease.hold_until - clock.now()
        return min(self.target.options.lease, max(left, 0.001))

    def _begin_release(self) -> Request | None:
        grant = self.grant
        is_counted = grant.target.options.reentrant or len(grant.handles) > 1
        if is_counted and not self.released:
            # Whether it is the last, or another is to be had, is decided by one thread at a time.
            with grant.session.deciding:
                if len(grant.handles) > 1 and self._is_followed():
                    return None
                if grant.owner is not None:
                    # A lost lock that its owner took anew has another grant there by now.
                    place = grant.session.place, grant.target.keys[0]
                    reference = grant.owner.holds.get(place)
                    if reference is not None and reference() is grant:
                        grant.owner.holds.pop(place, None)
        return super()._begin_release()

    def _is_followed(self) -> bool:
        """Let go this handle alone, if there are others."""
        grant = self.grant
        others = [handle for handle in grant.held_by() if handle is not self]
        if not others or self.released or grant.is_over or not grant.is_here:
            return False
        grant.handles = tuple([ref(handle) for handle in others])
        self.released = True
        return True


def note(grant: Grant, by: Owner) -> None:
    """Note that ``by`` holds ``grant``, and may have it again."""
    place = grant.session.place, grant.target.keys[0]
    by.holds[place] = ref(grant, partial(_unregister, by.holds, place))


def _unregister(holds: dict[Any, Any], place: Any, reference: object) -> None:
    if holds.get(place) is reference:
        holds.pop(place, None)


async def again(io: Backend, target: Target, by: Owner) -> LockHandle | None:
    """Return one more handle if ``by`` holds the lock of ``target``, else None.

    Redis is asked only where less than half of the lease is left. Raises LockUnavailable, and
    LockError where the caller reads, and asks for the lock alone.
    """
    place = session_of(target.client).place, target.keys[0]
    reference = by.holds.get(place)
    grant: Grant | None = None if reference is None else reference()
    if grant is None or grant.is_over or not grant.is_here or grant.owner is not by:
        return None
    if grant.target.options.is_shared and not target.options.is_shared:
        raise LockError(
            f"the lock {target.key!r} is held for reading here, and whoever has it alone waits for "
            "all who read: this caller would wait for itself; let it go first, or take it alone "
            "before reading",
            key=target.key,
        )
    lease, now = grant.lease, clock.now()
    seconds = min(target.options.lease, lease.hold_until - now)
    if lease.end - now < seconds / 2:
        request = grant.renew_request(int(seconds * 1000))
        try:
            grant.confirm(await grant.session.call(io, request, grant.key))
        except LockLost:
            return None
    with grant.session.deciding:
        if by.holds.get(place) is not reference or not grant.held_by():
            # It is being let go.
            return None
        held: LockHandle = target.handle(grant, target)
    lease.seconds = max(lease.seconds, seconds)
    if target.options.renew:
        if lease.due == math.inf:
            lease.plan(now)
        renewal_of(grant.session, io).register(grant)
    return held
