"""The lock as users have it: the plain one, had again by who holds it, and with scopes in asyncio.

Who holds a lock gets it again: there is one grant, and a handle for each time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from os import getpid
from typing import TYPE_CHECKING, Any
from weakref import ref

from .. import clock
from ..connections.session import session_of
from ..errors import LockError, LockUnavailable
from ..options import with_protocol
from . import parent
from .deadlock import WatchfulAttempt
from .local import LocalToken
from .lock import PlainLock
from .parent import Borrower
from .renewal import renewal_of
from .replicas import DEFAULT_REPLICA_TIMEOUT, with_replicas
from .scope import CancelScope
from .transfer import Adopter, Giver

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..connections.backend import Backend
    from ..options import Target
    from ..process import Owner
    from ..protocol.requests import Request
    from .grant import Grant


class LockHandle(Giver, Borrower):
    """A lock that is held; what ``with lock(...) as held`` gives, one for each entry.

    It may be passed to other threads and tasks, but belongs to the process that took it. Of several
    handles of one lock the last that is released releases the lock.
    """

    def __init__(self, grant: Grant, target: Target | None = None) -> None:
        options, owner = grant.target.options, grant.owner
        is_noted = options.reentrant or options.deadlock_timeout is not None
        # With the first handle: an interrupt right after the attempt would lose the lock.
        if is_noted and owner is not None and not grant.handles:
            note(grant, owner)
        # Last: an interrupt after it would leave a handle that nobody knows, and that counts.
        super().__init__(grant, target)

    @property
    def local(self) -> LocalToken:
        """Its ``token`` is :attr:`token` as bytes, or None once the lock was released."""
        return LocalToken(None if self.released else self.token)

    def detach(self) -> Callable[[], None]:
        """Leave the block without a release: return a callable that releases the lock later.

        The lock is held and renewed as before while somebody refers to the callable; this handle
        counts as released. If another thread or task is to call it, call :meth:`handover` first.
        Raises LockError and LockLost as :meth:`extend`.
        """
        return self._detached().release

    def _detached(self) -> Self:
        """Return another handle in the place of this one."""
        self.refuse_if_over("leave the release of")
        later = type(self)(self.grant, self.target)
        self.released = True
        return later

    def _begin_release(self) -> Request | None:
        grant = self.grant
        # What decides may be in the hands of a thread that this process, a child, does not have.
        if grant.pid == getpid():
            # Whether it is the last, or another is to be had, is decided by one thread at a time.
            with grant.session.deciding:
                if not self.released:
                    if len(grant.handles) > 1 and self._is_followed():
                        return None
                    grant.is_let_go = True
        return super()._begin_release()

    def _is_followed(self) -> bool:
        """Release this handle alone, if there are others."""
        grant = self.grant
        others = [handle for handle in grant.held_by() if handle is not self]
        if not others or grant.is_over:
            return False
        # First: an interrupt in between must not have the last one let go twice.
        self.released = True
        grant.handles = tuple([ref(handle) for handle in others])
        return True


def note(grant: Grant, by: Owner) -> None:
    """Note that ``by`` holds ``grant``, and may have it again."""
    place = grant.session.place, grant.target.keys[0]
    # One in the place of this ends it. No code of Python's: an interrupt in that would be lost.
    by.holds[place] = ref(grant, functools.partial(by.holds.pop, place))


class RedisLock(Adopter[LockHandle]):
    __doc__ = PlainLock.__doc__

    _handle = LockHandle
    _attempt = WatchfulAttempt
    _scope = CancelScope

    @property
    def local(self) -> LocalToken:
        """Its ``token`` is :attr:`token` as bytes, as with redis-py's lock."""
        return LocalToken(self.token)

    def _with_layers(
        self,
        target: Target,
        *,
        protocol: str = "setnx",
        expire: bool = True,
        replicas: int | None = None,
        replica_timeout: float = DEFAULT_REPLICA_TIMEOUT,
    ) -> Target:
        target = with_protocol(target, protocol, expire)
        return with_replicas(target, replicas, replica_timeout)

    async def _take(
        self, io: Backend, limit: float | None, by: Owner, token: str | None = None
    ) -> LockHandle:
        if token is None and (by.holds or parent.environment.names_any):
            held = await self._again(io, by)
            if held is not None:
                return held
        return await super()._take(io, limit, by, token)  # type: ignore[no-any-return]  # of that class

    def _grant_of(self, by: Owner) -> Grant | None:
        """Return what ``by`` may have again, if there is such a grant."""
        noted = by.holds.get((session_of(self.client).place, self.name))
        grant: Grant | None = None if noted is None else noted()
        if grant is None or grant.is_let_go or grant.is_over or not grant.is_here:
            return None
        if grant.owner is not by:
            return None
        return grant if self._is_had_again(grant) else None

    def _is_had_again(self, grant: Grant) -> bool:
        return self.options.reentrant and grant.target.options.reentrant

    async def _again(self, io: Backend, by: Owner) -> LockHandle | None:
        """Return one more handle if ``by`` holds the lock and is to have it again, else None.

        Redis is asked only where less than half of the lease is left, or where the lock is held
        around this process. Raises LockUnavailable, and LockError where the caller reads, and asks
        for the lock alone.
        """
        grant = self._grant_of(by) if by.holds else None
        if grant is not None:
            self._refuse_upgrade(grant.token)
            return await self._another(io, by, grant)
        if not (parent.environment.names_any and self.options.reentrant):
            return None
        session = self.session_for(io)
        around = parent.environment.find(self.target, session)
        if around is None:
            return None
        self._refuse_upgrade(around.token)
        held: LockHandle | None = await parent.environment.enter(
            io, around, self.target, session, by
        )
        return held

    def _refuse_upgrade(self, token: str) -> None:
        key = self.key
        if token.startswith("read:") and not self.options.is_shared:
            raise LockError(
                f"the lock {key!r} is held for reading here, and whoever has it alone waits for "
                "all who read: this caller would wait for itself; release it first, or take it "
                "alone before reading",
                key=key,
            )

    async def _another(self, io: Backend, by: Owner, grant: Grant) -> LockHandle | None:
        target, now = self.target, clock.now()
        seconds = min(target.options.lease, grant.hold_until - now)
        if grant.end - now < seconds / 2:
            request = grant.renew_request(int(seconds * 1000))
            try:
                grant.confirm(await grant.session.call(io, request, grant.key))
            except LockUnavailable:
                raise
            except LockError:
                # It is lost, or released just now.
                return None
        with grant.session.deciding:
            if self._grant_of(by) is not grant or not grant.held_by():
                # It is being let go.
                return None
            grant.lease = max(grant.lease, seconds)
            if target.options.renew:
                if grant.due == math.inf:
                    grant.due = now + grant.lease / 3
                (grant.renewal or renewal_of(grant, io)).register(grant)
            # Last: an interrupt after it would leave a handle that nobody knows, and that counts.
            return target.handle(grant, target)  # type: ignore[no-any-return]  # it is of that class


