"""One attempt of one caller to take one lock."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .. import clock, events
from ..connections.backends import Backend
from ..connections.endpoints import Target
from ..connections.execute import UNDO_WITHIN, Replicas
from ..errors import (
    LockBusy,
    LockDeadlock,
    LockError,
    LockLost,
    LockUnavailable,
    WaitStep,
)
from ..holder import Holder
from ..protocol import commands, replies
from ..protocol.replies import Busy
from ..renewal import watchdog
from ..renewal.loop_watchdog import running_watchdog
from . import reentrancy
from .deadlock import DeadlockSearch
from .grant import Grant
from .handle import LockHandle
from .mailbox import (
    SLICE_MS,
    BlockingMailbox,
    LoopMailbox,
    Mailbox,
    TaskMailbox,
    time_to_ask,
    time_to_sleep,
)
from .options import CoreOptions
from .transfer import Secret, read_ticket, refuse_unless_possible
from .wait_warning import WaitWarning, who_has

if TYPE_CHECKING:
    from ..renewal.scheduler import RenewalRegistry

logger = logging.getLogger("django_setnx_lock.lock")

# Sentinels that are set up as by default need half of that to notice and to agree.
LONGEST_OUTAGE = 60.0
_RETRY_PAUSE = 0.2
#: Causes that may pass while one waits.
PASSING = frozenset({"unreachable", "timeout", "readonly"})


class AcquireAttempt:
    """An attempt, known to Redis by its token."""

    # For how many seconds at most to sleep until it asks again.
    longest_sleep = math.inf
    # See Grant.
    min_hold_ms = 0
    # The attempts that have to know of a grant.
    replicas: Replicas | None = None
    # Since the caller waits.
    grace: FailoverGrace | None = None
    # Whether a request of this token was sent more than once, and whether one has no answer yet:
    # then a copy may be under way.
    was_repeated = False
    is_unanswered = False
    # Whether the caller chose the token.
    is_chosen = False
    # Since when the caller waits, and for whom. None: it does not wait.
    _waits_since: float | None = None
    _waits_for: Holder | None = None

    def __init__(
        self, target: Target, lease_ms: int, holder: Holder, options: CoreOptions | None = None
    ) -> None:
        self.target = target
        self.options = options or CoreOptions()
        self.held: LockHandle | None = None
        # Renews the lock if a task takes it.
        self.loop_watchdog: RenewalRegistry | None = None
        self.lease_ms = lease_ms
        self.record = holder.to_json()
        # Where a task is woken together with others.
        self._mailbox: LoopMailbox | None = None
        self.token = target.command_set.new_token()
        self._began = clock.now()

    def request(self, *, waits: bool) -> commands.Request:
        wait_ms = SLICE_MS if waits else 0
        if self._mailbox is not None:
            self._mailbox.expect_mail()
        self.was_repeated = in_doubt = self.was_repeated or self.is_unanswered
        self.is_unanswered = True
        target = self.target
        return target.command_set.acquire(
            target.keys,
            target.index,
            self.token,
            self.lease_ms,
            self.record,
            wait_ms,
            in_doubt=in_doubt,
        )

    def belong_to(self, io: Backend, *, waits: bool) -> None:
        """Have ``io`` renew the lock, and wake a task that ``waits`` together with others."""
        if io.is_asyncio:
            self.loop_watchdog = running_watchdog()
            if waits and self.target.command_set.wakes_waiters and not self.is_chosen:
                self._mailbox = LoopMailbox(self.target)
                self.token = self._new_token()

    def choose(self, token: str) -> None:
        """Take the lock by ``token``, and no other."""
        self.token, self.is_chosen = token, True

    def _new_token(self) -> str:
        key = None if self._mailbox is None else self._mailbox.key
        return self.target.command_set.new_token(key)

    def mailbox(self, io: Backend) -> Mailbox:
        """Return where the caller sleeps until it is woken."""
        if self.is_chosen and io.is_asyncio:
            return TaskMailbox(self.target)
        if io.is_asyncio:
            return self._mailbox or LoopMailbox(self.target)
        return BlockingMailbox(self.target)

    def note_repeat(self) -> None:
        """Take note that a request was sent more than once."""
        self.was_repeated = True

    async def ask(
        self, io: Backend, *, waits: bool, within: float | None = None
    ) -> LockHandle | Busy:
        """Ask once. A grant that took longer to arrive than it lasts is given back.

        ``within``: the seconds in which the answer has to come (None: the limits of the client).
        """
        sent = clock.now()
        reply = await self.target.acquire(
            io,
            self.request(waits=waits),
            waits=waits,
            within=within,
            undo=self.undo,
            replicas=self.replicas,
            repeated=self.note_repeat,
        )
        return await self.read(io, reply, sent)

    def undo(self) -> list[commands.Request]:
        """Return the requests that undo the one that was sent last."""
        return [self.cancelling()]

    async def read(self, io: Backend, reply: Any, sent: float) -> LockHandle | Busy:
        """Return what the ``reply`` to a request that was sent at ``sent`` means."""
        answer, now = replies.read_acquire(reply), clock.now()
        if isinstance(answer, replies.Granted) and now >= sent + self.lease_ms / 1000:
            await self.cancel(io)
        return self.settle(answer, sent, now)

    def settle(self, answer: replies.Answer, sent: float, now: float) -> LockHandle | Busy:
        """Return what an ``answer`` that came ``now`` means; a grant that is late is given back."""
        self.is_unanswered = False
        if isinstance(answer, Busy):
            if self.grace is not None:
                self.grace.is_over()
            # Whoever was handed it has taken it.
            if not answer.foreign and not answer.handed_on:
                self.watchlist.handoff_confirmed(self.target, sent)
            return answer
        seconds = self.lease_ms / 1000
        if isinstance(answer, replies.Granted) and now < sent + seconds:
            if answer.head:
                self.watchlist.schedule_handoff_check(self.target, answer.head)
            return self._has(LockHandle(self._grant(answer.fence, sent)), sent)
        # A token that was given up or forced out is never used again.
        if self.is_chosen:
            raise LockError(
                f"the token that was chosen for the lock {self.target.key!r} was given up or lost "
                "within the last minute: choose another one, or none",
                key=self.target.key,
            )
        self.token, self.was_repeated = self._new_token(), False
        return Busy(remaining=0.0, holder=None)

    def _grant(self, fence: int, since: float) -> Grant:
        seconds = self.lease_ms / 1000
        return Grant(
            self.target,
            token=self.token,
            fence=fence,
            timeout=seconds,
            deadline=since + seconds,
            options=self.options,
            loop_watchdog=self.loop_watchdog,
            in_doubt=self.was_repeated,
        )

    def _has(self, held: LockHandle, sent: float) -> LockHandle:
        """Take note that the lock was taken by a request of ``sent``, and have it renewed."""
        self.held = held
        held.grant.record = self.record
        if self.min_hold_ms:
            held.grant.min_hold_ms = self.min_hold_ms
        if self._waits_since is not None:
            held.grant.waited = clock.now() - self._began
        if not self.target.command_set.is_shared:
            self.watchlist.handoff_confirmed(self.target, sent)
        held.grant.begin_upkeep()
        if logger.isEnabledFor(logging.DEBUG):
            waited = clock.now() - self._began
            logger.debug(
                "took the lock %r: fence %s, waited %.3f s",
                self.target.key,
                held.grant.fence,
                waited,
            )
        if self.options.is_noted:
            reentrancy.note(held.grant)
        self.end_wait()
        if events.ACQUIRED.listeners:
            events.ACQUIRED.tell(
                key=self.target.key,
                fence=held.grant.fence,
                waited=clock.now() - self._began,
            )
        return held

    async def adopt(self, io: Backend, secret: Secret) -> LockHandle:
        """Take over the lock by the ticket in ``secret``, and return its handle.

        Raises as :meth:`RedisLock.adopt`.
        """
        target = self.target
        refuse_unless_possible(target)
        ticket = read_ticket(secret, target)
        self.was_repeated = True
        sent = clock.now()
        # First the time: what fails from here on leaves the ticket as good as it was, or better.
        longer = commands.SETNX.renew(target.keys, target.index, ticket.token, self.lease_ms)
        replies.read_kept(await target.call(io, longer), target.key)
        swapping = commands.replace_token(
            target.keys, ticket.token, self.token, ticket.fence, self.record
        )
        try:
            replies.read_kept(await target.call(io, swapping), target.key)
            if clock.now() >= sent + self.lease_ms / 1000:
                raise LockLost(
                    f"it took longer to take over the lock {target.key!r} than its lease lasts",
                    key=target.key,
                )
            return self._has(LockHandle(self._grant(ticket.fence, sent)), sent)
        except BaseException:
            # Interrupts too: it may have been carried out, and then nobody else knows the token.
            if self.held is not None:
                self.held.grant.give_up("it was taken over in vain")
            # A token that Redis has refused holds nothing.
            await self.release_by_token(io, self.token)
            raise

    async def release_by_token(self, io: Backend, token: str) -> None:
        """Release the lock if it is held by ``token``. What Redis cannot be told ends by itself."""
        target = self.target
        with suppress(LockError):
            request = target.command_set.release(target.keys, target.index, token)
            head = replies.read_handed_on(await target.call(io, request))
            if head:
                self.watchlist.schedule_handoff_check(target, head)

    @property
    def awaited(self) -> AcquireAttempt:
        """The attempt at the lock that the caller waits for."""
        return self

    @property
    def partly(self) -> Sequence[AcquireAttempt]:
        """The attempts at locks that are taken, but of use only with the one waited for."""
        return ()

    @property
    def watchlist(self) -> RenewalRegistry:
        """What renews the lock, and looks after whoever it is handed to."""
        return self.loop_watchdog or watchdog.WATCHDOG

    async def cancel(self, io: Backend) -> None:
        """Give up: undo whatever was or will be granted to this token."""
        target = self.target
        reply = await target.call(io, self.cancelling(), within=UNDO_WITHIN)
        self.read_cancelled(reply)

    def read_cancelled(self, reply: Any) -> None:
        """Take note of the ``reply`` to :meth:`cancelling`."""
        head = replies.read_handed_on(reply)
        if head:
            self.watchlist.schedule_handoff_check(self.target, head)
        logger.debug("gave up the lock %r", self.target.key)

    def retry_delay(self, error: LockUnavailable, give_up_at: float | None) -> float:
        """Return what :meth:`FailoverGrace.retry_delay` does, for a caller that waits already."""
        if self.grace is None:
            raise error
        return self.grace.retry_delay(error, give_up_at)

    def tell_wait(self, answer: Busy) -> None:
        """Tell that the caller waits from now on, and for whom."""
        self.grace = FailoverGrace(self.target.client)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("waits for the lock %r, %s", self.target.key, who_has(answer))
        self._waits_since, self._waits_for = clock.now(), answer.holder
        if events.WAITING.listeners:
            events.WAITING.tell(key=self.target.key, holder=answer.holder)

    def tell_unavailable(self, error: LockUnavailable) -> None:
        """Tell that Redis did not say whether the lock was granted."""
        if events.UNAVAILABLE.listeners:
            events.UNAVAILABLE.tell(
                key=self.target.key, waited=clock.now() - self._began, error=error
            )

    def end_wait(self, error: BaseException | None = None) -> None:
        """Tell that the caller waits no longer, if it did: it has the lock, or an ``error``."""
        since, self._waits_since = self._waits_since, None
        if since is not None and events.WAITED.listeners:
            events.WAITED.tell(
                key=self.target.key,
                holder=self._waits_for,
                waited=clock.now() - since,
                error=error,
            )

    def cancelling(self) -> commands.Request:
        """Return the request that gives up. A lock that was granted is no longer renewed."""
        if self.held is not None:
            self.held.grant.end_renewal()
            self.held.grant.close()
        return self.target.command_set.cancel(
            self.target.keys,
            self.target.index,
            self.token,
            in_doubt=self.was_repeated or self.is_unanswered,
        )

    def asks_again(self) -> bool:
        """Return whether a caller whose time is over asks once more."""
        return False

    def busy(self, answer: Busy, cycle: tuple[WaitStep, ...] = ()) -> LockBusy:
        """Return the error for an ``answer`` that ends the attempt, or a deadlock's ``cycle``."""
        key = self.target.key
        about: dict[str, Any] = {
            "key": key,
            "holder": answer.holder,
            "remaining": answer.remaining,
            "held_for": answer.held_for,
        }
        if cycle:
            drawn = "; ".join(map(str, cycle))
            error: LockBusy = LockDeadlock(
                f"waiting for the lock {key!r} is a deadlock: {drawn}", cycle=cycle, **about
            )
        else:
            error = LockBusy(f"the lock {key!r} is {who_has(answer)}", **about)
        logger.debug("%s", error)
        self.end_wait(error)
        if events.ENDED.listeners and clock.now() - self._began >= events.LONG_WAIT:
            events.ENDED.tell(
                target=self.target,
                record="" if error.holder is None else error.holder.to_json(),
                held_for=None,
                waited=clock.now() - self._began,
                fence=None,
                error=error,
            )
        if events.BUSY.listeners:
            events.BUSY.tell(key=key, waited=clock.now() - self._began, error=error)
        return error


