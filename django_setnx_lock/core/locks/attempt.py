"""One attempt of one caller to take one lock, known to Redis by its token."""

from __future__ import annotations

import logging
import math
from functools import lru_cache, partial
from os import getpid, urandom
from random import SystemRandom
from typing import TYPE_CHECKING, Any

from .. import clock, events
from ..connections.backend import ANSWERED, Backend
from ..connections.failures import unavailable
from ..errors import LockBusy, LockError, LockUnavailable
from ..process import holder_here
from ..protocol.replies import Busy, Reply
from ..protocol.requests import Request
from .grant import Grant, look
from .mailbox import LoopMailbox, ThreadMailbox, mailbox_of
from .renewal import renewal_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..connections.session import Session
    from ..holder import Holder
    from ..options import Target
    from ..process import Owner

logger = logging.getLogger("django_setnx_lock.lock")

# A waiter asks again after so long, whatever it was told: who was to wake it may be gone.
SLICE, _SLICE_MS = 25.0, "25000"
# In the first sleep, of so many seconds at most, the next request is already on its way; with
# leases of more than so many, as that is what such a grant may cost of its lease.
_FIRST, _FIRST_FROM = 0.4, 2.0
# Nobody wakes those who wait for another program's lock.
_FOREIGN_FIRST, _FOREIGN_LONGEST = 0.005, 0.05
# Where listening failed and asking did not: the pauses from the first to the last.
_PAUSE, _PAUSE_LONGEST = 0.025, 0.4
_UNDO_WITHIN = 2.0  # seconds, after an interrupt


@lru_cache(maxsize=256)
def _record(pid: int, thread: str, about: tuple[Any, ...]) -> str:
    """Return the holder record of the calling thread, which is ``thread`` of process ``pid``."""
    return holder_here(*about).to_json()


