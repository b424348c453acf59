"""A lock that is given away to another process, and taken over there.

Who takes it over does so by a token of its own: the process that gave it away, and others with the
same ticket, find that theirs stands there no longer.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, TypeVar

from ..connections.backend import BLOCKING, Backend, run
from ..connections.pipe import ASYNCIO
from ..errors import LockLost, LockUnsupported
from ..options import milliseconds
from ..process import Owner, current, holder_here
from ..protocol.replies import Busy, Reply, lost
from ..protocol.requests import Request, Script
from .attempt import Attempt
from .grant import Grant
from .handle import PlainHandle
from .lock import PlainLock

if TYPE_CHECKING:
    from ..connections.session import Session
    from ..options import Target

_Handle = TypeVar("_Handle", bound=PlainHandle)
SWAP = Script("swap")


@dataclass(frozen=True)
class Ticket:
    """The name of a lock that was given away, and the proof that it was. ``token`` is a secret."""

    name: str
    token: str = field(repr=False)
    fence: int


def _read(text: str) -> Ticket | None:
    """Return the ticket in ``text``, which reports of errors are not to show: it raises nothing."""
    try:
        ticket = Ticket(**json.loads(text))
    except (TypeError, ValueError, RecursionError):
        return None
    types = [type(ticket.name), type(ticket.token), type(ticket.fence)]
    return ticket if types == [str, str, int] else None


def _refuse_unless_possible(target: Target) -> None:
    """Raise LockUnsupported for a lock whose holder cannot be replaced."""
    if target.options.is_shared or target.scripts.polls:
        raise LockUnsupported(
            f"the lock {target.key!r} is held with others, or with another protocol, and so cannot "
            "be given away to another process: let it go, and take it there",
            key=target.key,
        )


def _swap(target: Target, *args: str) -> Request:
    # No variable of who awaits the reply has them: reports of errors show those.
    return Request(SWAP, target.keys, args)


class Giver(PlainHandle):
    """A handle of a lock that can be given away."""

    def give_away(self, within: float | None = None) -> str:
        """Leave the lock held, for another process to take over with :meth:`RedisLock.adopt`.

        Gives the ticket to send there, which holds the token: whoever has it can take the lock.
        Nobody here holds the lock from then on, by this handle or another: it is neither renewed
        nor released. ``within``: the seconds in which it is to be taken over, after which it is
        free (default: ``timeout``); a lease that is longer is not cut. One round trip.

        Raises ValueError for a ``within`` that is no finite number above zero, LockLost,
        LockUnavailable (then it is held as before), LockError when it was released or belongs to
        another process, and LockUnsupported when it is held with others or on several masters.
        """
        return run(self._give_away(BLOCKING, within))

    async def agive_away(self, within: float | None = None) -> str:
        """Leave the lock held for another process. See :meth:`LockHandle.give_away`."""
        return await self._give_away(ASYNCIO, within)

    async def _give_away(self, io: Backend, within: float | None) -> str:
        seconds = [self.timeout] if within is None else [self.timeout, within]
        ms = max([milliseconds(each, "within") for each in seconds])
        _refuse_unless_possible(self.target)
        grant = self.grant
        # Whoever takes it over may come late: operators see it meanwhile.
        grant.is_listed = True
        self.refuse_if_over("give away")
        label, user, note, lease, *_ = self.target.options.about
        record = holder_here(label, user, note, lease).to_json()
        request = _swap(grant.target, grant.token, grant.token, str(grant.fence), str(ms), record)
        reply = await grant.session.call(io, request, self.key)
        if reply.value[0] != b"OK":
            raise grant.lose(lost(self.key, reply.value[1])).again()
        if grant.renewal is not None:
            grant.renewal.unregister(grant)
        # Who took it has it again no longer.
        grant.owner = None
        for handle in grant.held_by():
            handle.released = True
        ticket = Ticket(self.name, grant.token, grant.fence)
        return json.dumps(asdict(ticket), separators=(",", ":"))


class _Adoption(Attempt):
    """An attempt to take a lock over by a ticket. It is asked for once."""

    def __init__(self, target: Target, session: Session, owner: Owner, ticket: Ticket) -> None:
        super().__init__(target, session, owner, None)
        self._ticket = ticket

    def _request(self) -> Request:
        ticket, lease = self._ticket, self.target.options.lease_ms
        return _swap(self.target, ticket.token, self.token, str(ticket.fence), lease, self._record)

    async def _read(self, io: Backend, reply: Reply) -> Grant | Busy | None:
        key = self.target.key
        if reply.value[0] != b"OK":
            raise lost(key, reply.value[1])
        answer = await super()._read(io, reply)
        if not isinstance(answer, Grant):
            why = f"it took longer to take over the lock {key!r} than its lease lasts"
            raise LockLost(why, key=key)
        return answer

    async def _give_up(self, io: Backend, error: BaseException) -> None:
        # What is lost is somebody else's, or was given up already.
        if not isinstance(error, LockLost):
            await super()._give_up(io, error)


class Adopter(PlainLock[_Handle]):
    """A lock that can be taken over from another process."""

    def adopt(self, ticket: str) -> _Handle:
        """Take over the lock that another process gave away, and give its handle.

        ``ticket``: what :meth:`LockHandle.give_away` gave there. The lock was held all the time in
        between, has its fence still, and is this one's alone from then on: the ticket is good for
        one. ``with lock("order:42").adopt(ticket) as held: ...`` releases it at the end.

        Raises LockLost when the lock is not held by the ticket any more: the time for it was over,
        it was force-released, or somebody has taken it over; ValueError for what is no ticket, or
        that of another lock; LockUnsupported for a lock that is held with others or on several
        masters; LockUnavailable, after which the ticket may still be good.
        """
        found, ticket = _read(ticket), ""
        return run(self._adopt(BLOCKING, found, current(False)))

    async def _adopt(self, io: Backend, ticket: Ticket | None, by: Owner) -> _Handle:
        _refuse_unless_possible(self.target)
        if ticket is None:
            raise ValueError(
                f"what the lock {self.key!r} is to be taken over with is no ticket: give adopt() "
                "what give_away() gave"
            )
        if ticket.name != self.name:
            raise ValueError(
                f"the ticket is for the lock that is called {ticket.name!r} in Redis, and not for "
                f"{self.name!r}: give adopt() one of the same key and prefix"
            )
        attempt = _Adoption(self.target, self.session_for(io), by, ticket)
        return await attempt.take(io, 0)  # type: ignore[no-any-return]  # of that class
