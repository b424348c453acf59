"""What a lock does in asyncio. The twin of :class:`~django_setnx_lock.core.lock.RedisLock`."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Literal

from .. import clock, inheritance, protocol, reentrancy, sharing
from ..calling import worth_undoing
from ..errors import LockBusy, LockError, LockLost, LockUnavailable
from ..held import Held
from ..lock_base import LockBase
from ..turn import Turn
from ..unset import UNSET, Unset
from ..waiting import time_to_ask, time_to_sleep
from . import own_token as aio_own_token
from .block import Block
from .calling import call, locked
from .kinds import refuse_many_servers
from .owner import Owner
from .shielded import patience, undisturbed, undisturbed_later
from .turn import ask, leave
from .waiting import Mailbox


class AsyncLock(LockBase):
    """The methods of a lock that are awaited. They mean what those without the ``a`` do.

    What is cancelled while it takes or releases the lock leaves neither lock nor waiter in Redis:
    it takes as long as Redis takes to answer that, or a socket timeout at most.
    """

    async def atake(self, blocking_timeout: float | Unset | None = UNSET) -> Held:
        """Take the lock and give its handle, which belongs to the running task.

        ``blocking_timeout``: seconds to wait at most (default: that of the lock, 0 when it is
        not ``blocking``); 0 asks once; None waits without limit. Raises LockBusy when somebody
        else kept it for so long, LockUnavailable when Redis cannot say (what it may have
        granted is given back), ValueError, and NotImplementedError for a RedisCluster of
        redis.asyncio.
        """
        if isinstance(blocking_timeout, Unset):
            return await self._atake(self._limit(None, None))
        return await self._atake(blocking_timeout)

    async def _atake(self, blocking_timeout: float | None, token: str | None = None) -> Held:
        limit = protocol.waiting_time(blocking_timeout)
        refuse_many_servers(self.client)
        # Without a name: in the frames of a traceback, a share would count as held.
        return (await self._aagain() if token is None else None) or await self._atake_anew(
            limit, token
        )

    async def _aagain(self) -> Held | None:
        """The twin of :meth:`RedisLock.again`."""
        if not self.reentrant:
            return None
        share = None
        try:
            share = reentrancy.again(Held, self._target, self._lease_ms, self._upkeep)
            if share is None:
                share = await self._ainherited() if inheritance.is_possible() else None
            elif not reentrancy.is_enough(share):
                share.is_given = False
                await share.areacquire()
                share.is_given = True
            if share is not None:
                share.belong_to(Owner())
            return share
        except BaseException as error:
            if share is not None:
                sharing.leave(share)
            if isinstance(error, LockLost):
                return None
            raise

    async def _ainherited(self) -> Held | None:
        request = inheritance.request(self._target)
        if request is None:
            return None
        sent = clock.now()
        reply = await call(self.client, request, self.key)
        return inheritance.enter(Held, self._target, self._lease_ms, self._upkeep, reply, sent)

    async def _atake_anew(self, limit: float | None, token: str | None) -> Held:
        turn = self.turn()
        turn.owner = Owner()
        try:
            held = await self._await_turn(turn, limit)
        except LockBusy:
            raise
        except GeneratorExit:
            undisturbed_later(lambda: leave(turn), patience(self.client))
            raise
        except BaseException as error:
            # Cancellations too: the server may have granted what we shall never hear of.
            if worth_undoing(error):
                await undisturbed(lambda: leave(turn), patience(self.client))
            raise
        if token is not None:
            await aio_own_token.put(turn, held, token)
        return held

    async def _await_turn(self, turn: Turn, limit: float | None) -> Held:
        give_up_at = None if limit is None else clock.now() + limit
        mailbox = Mailbox(self._target)
        tries = 0
        try:
            while True:
                left = None if give_up_at is None else give_up_at - clock.now()
                last = left is not None and left <= 0
                try:
                    answer = await ask(turn, waits=not last, within=time_to_ask(limit, left))
                    if isinstance(answer, Held):
                        return answer
                    if last:
                        raise turn.busy(answer)
                    tries += 1
                    if tries == 1:
                        turn.tell_wait(answer)
                    await mailbox.sleep(turn.token, time_to_sleep(answer, tries, left))
                except LockUnavailable as error:
                    await asyncio.sleep(turn.outlast(error, give_up_at))
        finally:
            mailbox.close()

    async def aacquire(
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
        and ValueError as :meth:`atake`, TypeError and ValueError for what is no token, and
        ValueError for any with the protocol ``timestamp`` or with ``polling``.
        """
        protocol.waiting_time(sleep, "sleep, the first argument of aacquire(),")
        chosen = None if token is None else self._checked(token)
        try:
            held = await self._atake(self._limit(blocking, blocking_timeout), chosen)
        except LockBusy:
            return False
        self._shelf.put(held)
        return True

    async def __aenter__(self) -> Held:
        held = await self.atake()
        self._shelf.enter(held, Block(held))
        return held

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        entered = self._shelf.innermost
        if entered is None or entered.block is None:
            message = f"the block of the lock {self.key!r} was entered by another task"
            raise LockError(message, key=self.key)
        held, block = entered.held, entered.block
        # Before anything is awaited: another task that closes a generator must not find it, too.
        self._shelf.leave(held)
        try:
            await block.leave(exc_value, raise_on_release_error=self.raise_on_release_error)
        finally:
            if not held.is_let_go:
                sharing.leave(held)

    async def acheck(self) -> None:
        """Raise LockLost unless it is still ours. See :meth:`Held.acheck`."""
        await self._holding("check").acheck()

    async def aowned(self) -> bool:
        """Whether it is ours, by Redis' word. Raises LockUnavailable."""
        return self.held is not None and await self.held.aowned()

    async def alocked(self) -> bool:
        """Whether anybody holds it. Raises LockUnavailable."""
        return await locked(self._target)

    async def aextend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add to the lease or replace it. See :meth:`Held.aextend`."""
        return await self._holding("extend").aextend(additional_time, replace_ttl)

    async def areacquire(self) -> Literal[True]:
        """Start the lease anew. See :meth:`Held.areacquire`."""
        return await self._holding("reacquire").areacquire()

    async def arelease(self) -> None:
        """Let the lock go. See :meth:`Held.arelease`."""
        held = self._holding("release")
        try:
            await held.arelease()
        finally:
            # Kept after a failure to reach Redis, so that it can be called again.
            if held.is_let_go or held.lost:
                self._shelf.drop(held)
