"""The lock itself, for any redis-py client."""

from __future__ import annotations

import time
from contextlib import suppress
from types import TracebackType
from typing import Literal

from . import clock, inheritance, own_token, protocol, reentrancy, sharing, waiting
from .aio.lock import AsyncLock
from .calling import worth_undoing
from .errors import LockBusy, LockError, LockLost, LockUnavailable
from .held import Held
from .taking_over import take_over
from .turn import Turn
from .unset import UNSET, Unset


class RedisLock(AsyncLock):
    """One distributed lock, taken with ``SET name token NX PX ms``.

    Methods, parameters (and their order) and exceptions are those of redis-py's ``Lock``, with
    which it excludes one another. docs/moving-from-cache-lock.md lists what differs.

    ``client``: a redis-py client; with one of ``redis.asyncio`` it has only the methods that are
    awaited. ``name``: the key in Redis. ``timeout``: the lease in
    seconds (30; None means that too). ``sleep``: how often redis-py's waiting callers ask;
    without effect here. ``blocking``: whether :meth:`acquire` waits (True).
    ``blocking_timeout``: how long, in seconds (None: without limit). ``thread_local``:
    whether each thread sees only what it took with this object itself (True).
    ``raise_on_release_error``: whether leaving a ``with`` block raises when the release
    failed; else it is logged (True). ``renew``: whether the lease is renewed in the background
    while the lock is held (False): until it is let go, its thread has ended, or nobody refers
    to the handle any more. ``max_hold``: the seconds that it is held at most, which bounds
    lease and renewal, not :meth:`extend` (None: without limit). ``min_hold``: the seconds from the
    grant on during which nobody else gets it, however soon it is let go (None: none); the lock of
    a holder that was killed ends with its lease all the same. ``replicas``: how many replicas have
    to acknowledge the lock before it counts as taken (None: none), within ``replica_timeout``
    seconds (1) or a third of the lease, if that is less; docs/replicas.md. ``on_lost``: called once
    with the handle when the lock was found to be lost, by the thread that found it: mostly the one
    that renews, which it must not keep (None). ``key``: what the caller calls it in messages
    (name). ``index``: the sorted set to list the lock in (None: in none). ``label``, ``user``,
    ``note``: what the holder record says besides host, process and thread. ``template``: what
    kind of lock it is, for listeners (""). ``reentrant``: whether the thread or asyncio task that
    holds it by a lock with ``reentrant`` gets it again (False); docs/reentrancy.md has the rules.
    ``protocol``: ``timestamp`` for a lock whose value is the time at which it stops being valid,
    which excludes programs of that older kind (``setnx``); docs/protocols.md has the rules.
    ``unit``: that time's, ``s`` or ``ms`` (``ms``). ``expire``: whether Redis removes it a second
    after it is over (True). Both are without effect for ``setnx``. ``polling``: for servers that
    let a script touch none but the keys that it was told of (False); docs/polling.md has the rules.
    ``shared``: whether others that are ``shared`` may be held at the same time (False); ``limit``:
    how many with a limit may (None: it is held alone); docs/sharing.md has the rules. ``ending``:
    what is asked at each release that is not awaited whether it is put off (None).

    Raises ValueError for a timeout, ``max_hold`` or ``min_hold`` that is not a finite number above
    zero, a ``min_hold`` of more than ``max_hold``, ``replicas`` that are no number, a
    ``blocking_timeout`` or ``sleep`` below zero, an impossible name, a ``protocol`` or ``unit``
    that does not exist, a ``limit`` that is no number from 1 to 1,000,000, for two of
    ``timestamp``, ``polling``, ``shared``, ``limit`` and ``min_hold``, and for ``limit`` with
    ``reentrant``; TypeError when the name is no str, ``renew``, ``reentrant``, ``expire``,
    ``polling`` or ``shared`` no bool, or ``on_lost`` not to be called.
    """

    def take(self, blocking_timeout: float | Unset | None = UNSET) -> Held:
        """Take the lock and give its handle.

        ``blocking_timeout``: seconds to wait at most (default: that of the lock, 0 when it is
        not ``blocking``); 0 asks once; None waits without limit. Raises LockBusy when somebody
        else kept it for so long, LockUnavailable when Redis cannot say (what it may have
        granted is given back), and ValueError.
        """
        if isinstance(blocking_timeout, Unset):
            return self._take(self._limit(None, None))
        return self._take(blocking_timeout)

    def _take(self, blocking_timeout: float | None, token: str | None = None) -> Held:
        limit = protocol.waiting_time(blocking_timeout)
        self._target.may_block()
        # Without a name: in the frames of a traceback, a share would count as held.
        return (self.again() if token is None else None) or self._take_anew(limit, token)

    def adopt(self, ticket: str) -> Held:
        """Take over the lock that another process gave away, and give its handle.

        ``ticket``: what :meth:`Held.give_away` gave there. The lock was held all the time in
        between, has its fence still, and is this one's alone from then on: the ticket is good for
        one. ``with lock("order:42").adopt(ticket) as held: ...`` lets it go at the end.

        Raises LockLost when the lock is not held by the ticket any more: the time for it was over,
        it was force-released, or somebody has taken it over; ValueError for what is no ticket, or
        that of another lock; LockUnsupported for a lock that is held with others or on several
        masters; LockUnavailable, after which the ticket may still be good.
        """
        return self._adopt(ticket)

    def _adopt(self, ticket: str, token: str | None = None) -> Held:
        self._target.may_block()
        return take_over(self.turn(), ticket, token)

    def again(self) -> Held | None:
        """A share of the lock if the caller holds it already and it is reentrant, else None.

        What the caller let go, and has still because that was put off, is had again in any case.
        Sends something only where the share has less than half of the lease it should, or
        where the lock is held around this process. Raises LockUnavailable then, if need be.
        """
        if not self.reentrant and self._upkeep.ending is None:
            return None
        share = None
        try:
            asked = (self._kind, self._target, self._lease_ms, self._upkeep)
            if self.reentrant:
                share = reentrancy.again(*asked)
            if share is None:
                share = self._taken_back()
            if share is None:
                if self.reentrant and inheritance.is_possible():
                    share = self._inherited()
            elif not reentrancy.is_enough(share):
                share.is_given = False
                share.reacquire()
                share.is_given = True
            return share
        except BaseException as error:
            if share is not None:
                sharing.leave(share)
            if isinstance(error, LockLost):
                return None
            raise

    def _taken_back(self) -> Held | None:
        ending = self._upkeep.ending
        kept = None if ending is None else ending.kept(self._target)
        if kept is None:
            return None
        # Without a name, too.
        return reentrancy.share_of(self._kind, kept, self._target, self._lease_ms, self._upkeep)

    def _inherited(self) -> Held | None:
        request = inheritance.request(self._target)
        if request is None:
            return None
        sent = clock.now()
        reply = self._target.call(request)
        return inheritance.enter(Held, self._target, self._lease_ms, self._upkeep, reply, sent)

    def _take_anew(self, limit: float | None, token: str | None) -> Held:
        turn = self.turn()
        try:
            held = self._wait_for(turn, limit)
            if token is None:
                return held
        except LockBusy:
            raise
        except BaseException as error:
            # Interrupts too: the server may have granted what we shall never hear of.
            if worth_undoing(error):
                with suppress(LockError):
                    turn.leave()
            raise
        own_token.put(turn, held, token)
        return held

    def _wait_for(self, turn: Turn, limit: float | None) -> Held:
        give_up_at = None if limit is None else clock.now() + limit
        mailbox: waiting.Mailbox | None = None
        tries = 0
        try:
            while True:
                left = None if give_up_at is None else give_up_at - clock.now()
                last = left is not None and left <= 0
                try:
                    answer = turn.ask(waits=not last, within=waiting.time_to_ask(limit, left))
                    if isinstance(answer, Held):
                        return answer
                    if last:
                        raise turn.busy(answer)
                    tries += 1
                    if tries == 1:
                        turn.tell_wait(answer)
                    mailbox = mailbox or waiting.Mailbox(self._target)
                    seconds = waiting.time_to_sleep(answer, tries, left)
                    claim = mailbox.sleep(turn.token, seconds, turn.ahead(answer))
                except LockUnavailable as error:
                    time.sleep(turn.outlast(error, give_up_at))
                    continue
                if claim is not None and (taken := turn.take_up(claim)) is not None:
                    return taken
        finally:
            if mailbox is not None:
                mailbox.close()

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Take the lock; False when somebody else kept it for too long.

        ``blocking`` and ``blocking_timeout`` (seconds) default to those of the lock; ``sleep``
        (seconds) has no effect. ``token``: what stands at the name in Redis while it is held
        (default: a random value, which is safer); UTF-8, not empty. Raises LockUnavailable
        and ValueError as :meth:`take`, TypeError and ValueError for what is no token, and
        ValueError for any with the protocol ``timestamp`` or with ``polling``.
        """
        protocol.waiting_time(sleep, "sleep, the first argument of acquire(),")
        chosen = None if token is None else self._checked(token)
        held = None
        try:
            held = self._take(self._limit(blocking, blocking_timeout), chosen)
            self._shelf.put(held)
            return True
        except LockBusy:
            return False
        except BaseException:
            self._undo(held)
            raise

    def __enter__(self) -> Held:
        held = None
        try:
            held = self.take()
            self._shelf.enter(held)
            return held
        except BaseException:
            self._undo(held)
            raise

    def _undo(self, held: Held | None) -> None:
        """Let go of what was taken when nobody will be told of it."""
        if held is not None:
            self._shelf.leave(held)
            held.forgo_min_hold()
            with suppress(LockError):
                held.release_now()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        held = None
        try:
            held = self._innermost()
            if held is None:
                message = f"the block of the lock {self.key!r} was entered by another thread"
                raise LockError(message, key=self.key)
            held.finish(exc_value, raise_on_release_error=self.raise_on_release_error)
        except LockError:
            raise
        except BaseException as interrupt:
            # Before it was begun to let go, perhaps.
            held = held or self._innermost()
            if held is not None and not held.began_release:
                held.finish(interrupt)
            raise
        finally:
            # An interrupt may come anywhere above; a share is not to be counted any more then.
            if held is None:
                held = self._innermost()
            if held is not None:
                self._shelf.leave(held)
                if not held.is_let_go:
                    sharing.leave(held)

    def _innermost(self) -> Held | None:
        entered = self._shelf.innermost
        return None if entered is None else entered.held

    def check(self) -> None:
        """Raise LockLost unless it is still ours. See :meth:`Held.check`."""
        self._holding("check").check()

    def owned(self) -> bool:
        """Whether it is ours, by Redis' word. Raises LockUnavailable."""
        return self.held is not None and self.held.owned()

    def locked(self) -> bool:
        """Whether anybody holds it. Raises LockUnavailable."""
        return self._target.locked()

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add to the lease or replace it. See :meth:`Held.extend`."""
        return self._holding("extend").extend(additional_time, replace_ttl)

    def reacquire(self) -> Literal[True]:
        """Start the lease anew. See :meth:`Held.reacquire`."""
        return self._holding("reacquire").reacquire()

    def release(self) -> None:
        """Let the lock go. See :meth:`Held.release`."""
        held = self._holding("release")
        try:
            held.release()
        finally:
            # Kept after a failure to reach Redis, so that it can be called again.
            if held.is_let_go or held.lost:
                self._shelf.drop(held)
