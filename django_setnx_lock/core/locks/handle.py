"""The handle of a lock that is held: what ``with`` gives, one for each entry."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from .. import clock, events, values
from ..connections.backends import ASYNCIO, BLOCKING, Backend, run
from ..connections.endpoints import Target
from ..errors import LockError, LockLost, LockUnavailable
from ..protocol import commands, replies
from ..renewal.lease import Lease
from ..stop_request import StopRequest
from . import reentrancy
from .grant import Grant, call_back
from .mailbox import ANSWER_WITHIN
from .operations import Handle, Scope
from .options import CoreOptions
from .transfer import TransferTicket, refuse_unless_possible

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..renewal.scheduler import RenewalRegistry

logger = logging.getLogger("django_setnx_lock.lock")


@dataclass(frozen=True, slots=True)
class LocalToken:
    """What ``local`` is, where redis-py's lock keeps its token: None while nothing is held."""

    token: bytes | None = field(repr=False)

    @classmethod
    def of(cls, token: str | None) -> LocalToken:
        return cls(None if token is None else token.encode())


class LockHandle(Handle):
    """A lock that is held; what ``with lock(...) as held`` gives.

    It may be passed to other threads and tasks, but belongs to the process that took it.
    ``on_trouble``, if set, is called when a renewal has failed, when the lock was found to be lost,
    and when an operator asks to stop, by the thread that found it, which it must not keep. The
    caller that sets it tells of these: a loss that the renewal finds is not logged then.
    """

    # Whether the caller has it, so that he is to be told of a loss.
    is_given = True
    # Whether it was let go by its holder, which has effect later. See ReleasePolicy.
    is_put_off = False
    _released = False

    def __init__(
        self,
        grant: Grant,
        target: Target | None = None,
        timeout: float = 0.0,
        options: CoreOptions | None = None,
    ) -> None:
        """Make the first handle of ``grant``, or with the rest, which it was asked for with, one
        more; that is to be counted in.
        """
        self.grant = grant
        self.on_trouble: Callable[[], object] | None = None
        self.is_again = target is not None
        self.target = target or grant.target
        self._timeout = timeout or grant.timeout
        self._options = options or grant.options
        if target is None:
            grant.begin(self)

    def __repr__(self) -> str:
        state = "released" if self._released else "lost" if self.lost else "held"
        return f"<{type(self).__name__} {self.key!r} fence={self.grant.fence} {state}>"

    @classmethod
    def another(
        cls, grant: Grant, target: Target, lease_ms: int, options: CoreOptions
    ) -> Self | None:
        """Return one more handle of ``grant``; None when that is being let go.

        ``target``, ``lease_ms`` and ``options`` are those of the lock that would be taken.
        """
        had, lease = grant.target, grant.lease
        own = replace(target, index=had.index, command_set=had.command_set)
        timeout = lease.bounded(lease_ms / 1000, clock.now())
        lease.seconds = max(lease.seconds, timeout)
        held = cls(grant, own, timeout, options)
        try:
            return held if grant.add(held) else None
        except BaseException:
            # Interrupts too: what is on its way up in a traceback would count as held.
            held.count_out()
            raise

    @property
    def has_enough_lease(self) -> bool:
        """Whether half of the lease that was asked for is left; a renewed one always has that."""
        return self.remaining() >= self.timeout / 2

    @property
    def key(self) -> str:
        """The key as the caller wrote it."""
        return self.target.key

    @property
    def name(self) -> str:
        """The name in Redis."""
        return self.target.keys.name

    @property
    def client(self) -> Any:
        """The redis-py client it was taken with."""
        return self.target.client

    @property
    def token(self) -> str:
        """The secret value in Redis, at the name or, with ``timestamp``, beside it.

        Whoever knows it can release the lock.
        """
        return self.grant.token

    @property
    def local(self) -> LocalToken:
        """Its ``token`` is :attr:`token` as bytes, or None once the lock was let go."""
        return LocalToken.of(None if self.is_let_go else self.token)

    @property
    def fence(self) -> int:
        """The fencing number: larger than that of every earlier holder of this name."""
        return self.grant.fence

    @property
    def timeout(self) -> float:
        """The lease in seconds, as asked for."""
        return self._timeout

    @property
    def lease(self) -> Lease:
        """The time that it is ours."""
        return self.grant.lease

    @property
    def watchdog(self) -> RenewalRegistry:
        """What renews it."""
        return self.grant.watchdog

    @property
    def wants_renewal(self) -> bool:
        """Whether the lock is to be renewed for as long as this handle is held."""
        return self._options.renew

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
        return self.grant.pid == os.getpid()

    @property
    def lost(self) -> bool:
        """Whether it is known to be ours no longer, or its lease is over. Asks nobody."""
        return not self._released and self.grant.is_over

    @property
    def loss(self) -> LockLost | None:
        """Why it is lost, once that was found. Asks nobody."""
        return self.grant.losses[0] if self.grant.losses else None

    @property
    def stop_requested(self) -> StopRequest | None:
        """Return who asked the holder to stop, and why; None if nobody did. Asks no server.

        It is heard at the next renewal, ``check()`` or ``extend()``. The lock stays held.
        """
        return self.grant.stop_requests[0] if self.grant.stop_requests else None

    def remaining(self) -> float:
        """Seconds left of the lease by the local clock; 0.0 when lost or released."""
        if self.lost or self._released or not self.is_here:
            return 0.0
        return max(self.lease.end - clock.now(), 0.0)

    def handover(self) -> None:
        """Let the lock outlive the thread or task that took it: whoever has the handle holds it.

        Without this a lock is renewed no longer when that has ended. Nobody has the lock again
        from then on without waiting for it. The event loop that a task took it in has to go on
        all the same.
        """
        self.grant.hand_over()
        if self.grant.is_renewed and self.remaining():
            self.watchdog.watch(self.grant)

    def waive_min_hold(self) -> None:
        """Be free at once when it is let go: nothing was done under it."""
        if not self.is_again:
            self.grant.min_hold_ms = 0

    def count_out(self) -> bool:
        """Count no longer as holding the lock. Gives whether it is to be let go in Redis."""
        return self.grant.remove(self)

    def declare_over(self) -> None:
        """Take note that the lease is over, and the lock lost."""
        self.grant.lose(self.grant.ran_out())

    def enter(self, scope: Scope) -> None:
        """Cancel ``scope``, which a task has entered, when the lock is lost."""
        self.grant.enter(scope)

    def leave(self, scope: Scope) -> None:
        """Take note that the task has left ``scope``."""
        self.grant.leave(scope)

    # Asking Redis

    async def _check(self, io: Backend) -> None:
        self.refuse_if_over("check")
        await self._ask(io, self.grant.checking())

    def locked(self) -> bool:
        """Whether anybody holds the name now. Raises LockUnavailable."""
        return run(self.target.locked(BLOCKING))

    async def alocked(self) -> bool:
        """Ask as :meth:`locked` does."""
        return await self.target.locked(ASYNCIO)

    async def _extend(self, io: Backend, seconds: float, replace_ttl: bool) -> Literal[True]:
        return await self._ask(io, self.extending(seconds, replace_ttl))

    async def _reacquire(self, io: Backend) -> Literal[True]:
        return await self._ask(io, self.reacquiring())

    async def _ask(self, io: Backend, request: commands.Request) -> Literal[True]:
        """Send ``request``, whose reply tells what is left of the lease. Raises LockLost."""
        sent = clock.now()
        reply = self.kept(await self._call(io, request))
        self.lease.confirm(sent, int(reply[1]) / 1000)
        return True

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

    async def _give_away(self, io: Backend, within: float | None = None) -> str:
        self.kept(await self._call(io, self.giving_away(within)))
        grant = self.grant
        grant.end_renewal()
        handles = [self, *grant.handles]
        grant.close()
        for one in handles:
            one._released = True
        return TransferTicket(self.name, grant.token, grant.fence).to_text()

    def __enter__(self) -> Self:
        """Hold it for a block, at whose end it is let go."""
        if self.target.is_awaited:
            # Nobody would await the release.
            raise self.target.must_be_awaited()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish(exc_value)

    async def _release(self, io: Backend) -> None:
        if io.is_asyncio or self._options.ending is None or not self.defers():
            await self._release_now(io)

    async def _release_now(self, io: Backend) -> None:
        request = self.to_release()
        if request is not None:
            self.read_release(await self._send_release(io, request))

    async def _send_release(self, io: Backend, request: commands.Request) -> Any:
        try:
            return await self._call(io, request)
        except LockUnavailable as error:
            failure = self.grant.losses[0].again() if self.grant.losses else error
            raise failure from error.__cause__
        except BaseException as interrupt:
            if io.is_asyncio:

                async def again() -> None:
                    try:
                        self.read_release(await self._call(io, request.repeat))
                    except LockError as error:
                        logger.warning("%s", error)

                await io.shield(again, self.target.client, interrupt)
            raise

    async def _give_back(self, io: Backend) -> None:
        """Release what nobody will be told of. What Redis does not hear ends with its lease."""
        self.waive_min_hold()
        await io.shield(lambda: self._release_now(io), self.client)

    async def _call(self, io: Backend, request: commands.Request, **options: Any) -> Any:
        # An answer is of use while it is ours.
        within = max(self.grant.lease.end - clock.now(), ANSWER_WITHIN)
        return await self.target.call(io, request, within=within, **options)

    # Which operations are possible, and what an answer means

    def defers(self) -> bool:
        """Return whether the release is deferred, which that of a lost lock never is.

        Raises LockError when it was deferred already.
        """
        if self.is_put_off:
            raise LockError(f"the lock {self.key!r} was released already", key=self.key)
        ending, grant = self._options.ending, self.grant
        if ending is None or self._released or not self.is_here or grant.is_over:
            return False
        if not ending.defers(self):
            return False
        if not grant.options.is_noted:
            reentrancy.note(grant)
        self.began_release = self.is_put_off = True
        return True

    def to_release(self) -> commands.Request | None:
        """Return the request that releases the lock; None while other handles keep it.

        Raises LockError when that cannot be asked for.
        """
        self.began_release = True
        if self._released:
            raise LockError(f"the lock {self.key!r} was released already", key=self.key)
        grant = self.grant
        if grant.pid != os.getpid():
            self._refuse_elsewhere()
        if not grant.remove(self):
            if grant.losses:
                raise grant.losses[0].again()
            self._released = True
            return None
        request = grant.releasing()
        if grant.losses and not grant.may_still_stand:
            raise grant.losses[0].again()
        return request

    def read_release(self, reply: Any) -> None:
        """Take note of the ``reply`` to the release. Raises LockLost, LockUnavailable."""
        if isinstance(reply, LockError):
            raise reply
        head = replies.read_handed_on(reply)
        if head:
            self.watchdog.schedule_handoff_check(self.target, head)
        self.kept(reply)
        if self.grant.losses:
            # Its time was over here, and the holder knew: Redis alone does not make it held.
            self.grant.may_still_stand = False
            raise self.grant.losses[0].again()
        self._released = True
        if logger.isEnabledFor(logging.DEBUG):
            held_for = clock.now() - self.grant.taken_at
            logger.debug("released the lock %r: held for %.3f s", self.key, held_for)
        if events.RELEASED.listeners:
            events.RELEASED.tell(**self.grant.about())
        held_for = clock.now() - self.grant.taken_at
        if held_for >= events.LONG_HOLD or (self.grant.waited or 0.0) >= events.LONG_WAIT:
            self.grant.tell_end()

    def extending(self, seconds: float, replace_ttl: bool) -> commands.Request:
        """Return the request that extends the lease. Raises as :meth:`extend`."""
        extra_ms = values.milliseconds(seconds, "additional_time")
        self.refuse_if_over("extend")
        self.refuse_if_followed()
        # Counted here, where it is less than in Redis: a copy that arrives late adds nothing.
        left = 0 if replace_ttl else int(self.remaining() * 1000)
        return self.grant.renewing(left + extra_ms)

    def reacquiring(self) -> commands.Request:
        """Return the request that renews the whole lease. Raises as :meth:`reacquire`."""
        self.refuse_if_over("extend")
        return self.grant.renewing(values.milliseconds(self.timeout, "timeout"))

    def refuse_if_followed(self, what: str = "extend") -> None:
        """Raise LockError if the lease is not ours to change."""
        if self.grant.is_followed:
            raise LockError(
                f"cannot {what} the lock {self.key!r}: with_lock, under which this process runs, "
                "holds it and keeps its lease",
                key=self.key,
            )

    def giving_away(self, within: float | None) -> commands.Request:
        """Return the request for the lease that the lock is given away with.

        Raises as :meth:`LockHandle.give_away`.
        """
        lease_ms = values.milliseconds(self.timeout, "timeout")
        if within is not None:
            lease_ms = max(lease_ms, values.milliseconds(within, "within"))
        self.refuse_if_over("give away")
        self.refuse_if_followed("give away")
        refuse_unless_possible(self.target)
        grant = self.grant
        return commands.give_away(grant.target.keys, grant.target.index, grant.token, lease_ms)

    def _refuse_elsewhere(self) -> None:
        if not self.is_here:
            raise LockError(
                f"the lock {self.key!r} belongs to process {self.grant.pid}, this one's parent",
                key=self.key,
            )

    def refuse_if_over(self, what: str) -> None:
        """Raise LockError or LockLost if it is known that nothing can be asked for any more."""
        if self._released:
            raise LockError(f"cannot {what} the lock {self.key!r}: it was released", key=self.key)
        self._refuse_elsewhere()
        if not self.grant.losses and self.lease.is_over(clock.now()):
            self.declare_over()
        if self.grant.losses:
            raise self.grant.losses[0].again()

    def kept(self, reply: Sequence[Any]) -> Sequence[Any]:
        """Return ``reply`` to what only the holder may ask. Raises LockLost."""
        try:
            kept = replies.read_kept(reply, self.key)
        except LockLost as error:
            self.grant.may_still_stand = False
            first = self.grant.lose(error)
            raise first if first is error else first.again() from None
        self.grant.hear(kept)
        return kept

    def tell_loss(self) -> None:
        """Call ``on_trouble`` and ``on_lost``."""
        with ExitStack() as rest:
            rest.callback(self.tell_trouble)
            if self._options.on_lost and self.is_given:
                call_back("on_lost", self.key, partial(self._options.on_lost, self))

    def tell_trouble(self) -> None:
        """Call ``on_trouble``."""
        if self.on_trouble is not None:
            call_back("on_trouble", self.key, self.on_trouble)
