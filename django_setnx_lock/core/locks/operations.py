"""What can be asked about a lock, in a thread and awaited."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from ..connections.backend import BLOCKING, Backend, run
from ..connections.pipe import ASYNCIO
from ..connections.session import session_of
from ..errors import LockError, LockLost, LockUnavailable
from ..options import milliseconds
from ..protocol.requests import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from ..options import Target
    from ..protocol.replies import StopRequest

logger = logging.getLogger("django_setnx_lock.lock")


class Operations(ABC):
    """What can be asked about a lock that is held. Those with the prefix ``a`` are awaited."""

    # The lock; of several the first.
    target: Target

    @property
    def key(self) -> str:
        """What the caller calls it."""
        return self.target.key

    @property
    def client(self) -> Any:
        """The redis-py client."""
        return self.target.client

    @property
    def _named(self) -> str:
        """What messages call it."""
        return repr(self.key)

    @property
    @abstractmethod
    def lost(self) -> bool:
        """Whether it is known to be ours no longer, or its lease is over. Asks nobody."""

    @abstractmethod
    def remaining(self) -> float:
        """Return the seconds left of the lease by the local clock; 0.0 when not held."""

    @abstractmethod
    async def _owned(self, io: Backend) -> bool: ...
    @abstractmethod
    async def _release(self, io: Backend) -> None: ...

    @abstractmethod
    async def _renew(self, io: Backend, what: str, ms: int | None, *, to_add: bool = False) -> None:
        """Have ``ms`` left of the lease at least, or see that the lock is ours. Raises LockLost.

        ``what``: what messages call that. ``ms``: None for a full lease, -1 to change nothing.
        ``to_add``: whether what is left comes on top.
        """

    async def _locked(self, io: Backend) -> bool:
        request = Request(self.target.scripts.locked, self.target.keys[:2], ())
        return bool((await session_of(self.target.client).call(io, request, self.key)).value)

    def check(self) -> None:
        """Ask Redis whether the lock is still ours. One round trip.

        Raises LockLost when it is not, with who force-released it and why, LockUnavailable when
        Redis cannot say, and LockError when it was released.
        """
        run(self._renew(BLOCKING, "check", -1))

    async def acheck(self) -> None:
        """Ask as :meth:`check` does."""
        await self._renew(ASYNCIO, "check", -1)

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
        ms = milliseconds(additional_time, "additional_time")
        run(self._renew(BLOCKING, "extend", ms, to_add=not replace_ttl))
        return True

    async def aextend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Extend the lease as :meth:`extend` does."""
        ms = milliseconds(additional_time, "additional_time")
        await self._renew(ASYNCIO, "extend", ms, to_add=not replace_ttl)
        return True

    def reacquire(self) -> Literal[True]:
        """Renew the lease: at least a full ``timeout`` is left. Raises as :meth:`extend`."""
        run(self._renew(BLOCKING, "extend", None))
        return True

    async def areacquire(self) -> Literal[True]:
        """Renew the lease as :meth:`reacquire` does."""
        await self._renew(ASYNCIO, "extend", None)
        return True

    def release(self) -> None:
        """Release the lock, or this handle where others hold the lock as well.

        A lease that is over by the local clock is released all the same when Redis confirms that
        nobody else has had the lock. Raises LockLost when it is no longer ours, LockError when it
        was released already or belongs to another process, and LockUnavailable when Redis cannot be
        asked; after that it can be called again.
        """
        run(self._release(BLOCKING))

    async def arelease(self) -> None:
        """Release as :meth:`release` does.

        When cancelled, release the lock all the same before CancelledError is raised, or give up
        after a socket timeout.
        """
        await self._release(ASYNCIO)


class Handle(Operations):
    """The handle of one lock that is held, or of several."""

    def __repr__(self) -> str:
        state = "released" if self.released else "lost" if self.lost else "held"
        return f"<{type(self).__name__} {self._named} {state}>"

    @property
    @abstractmethod
    def released(self) -> bool:
        """Whether it was released."""

    @property
    @abstractmethod
    def grants(self) -> Sequence[Any]:
        """What Redis granted: each a :class:`.grant.Grant`."""

    @property
    def is_here(self) -> bool:
        """Whether this process took it: after a fork, the child owns nothing."""
        return bool(self.grants[0].is_here)

    @property
    def loss(self) -> LockLost | None:
        """Why it is lost, once that was found. Asks nobody."""
        return next((grant.loss for grant in self.grants if grant.loss), None)

    @property
    def stop_requested(self) -> StopRequest | None:
        """Return who asked the holder to stop, and why, without asking Redis; None if nobody did.

        It is known from the next renewal on. The lock stays held.
        """
        return next((grant.stop_request for grant in self.grants if grant.stop_request), None)

    def handover(self) -> None:
        """Let the lock outlive the thread or task that took it: whoever has the handle holds it.

        Without this a lock is renewed no longer when that has ended. The event loop that a task
        took it in has to go on all the same. Raises LockError in a child process.
        """
        if not self.is_here:
            text = f"cannot hand over the lock {self._named}: it belongs to this process's parent"
            raise LockError(text, key=self.key)
        for grant in self.grants:
            grant.owner = None
            if grant.renewal is not None and grant.held_by() and not grant.is_over:
                grant.renewal.register(grant)

    async def _owned(self, io: Backend) -> bool:
        if not self.remaining():
            return False
        try:
            await self._renew(io, "check", -1)
        except LockUnavailable:
            raise
        except LockError:
            # It is lost, or released just now.
            return False
        return True

    async def give_back(self, io: Backend) -> None:
        """Release what the caller will not get. What cannot be released ends with its lease."""
        for grant in self.grants:
            grant.was_in_vain = len(grant.held_by()) == 1
        with suppress(LockError):
            await self._release(io)

    async def _release_again(self) -> None:
        try:
            await self._release(ASYNCIO)
        except LockError as error:
            logger.warning("%s", error)

    async def finish(
        self, io: Backend, body_error: BaseException | None, *, to_raise: bool = True
    ) -> None:
        """Release at the end of a block that raised ``body_error``, which is never hidden.

        Another error of the release is raised, or after ``body_error``, and without ``to_raise``,
        logged and noted. When it is interrupted, as by Ctrl-C, it releases all the same before it
        raises that.
        """
        try:
            if not self.released:
                await self._release(io)
        except LockError as error:
            is_told = type(error) is type(body_error) and error.args == body_error.args
            # What is the parent's is left alone.
            if is_told or not self.is_here:
                return
            if self.loss is None and not isinstance(error, LockUnavailable):
                # Of a handler of a signal.
                await self._release_if_held(io)
            if body_error is None and to_raise:
                raise
            logger.warning("%s", error)
            if body_error is not None and hasattr(body_error, "add_note"):
                body_error.add_note(str(error))
        except BaseException:
            await self._release_if_held(io)
            raise

    async def _release_if_held(self, io: Backend) -> None:
        """Release after an interrupt: the request may have reached Redis or not.

        To release twice does no harm. In asyncio the release itself has seen to it.
        """
        if not io.is_asyncio and not self.released:
            with suppress(LockError):
                await self._release(io)

    def __enter__(self) -> Self:
        """Hold it for a block, at whose end it is released."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        run(self.finish(BLOCKING, error))

    async def __aenter__(self) -> Self:
        """Hold it for a block, at whose end it is released."""
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        await self.finish(ASYNCIO, error)