class RWLock:
    """A lock that any number of readers hold at the same time, or one writer.

    First come, first served: a reader waits behind a writer that came before it, so that neither
    starves. Each reader has a lease of its own. With ``reentrant``, a writer may read within, and
    holds the lock alone until it has released both; a reader that wants to write would wait for
    itself: that raises LockError.

    ``client``, ``name`` and ``options``: those of :class:`RedisLock`, which is what a writer
    takes; it raises what this raises.
    """

    def __init__(self, client: Any, name: str, **options: Any) -> None:
        self._begin(functools.partial(RedisLock, client, name, **options))

    def _begin(self, make: Callable[..., RedisLock]) -> None:
        self._make = make
        # Refuses wrong options at once.
        self._key = self.read().key

    @classmethod
    def made_by(cls, make: Callable[..., RedisLock]) -> Self:
        """Return the lock of which ``make(shared=...)`` makes that of a reader or a writer."""
        made = cls.__new__(cls)
        made._begin(make)
        return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._key!r}>"

    @property
    def key(self) -> str:
        """What the caller calls it."""
        return self._key

    def read(self) -> RedisLock:
        """Return the lock of one reader."""
        return self._make(shared=True)

    def write(self) -> RedisLock:
        """Return the lock of one writer."""
        return self._make(shared=False)
