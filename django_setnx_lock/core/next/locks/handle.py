"""The handle of a lock that is held: what ``with`` gives, one for each entry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from os import getpid
from typing import TYPE_CHECKING, Any, Literal
from weakref import ref

from ... import clock, events
from ...errors import LockError, LockLost, LockUnavailable
from ...protocol.commands import milliseconds
from ...stop_request import StopRequest
from ..connections.backend import Backend
from ..operations import Handle
from ..protocol.replies import lost
from ..protocol.requests import Command
from .grant import Grant, call_back, look

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..connections.session import Reply, Session
    from ..options import Target

logger = logging.getLogger("django_setnx_lock.lock")


@dataclass(frozen=True, slots=True)
class LocalToken:
    """What ``local`` is, where redis-py's lock keeps its token: None while nothing is held."""

    token: bytes | None = field(repr=False)

    @classmethod
    def of(cls, token: str | None) -> LocalToken:
        """Return that of ``token`` as text."""
        return cls(None if token is None else token.encode())


class LockHandle(Handle):
    """A lock that is held; what ``with lock(...) as held`` gives.

    It may be passed to other threads and tasks, but belongs to the process that took it.
    ``on_trouble``, if set, is called when a renewal has failed, when the lock was found to be lost,
    and when an operator asks to stop, by the thread that found it, which it must not keep. The
    caller that sets it tells of these: a loss that the renewal finds is not logged then.
    """

    on_trouble: Callable[[], object] | None = None
    _released = False
    # Whether Redis was asked before to let it go.
    _was_asked = False

    def __init__(self, grant: Grant, target: Target | None = None) -> None:
        """``target``: what was asked for, if that is not what was granted."""
        self.grant = grant
        self.target = target or grant.target
        grant.handles += (ref(self),)

    def __repr__(self) -> str:
        state = "released" if self._released else "lost" if self.lost else "held"
        return f"<{type(self).__name__} {self.key!r} fence={self.fence} {state}>"

    @property
    def key(self) -> str:
        """The key as the caller wrote it."""
        return self.target.key

    @property
    def name(self) -> str:
        """The name in Redis."""
        return self.grant.target.keys[0]

    @property
    def client(self) -> Any:
        """The redis-py client it was taken with."""
        return self.target.client

    @property
    def token(self) -> str:
        """The secret value in Redis. Whoever knows it can release the lock."""
        return self.grant.token

    @property
    def local(self) -> LocalToken:
        """Its ``token`` is :attr:`token` as bytes, or None once the lock was let go."""
        return LocalToken.of(None if self._released else self.token)

    @property
    def fence(self) -> int:
        """The fencing number: larger than that of every earlier holder of this name."""
        return self.grant.fence

    @property
    def timeout(self) -> float:
        """The lease in seconds, as asked for."""
        return self.target.options.lease

    @property
    def released(self) -> bool:
        """Whether it was let go."""
        return self._released

    @property
    def grants(self) -> Sequence[Grant]:
        """What Redis granted."""
        return (self.grant,)

    @property
    def is_here(self) -> bool:
        """Whether this process took it: after a fork, the child owns nothing."""
        return self.grant.is_here

    @property
    def lost(self) -> bool:
        """Whether it is known to be ours no longer, or its lease is over. Asks nobody."""
        return not self._released and self.grant.is_over

    @property
    def loss(self) -> LockLost | None:
        """Why it is lost, once that was found. Asks nobody."""
        return self.grant.loss

    @property
    def stop_requested(self) -> StopRequest | None:
        """Return who asked the holder to stop, and why; None if nobody did. Asks no server.

        It is heard at the next renewal, ``check()`` or ``extend()``. The lock stays held.
        """
        return self.grant.stop_request

    def remaining(self) -> float:
        """Seconds left of the lease by the local clock; 0.0 when lost or released."""
        if self.lost or self._released or not self.is_here:
            return 0.0
        return max(self.grant.lease.end - clock.now(), 0.0)

    def handover(self) -> None:
        """Let the lock outlive the thread or task that took it: whoever has the handle holds it.

        Without this a lock is renewed no longer when that has ended. The event loop that a task
        took it in has to go on all the same.
        """
        self.grant.owner = None
        if self.grant.renewal is not None and self.remaining():
            self.grant.renewal.register(self.grant)

    def notify_of_loss(self) -> None:
        """Call ``on_trouble`` and ``on_lost``."""
        with ExitStack() as rest:
            rest.callback(self.notify_of_trouble)
            on_lost = self.target.on_lost
            if on_lost is not None:
                call_back("on_lost", self.key, partial(on_lost, self))

    def notify_of_trouble(self) -> None:
        """Call ``on_trouble``."""
        if self.on_trouble is not None:
            call_back("on_trouble", self.key, self.on_trouble)

    # Asking Redis

    async def _check(self, io: Backend) -> None:
        await self._renew(io, self._checked())

    def _checked(self) -> int:
        """Return what a check asks for: that nothing changes. Raises as :meth:`check`."""
        self._refuse_if_over("check")
        return -1

    async def _locked(self, io: Backend) -> bool:
        return await is_taken(io, self.grant.session, self.name, self.key)

    async def _extend(self, io: Backend, seconds: float, replace_ttl: bool) -> Literal[True]:
        return await self._renew(io, self._extended(seconds, replace_ttl))

    def _extended(self, seconds: float, replace_ttl: bool) -> int:
        """Return the milliseconds of a lease that is extended. Raises as :meth:`extend`."""
        ms = milliseconds(seconds, "additional_time")
        self._refuse_if_over("extend")
        # Counted here, where it is less than in Redis: a copy that arrives late adds nothing.
        return ms if replace_ttl else ms + int(self.remaining() * 1000)

    async def _reacquire(self, io: Backend) -> Literal[True]:
        return await self._extend(io, self.timeout, replace_ttl=True)

    async def _renew(self, io: Backend, ms: int) -> Literal[True]:
        """Have at least ``ms`` left of the lease, and see that it is ours. Raises LockLost."""
        grant = self.grant
        self._confirm(await grant.session.call(io, grant.renew_request(ms), self.key))
        return True

    def _confirm(self, reply: Reply) -> None:
        """Take note of the ``reply`` to a renewal. Raises LockLost."""
        value = self._ours(reply)
        self.grant.lease.confirm(reply.sent, int(value[1]) / 1000)

    def _ours(self, reply: Reply) -> Any:
        """Return the value of ``reply`` to the holder. Raises LockLost."""
        value, grant = reply.value, self.grant
        if value[0] != b"OK":
            grant.may_stand = False
            error = lost(self.key, value[1])
            first = grant.lose(error)
            raise first if first is error else first.again()
        return value

    def _refuse_if_over(self, what: str) -> None:
        """Raise LockError or LockLost if it is known that nothing can be asked for any more."""
        if self._released:
            raise LockError(f"cannot {what} the lock {self.key!r}: it was released", key=self.key)
        self._refuse_elsewhere()
        grant = self.grant
        if grant.loss is None and grant.is_over:
            grant.lose(grant.ran_out())
        if grant.loss is not None:
            raise grant.loss.again()

    def _refuse_elsewhere(self) -> None:
        if not self.grant.is_here:
            raise LockError(
                f"the lock {self.key!r} belongs to process {self.grant.pid}, this one's parent",
                key=self.key,
            )

    # Letting go

    async def _release(self, io: Backend) -> None:
        if not self._begin_release():
            return
        grant, was_asked = self.grant, self._was_asked
        self._was_asked = True
        try:
            reply = await grant.session.call(io, grant.release_request(), self.target.key)
        except LockUnavailable as error:
            if grant.loss is not None:
                raise grant.loss.again() from error
            raise
        except BaseException as interrupt:
            if io.is_asyncio:
                await io.shield(self._release_again, grant.session.limit, interrupt)
            raise
        await self._end_release(io, reply, was_asked)

    async def _end_release(self, io: Backend, reply: Reply, was_asked: bool) -> None:
        """Take note of the ``reply``; ``was_asked``: not for the first time. Raises LockLost."""
        grant, value = self.grant, reply.value
        is_ours = value[0] == b"OK" or self._was_let_go(reply, was_asked)
        if is_ours and grant.loss is None:
            self._released = True
        if len(value) > 1:
            await look(io, grant.session, grant.target, value[-1])
        if not self._released:
            # Its time was over here, and the holder knew: Redis alone does not make it held.
            grant.may_stand = False
            raise grant.lose(lost(self.key, None if is_ours else value[1])).again()
        if events.RELEASED.listeners:
            events.RELEASED.tell(**grant.about())

    def _begin_release(self) -> bool:
        """Return whether Redis is to be asked. Raises as :meth:`release`."""
        grant = self.grant
        if self._released:
            raise LockError(f"the lock {self.key!r} was released already", key=self.key)
        if grant.pid != getpid():
            self._refuse_elsewhere()
        if grant.renewal is not None:
            grant.renewal.unregister(grant)
        if grant.target.options.renew and clock.now() >= grant.lease.end:
            grant.lose(grant.ran_out())
        if grant.loss is not None and not grant.may_stand:
            raise grant.loss.again()
        return True

    def _was_let_go(self, reply: Reply, was_asked: bool) -> bool:
        """Return whether an earlier copy of the request has let it go, while the lease ran."""
        is_second = was_asked or reply.was_retried
        return is_second and reply.value[1] is None and clock.now() < self.grant.lease.end

    def detach(self) -> Callable[[], None]:
        """Let the lock go later: return what does that, and is called by whom it is left to.

        It is held and renewed as before for as long as somebody refers to that; this handle counts
        as released. Raises LockError and LockLost as :meth:`extend`.
        """
        return self._detached().release

    def _detached(self) -> Self:
        """Return another handle in the place of this one."""
        self._refuse_if_over("leave the release of")
        later = type(self)(self.grant, self.target)
        self._released = True
        return later


async def is_taken(io: Backend, session: Session, name: str, key: str) -> bool:
    """Return whether anything stands at ``name``."""
    return bool((await session.call(io, Command(("EXISTS", name)), key)).value)
