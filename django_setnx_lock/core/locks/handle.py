"""The handle of a lock that is held: what ``with`` gives, one for each entry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from os import getpid
from typing import TYPE_CHECKING, Any
from weakref import ref

from .. import clock, events
from ..connections.backend import Backend
from ..errors import LockError, LockUnavailable
from ..protocol.replies import Reply, lost
from .grant import Grant, look
from .operations import Handle

if TYPE_CHECKING:
    from ..options import Target
    from ..protocol.requests import Request

logger = logging.getLogger("django_setnx_lock.events")


class PlainHandle(Handle):
    """A lock that is held; what ``with lock(...) as held`` gives.

    It may be passed to other threads and tasks, but belongs to the process that took it.
    ``on_trouble``, if set, is called when a renewal has failed, when the lock was found to be lost,
    and when an operator asks to stop, by the thread that found it, which it must not keep. A loss
    that the renewal finds is not logged then: the caller that sets ``on_trouble`` reports it.
    """

    on_trouble: Callable[[], object] | None = None
    released = False

    def __init__(self, grant: Grant, target: Target | None = None) -> None:
        """``target``: what was asked for, if that is not what was granted."""
        self.grant = grant
        self.target = target or grant.target
        grant.handles += (ref(self),)

    @property
    def name(self) -> str:
        """The name in Redis."""
        return self.grant.target.keys[0]

    @property
    def token(self) -> str:
        """The secret value in Redis. Whoever knows it can release the lock."""
        return self.grant.token

    @property
    def fence(self) -> int:
        """The fencing number: larger than that of every earlier holder of this name."""
        return self.grant.fence

    @property
    def timeout(self) -> float:
        """The lease in seconds, as asked for."""
        return self.target.options.lease

    @property
    def grants(self) -> Sequence[Grant]:
        return (self.grant,)

    @property
    def lost(self) -> bool:
        return not self.released and self.grant.is_over

    def remaining(self) -> float:
        if self.released or self.lost or not self.is_here:
            return 0.0
        return max(self.grant.end - clock.now(), 0.0)

    def notify_of_trouble(self, *, is_lost: bool) -> None:
        """Call ``on_trouble``, and ``on_lost`` if the lock is lost."""
        callbacks = {"on_trouble": self.on_trouble}
        if is_lost and self.target.on_lost is not None:
            callbacks["on_lost"] = partial(self.target.on_lost, self)
        for name, callback in callbacks.items():
            try:
                if callback is not None:
                    callback()
            except (Exception, SystemExit):
                logger.exception("%s of the lock %r failed", name, self.key)

    # Renewing

    async def _renew(self, io: Backend, what: str, ms: int | None, *, to_add: bool = False) -> None:
        request = self._renew_request(what, ms, to_add=to_add)
        self.grant.confirm(await self.grant.session.call(io, request, self.key))

    def _renew_request(self, what: str, ms: int | None, *, to_add: bool = False) -> Request:
        """Return the request of a renewal. Raises LockError and LockLost; see :class:`Handle`."""
        self.refuse_if_over(what)
        if ms is not None and to_add:
            # Counted here, where it is less than in Redis: a copy that arrives late adds nothing.
            ms += int(self.remaining() * 1000)
        return self.grant.renew_request(ms)

    def refuse_if_over(self, what: str) -> None:
        """Raise LockError or LockLost if it is known that nothing can be asked for any more."""
        self._refuse_if_not_ours(what)
        grant = self.grant
        if grant.is_over:
            raise (grant.loss or grant.lose(grant.ran_out())).again()

    def _refuse_if_not_ours(self, what: str) -> None:
        why = "it was released already"
        if not self.grant.is_here:
            why = f"it belongs to process {self.grant.pid}, this one's parent"
        elif not self.released:
            return
        raise LockError(f"cannot {what} the lock {self.key!r}: {why}", key=self.key)

    # Letting go

    async def _release(self, io: Backend) -> None:
        grant, request = self.grant, self._begin_release()
        if request is None:
            return
        try:
            reply = await grant.session.call(io, request, self.target.key)
        except LockUnavailable as error:
            if grant.loss is not None:
                raise grant.loss.again() from error
            raise
        except BaseException as interrupt:
            if io.is_asyncio and grant.times_asked < 3:
                await io.shield(self._release_again, grant.session.limit, interrupt)
            raise
        await self._end_release(io, reply)

    def _begin_release(self) -> Request | None:
        """Return the request for Redis, None if none is to be sent. Raises as :meth:`release`."""
        grant = self.grant
        if self.released or grant.pid != getpid():
            self._refuse_if_not_ours("release")
        if grant.renewal is not None:
            grant.renewal.unregister(grant)
        if grant.target.options.renew and clock.now() >= grant.end:
            grant.lose(grant.ran_out())
        if grant.loss is not None and not grant.may_stand:
            raise grant.loss.again()
        grant.times_asked += 1
        return grant.release_request()

    async def _end_release(self, io: Backend, reply: Reply) -> None:
        """Read the ``reply`` to a release. Raises LockLost."""
        grant = self.grant
        value: Any = (b"OK",) if reply.value == 1 else reply.value
        is_ours = value[0] == b"OK"
        if not is_ours and (reply.was_retried or grant.times_asked > 1):
            # An earlier copy of the request has let it go, while the lease ran.
            is_ours = value[1] is None and clock.now() < grant.end
        if is_ours and grant.loss is None:
            self.released = True
        if len(value) > 1:
            await look(io, grant.session, grant.target, value[-1])
        if not self.released:
            # Its time was over here, and the holder knew: Redis alone does not make it held.
            grant.may_stand = False
            raise grant.lose(lost(self.key, None if is_ours else value[1])).again()
        if events.RELEASED.listeners:
            events.RELEASED.tell(**grant.about())
        if grant.waited or grant.end - grant.sent > events.LONG_HOLD:
            grant.notify_of_end()