class Attempt:
    """An attempt to take ``target`` for ``owner``, by a token of its own or a given one.

    ``targets``: all that it may be granted.
    """

    was_retried = False  # whether a request of the token may have been sent twice
    # Where a waiter is woken; a thread's is made when it sleeps. Its key, "" for who does not wait.
    _mailbox: ThreadMailbox | LoopMailbox | None = None
    _mailbox_key = ""
    _waits: tuple[float, Holder | None] | None = None  # since when the caller does, for whom
    _grants: Sequence[Grant] = ()  # to the token
    _failures = 0  # to listen, in a row
    _was_refused = False  # without a place in the queue

    def __init__(self, target: Target, session: Session, owner: Owner, token: str | None) -> None:
        self.target = target
        self.targets: Sequence[Target] = (target,)
        self.session = session
        self.owner = owner
        self._chosen = token
        self.token = token or target.options.prefix + urandom(16).hex()
        self._record = _record(getpid(), owner.thread.name, target.options.about)
        self._began = clock.now()

    async def take(self, io: Backend, limit: float | None) -> Any:
        """Return the handle when it is granted. Raises LockBusy after ``limit`` s (None: never).

        Raises LockUnavailable. Whatever it raises, what it was granted is given back.
        """
        try:
            if limit != 0:
                self._choose_mailbox(io)
            answer = await self._ask(io)
            if isinstance(answer, Busy):
                if limit == 0:
                    raise self._busy(answer)
                answer = await self._wait(io, limit, answer)
            if self.target.confirm is not None:
                await self.target.confirm(io, self._grants)
            held = self._hold(io, answer)
            if self._waits is not None:
                self._end_wait(None)
            if self._mailbox is not None:
                self._mailbox.close(self.token)
            return held
        except BaseException as error:
            # Interrupts and cancellations too: it may have been granted all the same.
            await self._give_up(io, error)
            raise

    def _hold(self, io: Backend, grant: Grant) -> Any:
        """Return the handle of what was granted, which is renewed from now on if that is asked."""
        held = grant.target.handle(grant)
        if grant.target.is_watched:
            renewal = None if io.is_asyncio else self.session.renewal
            (renewal or renewal_of(grant, io)).register(grant)
        if events.ACQUIRED.listeners:
            events.ACQUIRED.tell(key=grant.key, fence=grant.fence, waited=clock.now() - self._began)
        return held

    # Asking

    def _request(self) -> Request:
        target, box = self.target, self._mailbox_key
        token, lease_ms, record = self.token, target.options.lease_ms, self._record
        args = (token, lease_ms, record, _SLICE_MS, box) if box else (token, lease_ms, record, "0")
        return Request(target.scripts.acquire, target.keys, args)

    async def _ask(self, io: Backend) -> Grant | Busy:
        """Ask until there is an answer."""
        while True:
            request, limits = self._request(), 1 if self._failures else 2
            reply = await self.session.call(io, request, self.target.key, self._undo, limits)
            if (answer := await self._read(io, reply)) is not None:
                return answer

    async def _read(self, io: Backend, reply: Reply) -> Grant | Busy | None:
        """Return what ``reply`` means; None: to ask again at once. A late grant is none."""
        value, target = reply.value, self.target
        if type(value) is int:
            value = (b"OK", value) if value > 0 else (b"OK", -value, b"listed", None)
        if reply.was_retried:
            self.was_retried = True
        if value[0] == b"OK":
            grant = Grant(target, self.session, self.token, int(value[1]), reply.sent, self.owner)
            grant.was_retried, self._grants = self.was_retried, (grant,)
            if clock.now() < grant.end:
                if len(value) > 2:
                    grant.is_listed = True
                    if value[3] is not None:
                        await look(io, self.session, target, value[3])
                return grant
            await self._cancel(io, in_doubt=self.was_retried)
            self._begin_anew(io)
            return Busy(0, None)
        if value[0] == b"BUSY":
            if await look(io, self.session, target, value[3], self.token):
                return None
            return Busy(int(value[1]), value[2])
        self._begin_anew(io)
        return None

    def _begin_anew(self, io: Backend) -> None:
        """Go on with another token: one that was given up is never used again."""
        if self._chosen is not None:
            key = self.target.key
            raise LockError(
                f"the token that was chosen for the lock {key!r} was given up or lost within the "
                "last minute: choose another one, or none",
                key=key,
            )
        if self._mailbox is not None:
            self._mailbox.close(self.token)
        self.token, self.was_retried = self.target.options.prefix + urandom(16).hex(), False
        if self._mailbox_key:
            self._choose_mailbox(io)

    # Waiting

    def _choose_mailbox(self, io: Backend) -> None:
        keys = self.target.keys
        if io.is_asyncio:
            beside = keys[-1] if self.session.has_index else keys[1]
            self._mailbox = mailbox_of(self.session.beside(keys[1]), beside)
            self._mailbox.expect(self.token)
            self._mailbox_key = self._mailbox.key
        else:
            # A new list, in the slot of the lock.
            self._mailbox_key = keys[1][:-4] + next(self.session.wakes)
            self._mailbox = None

    async def _wait(self, io: Backend, limit: float | None, busy: Busy) -> Grant:
        """Sleep and ask in turn, until granted. Raises LockBusy after ``limit`` seconds."""
        end = math.inf if limit is None else self._began + limit
        self._notify_of_wait(busy)
        answer: Grant | Busy | None = busy
        tries = 0
        while True:
            left = end - clock.now()
            if left <= 0:
                # Without a place in the queue.
                self._mailbox_key = ""
            if answer is None or left <= 0:
                answer = await self._ask(io)
            if isinstance(answer, Grant):
                return answer
            if left <= 0:
                raise self._busy(answer)
            pause = _pause(answer, tries, polls=self.target.scripts.polls)
            seconds = min(pause, left, await self._longest_sleep(io, answer))
            is_first = not tries and answer.record is not None and left > 2 * _FIRST
            answer = await self._sleep(io, seconds, is_first=is_first)
            tries += 1

    async def _longest_sleep(self, io: Backend, busy: Busy) -> float:
        """Return the seconds to sleep at most; called before each sleep."""
        return self.session.longest_sleep

    async def _sleep(self, io: Backend, seconds: float, *, is_first: bool) -> Grant | Busy | None:
        """Sleep until woken or for so many ``seconds``; return the answer, if it is there by then.

        The first sleep of a thread carries the next request.
        """
        if self.target.scripts.polls:
            await io.sleep(seconds)
            return None
        mailbox = self._mailbox or ThreadMailbox(self.session, self._mailbox_key)
        self._mailbox, request, sent = mailbox, None, clock.now()
        if is_first and not io.is_asyncio and self.target.options.lease > _FIRST_FROM:
            seconds, request = min(seconds, _FIRST), self._request()
        try:
            value = await mailbox.wait(self.token, seconds, request)
        except ANSWERED as error:
            # Asking shows whether the server is there, once, as this has taken a limit.
            self._failures += 1
            self.session.close_idle()
            self.was_retried |= request is not None
            if self._failures > 1 and not self.session.may_pass(error):
                raise unavailable(error, self.target.key) from error
            if not io.is_asyncio:
                # The next sleep is on another connection.
                mailbox.close(self.token)
            await io.sleep(min(_PAUSE * 2.0**self._failures, _PAUSE_LONGEST, seconds))
            return None
        self._failures = 0
        return None if value is None else await self._read(io, Reply(value, sent, False))

    # Giving up

    def _undo(self) -> bytes:
        """Return, packed, what undoes the requests whose answers will not be read."""
        return b"".join([self._cancelling(each, "doubt").pack_in_full() for each in self.targets])

    def _cancelling(self, target: Target, how: str) -> Request:
        return Request(target.scripts.release, target.keys, (self.token, how))

    async def _cancel(self, io: Backend, *, in_doubt: bool, within: float = math.inf) -> None:
        """Give up whatever was or will be granted to the token."""
        targets, how = self.targets, "doubt" if in_doubt else "cancel"
        asked = [(self._cancelling(target, how), target.key) for target in targets]
        replies = await self.session.call_many(io, asked, min(self.session.limit, within))
        for target, reply in zip(targets, replies, strict=True):
            if isinstance(reply, Reply):
                await look(io, self.session, target, reply.value[1])
                logger.debug("gave up the lock %r", target.key)

    async def _give_up(self, io: Backend, error: BaseException) -> None:
        """See that nothing is left in Redis of an attempt that ends in ``error``."""
        for grant in self._grants:
            if grant.renewal is not None:
                grant.renewal.unregister(grant)
        in_doubt = self.was_retried or getattr(error, "in_doubt", not io.is_asyncio)
        try:
            # Else the last request has left the queue.
            if self.was_retried or not self._was_refused:
                # With the request that failed, it takes two limits at most.
                within = getattr(error, "time_left", _UNDO_WITHIN)
                cancel = partial(self._cancel, io, in_doubt=in_doubt, within=within)
                await io.shield(cancel, self.session.limit, error)
        finally:
            if self._mailbox is not None:
                self._mailbox.close(self.token)
            self._end_wait(error)

    # Events and messages

    def _notify_of_wait(self, busy: Busy) -> None:
        logger.debug("waits for the lock %r, %s", self.target.key, busy)
        self._waits = clock.now(), busy.holder
        events.WAITING.tell(key=self.target.key, holder=busy.holder)

    def _end_wait(self, error: BaseException | None) -> None:
        """Have listeners know how it ended."""
        key, now = self.target.key, clock.now()
        waited = now - self._began
        if self._waits is not None and events.WAITED.listeners:
            since, holder = self._waits
            events.WAITED.tell(key=key, holder=holder, waited=now - since, error=error)
        if waited >= events.LONG_WAIT:
            for grant in self._grants:
                grant.waited = waited
        if isinstance(error, LockBusy):
            events.BUSY.tell(key=key, waited=waited, error=error)
            if waited >= events.LONG_WAIT:
                about = {"key": key, "fence": None, "held_for": None, "waited": waited}
                events.ENDED.tell(**about, target=self.target, error=error)
        elif isinstance(error, LockUnavailable):
            events.UNAVAILABLE.tell(key=key, waited=waited, error=error)

    def _busy(self, busy: Busy) -> LockBusy:
        key, left = self.target.key, busy.remaining
        error = LockBusy(f"the lock {key!r} is {busy}", key=key, holder=busy.holder, remaining=left)
        logger.debug("%s", error)
        self._was_refused = True
        return error


def _pause(busy: Busy, tries: int, *, polls: bool) -> float:
    """Return for how many seconds to sleep at most after the answer ``busy``.

    At random, so that many do not ask in step. The common numbers are a program's that seeds them.
    """
    if polls or busy.record is None:
        seconds = min(_FOREIGN_FIRST * 2.0 ** min(tries, 10), _FOREIGN_LONGEST)
        seconds *= SystemRandom().uniform(0.5, 1.0)
    else:
        seconds = SLICE * SystemRandom().uniform(0.9, 1.0)
    return seconds if busy.ms < 0 else max(min(seconds, busy.ms / 1000 + 0.001), 0.001)
