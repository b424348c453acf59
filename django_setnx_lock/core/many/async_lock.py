"""What a lock over several keys does in asyncio. The twin of ``MultiLock``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, cast

from .. import clock, protocol, reentrancy
from ..aio.batch import leave_each
from ..aio.block import Block
from ..aio.calling import call, call_replicated
from ..aio.owner import Owner
from ..aio.shielded import patience, undisturbed, undisturbed_later
from ..aio.waiting import Mailbox
from ..errors import LockBusy, LockError, LockLost, LockUnavailable
from ..held import Held
from ..lock import RedisLock
from ..unset import UNSET, Unset
from ..waiting import time_to_ask, time_to_sleep
from .base import MultiBase, time_until
from .held import MultiHeld
from .turn import Blocked, ManyTurn


class AsyncMultiLock(MultiBase):
    """The methods that are awaited. They mean what those without the ``a`` do.

    What is cancelled leaves neither lock nor waiter in Redis, as in :class:`AsyncLock`.
    """

    async def atake(self, blocking_timeout: float | Unset | None = UNSET) -> MultiHeld:
        """Take all the locks and give their handle, which belongs to the running task.

        ``blocking_timeout``: seconds to wait at most (default: that of the lock, 0 when it is
        not ``blocking``); 0 asks once; None waits without limit. Raises LockBusy when somebody
        else kept one of them for so long, LockUnavailable when Redis cannot say, ValueError, and
        NotImplementedError for the client of a cluster; nothing is held then.
        """
        if isinstance(blocking_timeout, Unset):
            return await self._atake(self._limit(None, None))
        return await self._atake(blocking_timeout)

    async def _atake(self, blocking_timeout: float | None) -> MultiHeld:
        limit = protocol.waiting_time(blocking_timeout)
        give_up_at = None if limit is None else clock.now() + limit
        taken: dict[str, Held] = {}
        try:
            while True:
                await self._afill(taken, give_up_at)
                held = self._all_of(taken)
                if not held.lost:
                    return held
                # As in MultiLock._take().
                await held.agive_back()
                self._refuse_if_late(held, give_up_at)
                taken.clear()
        except GeneratorExit:
            if taken:
                undisturbed_later(MultiHeld(list(taken.values())).agive_back, patience(self.client))
            raise
        except BaseException:
            # Cancellations too.
            if taken:
                await undisturbed(MultiHeld(list(taken.values())).agive_back, patience(self.client))
            raise

    async def _afill(self, taken: dict[str, Held], give_up_at: float | None) -> None:
        """Have all of them in ``taken``, by name."""
        missing = []
        for lock in self._in_order:
            share = await lock._aagain()
            if share is None:
                missing.append(lock)
            else:
                taken[lock.name] = share
        if missing and self._are_asked_together():
            await self._atake_together(missing, give_up_at, taken)
        elif missing:
            await self._atake_in_turn(missing, give_up_at, taken)

    async def _atake_together(
        self, missing: Sequence[RedisLock], give_up_at: float | None, taken: dict[str, Held]
    ) -> None:
        turn, owner = ManyTurn([lock.turn() for lock in missing]), Owner()
        for one in turn.turns:
            one.owner = owner
        try:
            for held in await self._await_turn(turn, give_up_at):
                taken[held.name] = held
        except LockBusy:
            raise
        except GeneratorExit:
            # Nothing is awaited once all are granted.
            undisturbed_later(lambda: leave_each(turn.turns), patience(self.client))
            raise
        except BaseException as error:
            for one in turn.turns:
                taken.pop(one.target.keys.name, None)
            if turn.is_worth_undoing(error):
                await undisturbed(lambda: leave_each(turn.turns), patience(self.client))
            raise

    async def _await_turn(self, turn: ManyTurn, give_up_at: float | None) -> Sequence[Held]:
        limit = None if give_up_at is None else max(give_up_at - clock.now(), 0.0)
        mailbox: Mailbox | None = None
        tries = 0
        try:
            while True:
                left = None if give_up_at is None else give_up_at - clock.now()
                last = left is not None and left <= 0
                try:
                    answer = await _ask(turn, waits=not last, within=time_to_ask(limit, left))
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
                    await mailbox.sleep(answer.turn.token, min(seconds, turn.longest_sleep))
                except LockUnavailable as error:
                    await asyncio.sleep(turn.outlast(error, give_up_at))
        finally:
            if mailbox is not None:
                mailbox.close()

    async def _atake_in_turn(
        self, missing: Sequence[RedisLock], give_up_at: float | None, taken: dict[str, Held]
    ) -> None:
        """Take them one after the other, in the same order."""
        for lock in missing:
            taken[lock.name] = await lock.atake(time_until(give_up_at))
        for held in taken.values():
            # As in MultiLock._take_in_turn().
            if not held.lost and not reentrancy.is_enough(held):
                with suppress(LockLost):
                    await held.areacquire()

    async def aacquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
    ) -> bool:
        """Take all the locks; False when somebody else kept one of them for too long.

        ``blocking`` and ``blocking_timeout`` (seconds) default to those of the lock; ``sleep``
        (seconds) has no effect. Raises LockUnavailable and ValueError as :meth:`atake`.
        """
        protocol.waiting_time(sleep, "sleep, the first argument of aacquire(),")
        try:
            held = await self._atake(self._limit(blocking, blocking_timeout))
        except LockBusy:
            return False
        self._shelf.put(held)
        return True

    async def __aenter__(self) -> MultiHeld:
        held = await self.atake()
        # It knows all that a block asks of a handle.
        self._shelf.enter(held, Block(cast(Any, held)))
        return held

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        entered = self._shelf.innermost
        if entered is None or entered.block is None:
            message = f"the block of the locks {self.key} was entered by another task"
            raise LockError(message, key=self.key)
        held, block = entered.held, entered.block
        # As in AsyncLock.__aexit__().
        self._shelf.leave(held)
        try:
            await block.leave(exc_value, raise_on_release_error=self.raise_on_release_error)
        finally:
            held.count_out()

    async def acheck(self) -> None:
        """Raise LockLost unless all are still ours. See :meth:`MultiHeld.acheck`."""
        await self._holding("check").acheck()

    async def aowned(self) -> bool:
        """Whether all are ours, by Redis' word. Raises LockUnavailable."""
        return self.held is not None and await self.held.aowned()

    async def alocked(self) -> bool:
        """Whether anybody holds any of them. Raises LockUnavailable."""
        for lock in self._locks:
            if await lock.alocked():
                return True
        return False

    async def aextend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add to the leases or replace them. See :meth:`MultiHeld.aextend`."""
        return await self._holding("extend").aextend(additional_time, replace_ttl)

    async def areacquire(self) -> Literal[True]:
        """Start the leases anew. See :meth:`MultiHeld.areacquire`."""
        return await self._holding("reacquire").areacquire()

    async def arelease(self) -> None:
        """Let all the locks go. See :meth:`MultiHeld.arelease`."""
        held = self._holding("release")
        try:
            await held.arelease()
        finally:
            # Kept after a failure to reach Redis, so that it can be called again.
            if held.released or held.lost:
                self._shelf.drop(held)


async def _ask(turn: ManyTurn, *, waits: bool, within: float | None = None) -> list[Held] | Blocked:
    """The twin of :meth:`ManyTurn.ask`."""
    sent = clock.now()
    request, client = turn.request(waits=waits), turn.turns[0].target.client
    replicas, copies = turn.turns[0].replicas, list[bool]()
    if replicas is None:
        reply = await call(
            client,
            request,
            "",
            repeated=lambda: copies.append(True),
            within=within,
            undo=turn.undo,
        )
    else:
        reply = await call_replicated(client, request, "", replicas, within=within, undo=turn.undo)
    outcome = turn.read(reply, sent, is_certain=replicas is None and not copies)
    if outcome.to_leave:
        await leave_each(outcome.to_leave)
    return turn.settle(outcome, sent)
