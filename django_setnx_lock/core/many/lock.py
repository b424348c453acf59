"""A lock over several keys at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Literal

from .. import clock, protocol, reentrancy
from ..batch import leave_each, release_each
from ..calling import persistently
from ..errors import LockBusy, LockError, LockLost, LockUnavailable
from ..held import Held
from ..lock import RedisLock
from ..unset import UNSET, Unset
from ..waiting import Mailbox, time_to_ask, time_to_sleep
from .async_lock import AsyncMultiLock
from .base import time_until
from .held import MultiHeld
from .turn import Blocked, ManyTurn


class MultiLock(AsyncMultiLock):
    """Several locks that are taken together: all of them or none.

    They are taken in the order of their names, whatever the order given, each first come, first
    served: whoever waits for one holds those before it and none behind it. So callers never
    deadlock by taking some of the same keys. Free ones on one server cost one round trip together;
    docs/many.md tells what it cannot do.

    ``client``: as in :class:`RedisLock`, or those of several masters, as in :class:`Redlock`.
    ``names``: the keys in Redis, one at least; one given twice is taken once. ``keys``: what
    messages and the handle call them (the names). ``on_lost``: called once with the handle of all
    when the first of them was found to be lost (None). ``options``: as in RedisLock, the same for
    all; ``blocking_timeout`` bounds the taking of all of them together. Methods, but for an own
    ``token``, and errors are those of RedisLock; ``key`` of an error says which lock it was, and is
    empty where Redis could say nothing of any.

    Raises ValueError for no name at all, TypeError for names that are one str, else as RedisLock.
    """

    def take(self, blocking_timeout: float | Unset | None = UNSET) -> MultiHeld:
        """Take all the locks and give their handle.

        ``blocking_timeout``: seconds to wait at most (default: that of the lock, 0 when it is
        not ``blocking``); 0 asks once; None waits without limit. Raises LockBusy when somebody
        else kept one of them for so long, LockUnavailable when Redis cannot say, and ValueError;
        nothing is held then.
        """
        if isinstance(blocking_timeout, Unset):
            return self._take(self._limit(None, None))
        return self._take(blocking_timeout)

    def _take(self, blocking_timeout: float | None) -> MultiHeld:
        limit = protocol.waiting_time(blocking_timeout)
        self._first._target.may_block()
        give_up_at = None if limit is None else clock.now() + limit
        taken: dict[str, Held] = {}
        try:
            while True:
                self._fill(taken, give_up_at)
                held = self._all_of(taken)
                if not held.lost:
                    return held
                # As what was had before the others were may be lost by then.
                held.give_back()
                self._refuse_if_late(held, give_up_at)
                taken.clear()
        except BaseException:
            # Interrupts too.
            if taken:
                MultiHeld(list(taken.values())).give_back()
            raise

    def _fill(self, taken: dict[str, Held], give_up_at: float | None) -> None:
        """Have all of them in ``taken``, by name."""
        missing = []
        share = None
        try:
            for lock in self._in_order:
                share = lock.again()
                if share is None:
                    missing.append(lock)
                else:
                    taken[lock.name] = share
        except BaseException:
            # Interrupts too: it may not be among them yet.
            if share is not None:
                release_each([share], now=True)
            raise
        if missing and self._are_asked_together():
            self._take_together(missing, give_up_at, taken)
        elif missing:
            self._take_in_turn(missing, give_up_at, taken)

    def _take_together(
        self, missing: Sequence[RedisLock], give_up_at: float | None, taken: dict[str, Held]
    ) -> None:
        turn = ManyTurn([lock.turn() for lock in missing])
        try:
            for held in self._wait_for(turn, give_up_at):
                taken[held.name] = held
        except LockBusy:
            raise
        except BaseException as error:
            for one in turn.turns:
                taken.pop(one.target.keys.name, None)
            if turn.is_worth_undoing(error):
                with suppress(LockError):
                    leave_each(turn.turns)
            raise

    def _wait_for(self, turn: ManyTurn, give_up_at: float | None) -> Sequence[Held]:
        limit = None if give_up_at is None else max(give_up_at - clock.now(), 0.0)
        mailbox: Mailbox | None = None
        tries = 0
        try:
            while True:
                left = None if give_up_at is None else give_up_at - clock.now()
                last = left is not None and left <= 0
                try:
                    answer = turn.ask(waits=not last, within=time_to_ask(limit, left))
                    if not isinstance(answer, Blocked):
                        return answer
                    if last:
                        if turn.asks_again(answer):
                            continue
                        raise answer.turn.busy(answer.answer)
                    if turn.waits_for(answer):
                        if mailbox is not None:
                            mailbox.close()
                        mailbox, tries = None, 0
                    tries += 1
                    mailbox = mailbox or Mailbox(answer.turn.target)
                    seconds = time_to_sleep(answer.answer, tries, left)
                    mailbox.sleep(answer.turn.token, min(seconds, turn.longest_sleep), None)
                except LockUnavailable as error:
                    time.sleep(turn.outlast(error, give_up_at))
        finally:
            if mailbox is not None:
                mailbox.close()

    def _take_in_turn(
        self, missing: Sequence[RedisLock], give_up_at: float | None, taken: dict[str, Held]
    ) -> None:
        """Take them one after the other, in the same order."""
        for lock in missing:
            # Asked for its name afterwards, an interrupt would leave it behind.
            name = lock.name
            taken[name] = lock.take(time_until(give_up_at))
        for held in taken.values():
            # Much of it may have gone while others were waited for.
            if not held.lost and not reentrancy.is_enough(held):
                # Who took them begins anew if it is lost.
                with suppress(LockLost):
                    held.reacquire()

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
    ) -> bool:
        """Take all the locks; False when somebody else kept one of them for too long.

        ``blocking`` and ``blocking_timeout`` (seconds) default to those of the lock; ``sleep``
        (seconds) has no effect. Raises LockUnavailable and ValueError as :meth:`take`.
        """
        protocol.waiting_time(sleep, "sleep, the first argument of acquire(),")
        held = None
        try:
            held = self._take(self._limit(blocking, blocking_timeout))
            self._shelf.put(held)
            return True
        except LockBusy:
            return False
        except BaseException:
            self._undo(held)
            raise

    def __enter__(self) -> MultiHeld:
        held = None
        try:
            held = self.take()
            self._shelf.enter(held)
            return held
        except BaseException:
            self._undo(held)
            raise

    def _undo(self, held: MultiHeld | None) -> None:
        """Let go of what was taken when nobody will be told of it."""
        if held is not None:
            self._shelf.leave(held)
            held.give_back()

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
                message = f"the block of the locks {self.key} was entered by another thread"
                raise LockError(message, key=self.key)
            held.finish(exc_value, raise_on_release_error=self.raise_on_release_error)
        except LockError:
            raise
        except BaseException as interrupt:
            # As in RedisLock.__exit__().
            held = held or self._innermost()
            if held is not None and not held.began_release:
                held.finish(interrupt)
            raise
        finally:
            if held is None:
                held = self._innermost()
            if held is not None:
                self._shelf.leave(held)
                held.count_out()

    def _innermost(self) -> MultiHeld | None:
        entered = self._shelf.innermost
        return None if entered is None else entered.held

    def check(self) -> None:
        """Raise LockLost unless all are still ours. See :meth:`MultiHeld.check`."""
        self._holding("check").check()

    def owned(self) -> bool:
        """Whether all are ours, by Redis' word. Raises LockUnavailable."""
        return self.held is not None and self.held.owned()

    def locked(self) -> bool:
        """Whether anybody holds any of them. Raises LockUnavailable."""
        self._first._target.may_block()
        if not self._are_asked_together():
            return any(lock.locked() for lock in self._locks)
        client = self.client
        return bool(persistently(client, lambda: client.exists(*self.names), ""))

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add to the leases or replace them. See :meth:`MultiHeld.extend`."""
        return self._holding("extend").extend(additional_time, replace_ttl)

    def reacquire(self) -> Literal[True]:
        """Start the leases anew. See :meth:`MultiHeld.reacquire`."""
        return self._holding("reacquire").reacquire()

    def release(self) -> None:
        """Let all the locks go. See :meth:`MultiHeld.release`."""
        held = self._holding("release")
        try:
            held.release()
        finally:
            # Kept after a failure to reach Redis, so that it can be called again.
            if held.is_let_go or held.lost:
                self._shelf.drop(held)
