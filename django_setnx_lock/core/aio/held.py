"""What a handle does in asyncio. The twin of :class:`~django_setnx_lock.core.held.Held`."""

from __future__ import annotations

import logging
from typing import Any, Literal

from .. import clock, protocol
from ..errors import LockError, LockLost, LockUnavailable
from ..handle import Handle
from .calling import call, locked
from .shielded import patience, undisturbed

logger = logging.getLogger("django_setnx_lock.lock")


class AsyncHeld(Handle):
    """The methods of a handle that are awaited. They mean what those without the ``a`` do."""

    async def acheck(self) -> None:
        """Ask Redis whether the lock is still ours. One round trip.

        Raises LockLost when it is not (it tells who force-released it and why),
        LockUnavailable when Redis cannot say, LockError when it was released.
        """
        self.refuse_if_over("check")
        self._kept(await self._acall(self.checking()))

    async def aowned(self) -> bool:
        """Whether the lock is ours, as :meth:`acheck` without the exception.

        Raises LockUnavailable.
        """
        if self._released or self.lost or not self.is_here:
            return False
        try:
            await self.acheck()
        except LockLost:
            return False
        return True

    async def alocked(self) -> bool:
        """Whether anybody holds the name now. Raises LockUnavailable."""
        return await locked(self._target)

    async def aextend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add ``additional_time`` seconds to what is left of the lease, or make it the lease.

        ``replace_ttl`` (default False) replaces what is left. Raises ValueError for a time
        that is no finite number above zero, LockLost, LockUnavailable, and LockError when the
        lock was released.
        """
        extra_ms = protocol.milliseconds(additional_time, "additional_time")
        self.refuse_if_over("extend")
        self.refuse_if_followed()
        if replace_ttl:
            return await self._areplace(extra_ms)
        return await self._arenew(extra_ms, "add")

    async def areacquire(self) -> Literal[True]:
        """Have at least a full ``timeout`` of lease again. Raises as :meth:`aextend`.

        What is left is never cut.
        """
        self.refuse_if_over("extend")
        return await self._arenew(protocol.milliseconds(self.timeout, "timeout"), "least")

    async def agive_away(self, within: float | None = None) -> str:
        """Leave the lock held, for another process to take over. See :meth:`Held.give_away`."""
        self._kept(await self._acall(self.giving_away(within)))
        return self.gave_away()

    async def arelease(self) -> None:
        """Let the lock go, or if this is a share of it or shared, count it out.

        A lease that is over by the local clock is released all the same when Redis confirms
        that nobody else has had the lock. Raises LockLost when it is no longer ours, LockError
        when it was released already or belongs to another process, and LockUnavailable when
        Redis cannot be asked; after that it can be called again. When cancelled, it lets the
        lock go all the same before it raises CancelledError, or gives up after a socket timeout.
        """
        request = self.to_release()
        if request is None:
            return
        try:
            reply = await self._acall(request)
        except LockUnavailable as error:
            raise self.not_released(error) from error.__cause__
        except BaseException:

            async def again() -> None:
                try:
                    self.read_release(await self._acall(request))
                except LockError as error:
                    logger.warning("%s", error)

            await undisturbed(again, patience(self._target.client))
            raise
        self.read_release(reply)

    async def afinish(
        self, body_error: BaseException | None, *, raise_on_release_error: bool = True
    ) -> None:
        """Release at the end of a block that raised ``body_error``, which is never hidden."""
        if self.is_let_go or not self.is_here:
            return
        try:
            await self.arelease()
        except LockError as error:
            self.tell_at_end(error, body_error, to_raise=raise_on_release_error)

    async def _arenew(self, lease_ms: int, how: Literal["add", "least"]) -> Literal[True]:
        sent, cuts = clock.now(), self.lease.cuts
        reply = self._kept(await self._acall(self.renewing(lease_ms, how)))
        self.lease.confirm(sent, int(reply[1]) / 1000, cuts)
        return True

    async def _areplace(self, lease_ms: int) -> Literal[True]:
        sent, seconds = clock.now(), lease_ms / 1000
        before = self.lease.begin_cut(sent, seconds)
        copies: list[bool] = []
        request = self.renewing(lease_ms, "replace")
        self._kept(await self._acall(request, repeated=lambda: copies.append(True)))
        self.has_replaced(sent, seconds, before, may_come_again=bool(copies))
        return True

    async def _acall(self, request: protocol.Request, **options: Any) -> Any:
        within = self.answer_within
        return await call(self._target.client, request, self.key, within=within, **options)