_Granted = TypeVar("_Granted", covariant=True)


class Waiting(Protocol[_Granted]):
    """What :func:`wait_for` needs of an attempt at one lock or several, as AcquireAttempt.

    ``awaited``: the attempt that was last told that its lock is busy. ``partly``: those at locks
    that are held meanwhile.
    """

    @property
    def awaited(self) -> AcquireAttempt: ...
    @property
    def partly(self) -> Sequence[AcquireAttempt]: ...
    @property
    def longest_sleep(self) -> float: ...
    def belong_to(self, io: Backend, *, waits: bool) -> None: ...
    async def ask(self, io: Backend, *, waits: bool, within: float | None) -> _Granted | Busy: ...
    def asks_again(self) -> bool: ...
    def busy(self, answer: Busy, cycle: tuple[WaitStep, ...] = ()) -> LockBusy: ...
    def retry_delay(self, error: LockUnavailable, give_up_at: float | None) -> float: ...


async def wait_for(io: Backend, attempt: Waiting[_Granted], limit: float | None) -> _Granted:
    """Ask by ``attempt`` until the lock is granted, and sleep in between.

    ``limit``: the seconds to wait at most; 0 asks once; None waits without limit. Raises LockBusy
    when somebody else kept the lock for so long, and LockUnavailable.
    """
    try:
        attempt.belong_to(io, waits=limit != 0)
        return await _ask_until_granted(io, attempt, limit)
    except LockUnavailable as error:
        attempt.awaited.tell_unavailable(error)
        raise


