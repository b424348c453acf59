"""The operations on a lock that is held, or on several, each in a thread and awaited."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..connections.backends import ASYNCIO, BLOCKING, Backend, run
from ..errors import LockError, LockLost

if TYPE_CHECKING:
    from ..renewal.lease import Lease

logger = logging.getLogger("django_setnx_lock.lock")


class Operations(ABC):
    """The questions about a lock that is held. Those with the prefix ``a`` are awaited."""

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

    def check(self) -> None:
        """Ask Redis whether the lock is still ours, with all its keys. One round trip.

        Raises LockLost when it is not: it tells who force-released it and why, and its ``key``
        which lock it is. Raises LockUnavailable when Redis cannot say, LockError when it was
        released.
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

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add ``additional_time`` seconds to what is left of the lease by the local clock.

        With ``replace_ttl``, have at least ``additional_time`` seconds left. Neither ever shortens
        the lease, so a copy of the request that arrives late does no harm. Raises ValueError
        for a time that is no finite number above zero, LockLost, LockUnavailable, and LockError
        when the lock was released; of several keys, those that can be are extended.
        """
        return run(self._extend(BLOCKING, additional_time, replace_ttl))

    async def aextend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Extend the lease as :meth:`extend` does."""
        return await self._extend(ASYNCIO, additional_time, replace_ttl)

    def reacquire(self) -> Literal[True]:
        """Renew the lease: at least a full ``timeout`` is left. Raises as :meth:`extend`.

        What is left is never cut, so that a copy of the request that arrives late cannot cut
        what :meth:`extend` added since.
        """
        return run(self._reacquire(BLOCKING))

    async def areacquire(self) -> Literal[True]:
        """Renew the lease as :meth:`reacquire` does."""
        return await self._reacquire(ASYNCIO)

    def release(self) -> None:
        """Let the lock go, or count out this handle where others hold the lock as well.

        With an ``ending`` that defers it, the lock is held until that lets it go. A lease that is
        over by the local clock is released all the same when Redis confirms that nobody else has
        had the lock. Raises LockLost when it is no longer ours, LockError when it was released
        already or belongs to another process, and LockUnavailable when Redis cannot be asked; after
        that it can be called again. Of several keys, those that can be are released.
        """
        run(self._release(BLOCKING))

    async def arelease(self) -> None:
        """Release as :meth:`release` does, and at once whatever the ``ending``.

        When cancelled, it lets the lock go all the same before it raises CancelledError, or gives
        up after a socket timeout.
        """
        await self._release(ASYNCIO)


class Scope(Protocol):
    """What a task runs under a lock; see :class:`.cancel_scope.CancelScope`."""

    task: Any

    def cancel(self) -> None:
        """Cancel the task: the lock is lost. Any thread may call it."""


class Handle(Operations):
    """The handle of a lock or of several: what ``with`` gives, and how it ends."""

    # Whether it was ever asked for the release.
    began_release = False

    @property
    @abstractmethod
    def key(self) -> str: ...
    @property
    @abstractmethod
    def released(self) -> bool: ...
    @property
    @abstractmethod
    def is_let_go(self) -> bool: ...
    @property
    @abstractmethod
    def is_here(self) -> bool: ...
    @property
    @abstractmethod
    def lost(self) -> bool: ...
    @property
    @abstractmethod
    def lease(self) -> Lease: ...
    @property
    @abstractmethod
    def wants_renewal(self) -> bool: ...
    @abstractmethod
    def remaining(self) -> float: ...
    @abstractmethod
    def count_out(self) -> object: ...
    @abstractmethod
    def declare_over(self) -> None: ...
    @abstractmethod
    def enter(self, scope: Scope) -> None: ...
    @abstractmethod
    def leave(self, scope: Scope) -> None: ...
    @abstractmethod
    async def _give_back(self, io: Backend) -> None: ...

    async def _owned(self, io: Backend) -> bool:
        if self.released or self.lost or not self.is_here:
            return False
        try:
            await self._check(io)
        except LockLost:
            return False
        return True

    def finish(
        self, body_error: BaseException | None, *, raise_on_release_error: bool = True
    ) -> None:
        """Release at the end of a block that raised ``body_error``, which is never hidden.

        When it is interrupted, as by Ctrl-C, it releases all the same before it raises that.
        """
        run(self._finish(BLOCKING, body_error, raise_on_release_error))

    async def afinish(
        self, body_error: BaseException | None, *, raise_on_release_error: bool = True
    ) -> None:
        """Release as :meth:`finish` does."""
        await self._finish(ASYNCIO, body_error, raise_on_release_error)

    async def _finish(
        self, io: Backend, body_error: BaseException | None, to_raise: bool = True
    ) -> None:
        try:
            if not self.is_let_go and self.is_here:
                await self._release(io)
        except LockError as error:
            tell_at_end(error, body_error, to_raise=to_raise)
        except BaseException:
            # Redis may have heard of it or not: releasing twice is as good as once. In asyncio the
            # release itself has seen to it.
            if not io.is_asyncio and not self.is_let_go:
                with suppress(LockError):
                    await self._release(io)
            raise


def tell_at_end(error: LockError, body_error: BaseException | None, *, to_raise: bool) -> None:
    """Raise ``error``, in which the release at the end of a block ended, if that is wanted.

    After a ``body_error``, which is never hidden, it is logged and noted there.
    """
    if body_error is None and to_raise:
        raise error
    if type(error) is type(body_error) and error.args == body_error.args:
        # Both tell of the same loss.
        return
    logger.warning("%s", error)
    if body_error is not None and hasattr(body_error, "add_note"):
        body_error.add_note(str(error))
