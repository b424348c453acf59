"""What can be asked about a lock, in a thread and awaited."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from .connections.backend import ASYNCIO, BLOCKING, Backend, run


class Operations(ABC):
    """What can be asked about a lock that is held. Those with the prefix ``a`` are awaited."""

    @property
    @abstractmethod
    def key(self) -> str:
        """What the caller calls it."""

    @abstractmethod
    async def _check(self, io: Backend) -> None: ...
    @abstractmethod
    async def _owned(self, io: Backend) -> bool: ...
    @abstractmethod
    async def _extend(self, io: Backend, seconds: float, replace_ttl: bool) -> Literal[True]: ...
    @abstractmethod
    async def _reacquire(self, io: Backend) -> Literal[True]: ...
    @abstractmethod
    async def _release(self, io: Backend) -> None: ...
    @abstractmethod
    async def _locked(self, io: Backend) -> bool: ...

    def check(self) -> None:
        """Ask Redis whether the lock is still ours. One round trip.

        Raises LockLost when it is not: it tells who force-released it and why. Raises
        LockUnavailable when Redis cannot say, LockError when it was released.
        """
        run(self._check(BLOCKING))

    async def acheck(self) -> None:
        """Ask as :meth:`check` does."""
        await self._check(ASYNCIO)

    def owned(self) -> bool:
        """Return whether the lock is ours, by Redis' word. Raises LockUnavailable."""
        return run(self._owned(BLOCKING))

    async def aowned(self) -> bool:
        """Ask as :meth:`owned` does."""
        return await self._owned(ASYNCIO)

    def locked(self) -> bool:
        """Return whether anybody holds it. Raises LockUnavailable."""
        return run(self._locked(BLOCKING))

    async def alocked(self) -> bool:
        """Ask as :meth:`locked` does."""
        return await self._locked(ASYNCIO)

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add ``additional_time`` seconds to what is left of the lease by the local clock.

        With ``replace_ttl``, have at least ``additional_time`` seconds left. Neither ever shortens
        the lease, so a copy of the request that arrives late does no harm. Raises ValueError for a
        time that is no finite number above zero, LockLost, LockUnavailable, and LockError when the
        lock was released.
        """
        return run(self._extend(BLOCKING, additional_time, replace_ttl))

    async def aextend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Extend the lease as :meth:`extend` does."""
        return await self._extend(ASYNCIO, additional_time, replace_ttl)

    def reacquire(self) -> Literal[True]:
        """Renew the lease: at least a full ``timeout`` is left. Raises as :meth:`extend`."""
        return run(self._reacquire(BLOCKING))

    async def areacquire(self) -> Literal[True]:
        """Renew the lease as :meth:`reacquire` does."""
        return await self._reacquire(ASYNCIO)

    def release(self) -> None:
        """Let the lock go, or this handle where others hold the lock as well.

        A lease that is over by the local clock is released all the same when Redis confirms that
        nobody else has had the lock. Raises LockLost when it is no longer ours, LockError when it
        was released already or belongs to another process, and LockUnavailable when Redis cannot be
        asked; after that it can be called again.
        """
        run(self._release(BLOCKING))

    async def arelease(self) -> None:
        """Release as :meth:`release` does.

        When cancelled, it lets the lock go all the same before it raises CancelledError, or gives
        up after a socket timeout.
        """
        await self._release(ASYNCIO)