async def _ask_until_granted(
    io: Backend, attempt: Waiting[_Granted], limit: float | None
) -> _Granted:
    give_up_at = None if limit is None else clock.now() + limit
    mailbox: Mailbox | None = None
    before: AcquireAttempt | None = None
    search = DeadlockSearch(None)
    warning: WaitWarning | None = None
    tries = 0
    try:
        while True:
            cycle = await search.cycle(io, attempt.awaited, attempt.partly)
            left = None if give_up_at is None else give_up_at - clock.now()
            last = bool(cycle) or (left is not None and left <= 0)
            try:
                within = time_to_ask(limit, left) if limit else None
                answer = await attempt.ask(io, waits=not last, within=within)
                if not isinstance(answer, Busy):
                    return answer
                if last:
                    if attempt.asks_again():
                        continue
                    raise attempt.busy(answer, cycle)
                awaited = attempt.awaited
                if mailbox is None or awaited is not before:
                    if mailbox is not None:
                        mailbox.close()
                    before, mailbox, tries = awaited, None, 0
                    awaited.tell_wait(answer)
                    mailbox = awaited.mailbox(io)
                    search = DeadlockSearch(awaited.options.deadlock_timeout)
                tries += 1
                warning = warning or WaitWarning(awaited.options.wait_warning)
                longest = min(
                    attempt.longest_sleep,
                    warning.due_in(awaited.target.key, answer),
                    search.due_in(awaited, attempt.partly),
                )
                seconds = min(time_to_sleep(answer, tries, left), longest)
                await mailbox.sleep(awaited.token, seconds)
            except LockUnavailable as error:
                await io.sleep(attempt.retry_delay(error, give_up_at))
    finally:
        if mailbox is not None:
            mailbox.close()


