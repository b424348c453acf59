"""What the handle of several locks does in asyncio. The twin of ``MultiHeld``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from .. import clock, protocol
from ..aio.batch import ask_each, carry_out
from ..batch import Release
from ..errors import LockError, LockLost
from ..lease import Lease
from .handle import MultiHandle, raise_first

if TYPE_CHECKING:
    from ..aio.block import Block
    from ..held import Held


class AsyncMultiHeld(MultiHandle):
    """The methods of a handle that are awaited. They mean what those without the ``a`` do."""

    async def acheck(self) -> None:
        """Ask Redis whether all the locks are still ours.

        Raises LockLost when one is not (``key`` names it), LockUnavailable when Redis cannot say,
        LockError when one was released.
        """
        self.read_kept(await self._aask(self.to_check()))

    async def aowned(self) -> bool:
        """Whether all are ours, as :meth:`acheck` without the exception. Raises LockUnavailable."""
        if self.lost or not self.is_here or any(held.released for held in self.parts):
            return False
        try:
            await self.acheck()
        except LockLost:
            return False
        return True

    async def aextend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add ``additional_time`` seconds to what is left of each lease, or make it the lease.

        ``replace_ttl`` (default False) replaces what is left, by one request for each lock. Raises
        as :meth:`Held.aextend`, having extended those that can be.
        """
        extra_ms = protocol.milliseconds(additional_time, "additional_time")
        if not replace_ttl:
            return await self._arenew(extra_ms)
        self.to_renew(extra_ms)
        errors: list[LockError] = []
        for held in self.parts:
            try:
                await held.aextend(additional_time, replace_ttl=True)
            except LockError as error:
                errors.append(error)
        raise_first(errors)
        return True

    async def areacquire(self) -> Literal[True]:
        """Have at least a full ``timeout`` of each lease again. Raises as :meth:`aextend`."""
        return await self._arenew(None)

    async def _arenew(self, additional_ms: int | None) -> Literal[True]:
        sent, renewing = clock.now(), self.to_renew(additional_ms)
        self.read_renewed(renewing, await self._aask([one.request for one in renewing]), sent)
        return True

    async def _aask(self, requests: Sequence[protocol.Request]) -> list[Any]:
        return await ask_each([held.target for held in self.parts], requests)

    async def arelease(self) -> None:
        """Let all the locks go, also when one of them cannot be.

        Raises what :meth:`Held.arelease` raises for that one: LockLost if any was lost. After
        LockUnavailable it can be called again. When cancelled, it lets them go all the same.
        """
        raise_first(await carry_out(Release(self.to_release())))

    async def afinish(
        self, body_error: BaseException | None, *, raise_on_release_error: bool = True
    ) -> None:
        """Release at the end of a block that raised ``body_error``, which is never hidden."""
        if self.released or not self.is_here:
            return
        try:
            await self.arelease()
        except LockError as error:
            self.parts[0].tell_at_end(error, body_error, to_raise=raise_on_release_error)

    async def agive_back(self) -> None:
        """Let go of all that was taken when nobody will be told of it. Raises no LockError."""
        self.forgo_min_hold()
        with suppress(LockError):
            await carry_out(Release(self.parts))

    # What the block of a task has to know; see aio.block.

    @property
    def wants_renewal(self) -> bool:
        """Whether all are renewed for as long as they are held."""
        return all(held.wants_renewal for held in self.parts)

    @property
    def lease(self) -> Lease:
        """The lease that ends first."""
        return self._first_to_end.lease

    @property
    def _first_to_end(self) -> Held:
        parts = [held for held in self.parts if not held.released] or self.parts
        return min(parts, key=lambda held: held.lease.end)

    def ran_out(self) -> LockLost:
        """The error for the lease that ended first."""
        return self._first_to_end.ran_out()

    def lose(self, error: LockLost) -> LockLost:
        """Take note that the lock whose lease ended first is lost, because of ``error``."""
        return self._first_to_end.lose(error)

    def enter(self, block: Block) -> None:
        """The task that took them runs ``block`` under them."""
        for held in self.parts:
            held.enter(block)

    def leave(self, block: Block) -> None:
        """It no longer does."""
        for held in self.parts:
            held.leave(block)