class FailoverGrace:
    """The time in which a waiting caller cannot ask for the lock.

    Where Sentinels say which server is the primary, they will name another one, so the wait goes
    on: until the caller's own time is over, or for a minute. Elsewhere it does not.
    """

    def __init__(self, client: Any) -> None:
        pool = getattr(client, "connection_pool", None)
        self._is_borne = getattr(pool, "sentinel_manager", None) is not None
        self._began: float | None = None

    def is_over(self) -> None:
        """Take note that the waiter was answered."""
        self._began = None

    def retry_delay(self, error: LockUnavailable, give_up_at: float | None) -> float:
        """How many seconds to wait before asking again after ``error``.

        ``give_up_at``: when the caller's own time is over, on the local clock (None: never).
        Raises ``error`` where the wait does not go on.
        """
        if not self._is_borne or error.cause not in PASSING:
            raise error
        now = clock.now()
        if self._began is None:
            self._began = now
            logger.debug("waits on for the lock %r through an outage: %s", error.key, error)
        end = self._began + LONGEST_OUTAGE
        if give_up_at is not None:
            end = min(end, give_up_at)
        if now >= end:
            raise error
        # With jitter, so that those who wait do not ask the new primary all at once.
        return min(_RETRY_PAUSE * random.uniform(0.5, 1.0), end - now)  # noqa: S311 - no secret
