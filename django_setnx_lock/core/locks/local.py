"""The handles that one lock object holds, and the ``with`` statement."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Literal, TypeVar

from ..connections.backends import ASYNCIO, BLOCKING, Backend, run
from ..errors import LockBusy, LockError
from ..values import UNSET, Unset, waiting_time
from . import owner
from .cancel_scope import CancelScope
from .operations import Handle, Operations

_Handle = TypeVar("_Handle", bound=Handle)


@dataclass(slots=True, eq=False)
class _Entry(Generic[_Handle]):
    """A handle, and the owner that took it.

    ``by``: None for nobody's, as what was taken by a task that did nothing else. ``is_block``:
    whether it was entered with ``with``. ``scope``: what cancels the block of a task.
    ``is_dropped``: whether only the block knows it still.
    """

    by: owner.Owner | None
    held: _Handle
    is_block: bool = False
    scope: CancelScope | None = None
    is_dropped: bool = False


class LocalHandles(Generic[_Handle]):
    """The handles of each owner apart, or with ``thread_local`` False together."""

    def __init__(self, *, thread_local: bool) -> None:
        self._is_together = not thread_local
        self._entries: list[_Entry[_Handle]] = []

    def put(self, held: _Handle) -> None:
        """Keep ``held``; those that are over are thrown away."""
        here = owner.current()
        self._put(_Entry(None if here.has_ended else here, held))

    def enter(self, held: _Handle, scope: CancelScope | None = None) -> None:
        """Keep ``held`` for the block that the caller enters."""
        self._put(_Entry(owner.current(), held, is_block=True, scope=scope))

    def _put(self, entry: _Entry[_Handle]) -> None:
        for one in self._entries[:]:
            if not one.is_block and (one.held.is_let_go or one.held.lost):
                self._remove(one)
        self._entries.append(entry)

    def drop(self, held: _Handle) -> None:
        """Keep ``held`` no longer, but for the block that it was entered with."""
        for one in self._entries[:]:
            if one.held is held:
                one.is_dropped = True
                if not one.is_block:
                    self._remove(one)

    def leave(self, held: _Handle) -> None:
        """Keep ``held`` no longer, nor for the block that it was entered with."""
        for one in self._entries[:]:
            if one.held is held:
                self._remove(one)

    def _remove(self, entry: _Entry[_Handle]) -> None:
        # Another thread may do so meanwhile.
        with suppress(ValueError):
            self._entries.remove(entry)

    @property
    def last(self) -> _Handle | None:
        """The handle that was put here last and is still held by this process, or None.

        One that is nobody's is anybody's where there is no other.
        """
        kept = [
            one
            for one in self._entries[:]
            if not one.is_dropped and one.held.is_here and not one.held.is_let_go
        ]
        if kept and not self._is_together:
            here = owner.current()
            mine = [one for one in kept if one.by is here]
            nobodys = [one for one in kept if one.by is None]
            kept = mine or (nobodys if len(nobodys) == 1 else [])
        return kept[-1].held if kept else None

    @property
    def innermost(self) -> _Entry[_Handle] | None:
        """The block that is being left, or None if none was entered.

        That is the last one that the same thread or task entered; else the only one whose thread or
        task has ended, as another one may close a generator. Raises LockError if it is neither.
        """
        entered = [one for one in self._entries[::-1] if one.is_block]
        here = owner.current()
        mine = [one for one in entered if one.by is here]
        ended = [one for one in entered if one.by is not None and one.by.has_ended]
        if mine or len(ended) == 1:
            return (mine or ended)[0]
        if not entered:
            return None
        key = entered[0].held.key
        raise LockError(
            f"it cannot be told which block of the lock {key!r} is being left here: it was "
            "entered by another thread or task; leave it where it was entered, or use a "
            "lock object of its own for each block",
            key=key,
        )


class LocalLock(Operations, Generic[_Handle]):
    """A lock, or several, as its caller has it: taken by a call or by ``with``, and asked about."""

    blocking: bool
    blocking_timeout: float | None
    raise_on_release_error: bool
    _handles: LocalHandles[_Handle]

    @property
    @abstractmethod
    def key(self) -> str: ...

    @abstractmethod
    async def _take(
        self, io: Backend, blocking_timeout: float | Unset | None, token: str | None = None
    ) -> _Handle: ...

    def _limit(self, blocking_timeout: float | Unset | None) -> float | None:
        """Return how many seconds to wait at most. Raises ValueError."""
        if isinstance(blocking_timeout, Unset):
            return self.blocking_timeout if self.blocking else 0
        return waiting_time(blocking_timeout)

    @property
    def held(self) -> _Handle | None:
        """The handle of what this thread holds through this object, or None."""
        return self._handles.last

    @property
    def lost(self) -> bool:
        """Whether it was taken and is known to be ours no longer. Asks nobody."""
        return self.held is not None and self.held.lost

    def remaining(self) -> float:
        """Return the seconds left of the lease, of that which ends first; 0.0 when not held."""
        return self.held.remaining() if self.held is not None else 0.0

    def take(self, blocking_timeout: float | Unset | None = UNSET) -> _Handle:
        """Take the lock, with all its keys or none, and return its handle.

        ``blocking_timeout``: seconds to wait at most (default: that of the lock, 0 when it is
        not ``blocking``); 0 asks once; None waits without limit. Raises LockBusy when somebody
        else kept it for so long, LockUnavailable when Redis cannot say (what it may have
        granted is given back), and ValueError.
        """
        return run(self._take(BLOCKING, blocking_timeout))

    async def atake(self, blocking_timeout: float | Unset | None = UNSET) -> _Handle:
        """Take the lock as :meth:`take` does. The handle belongs to the running task.

        Raises LockUnsupported, too, for a RedisCluster of redis.asyncio.
        """
        return await self._take(ASYNCIO, blocking_timeout)

    async def _acquire(
        self,
        io: Backend,
        blocking: bool | None,
        blocking_timeout: float | None,
        token: str | None = None,
    ) -> bool:
        if not (self.blocking if blocking is None else blocking):
            blocking_timeout = 0
        elif blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        held = None
        try:
            held = await self._take(io, blocking_timeout, token)
            self._handles.put(held)
            return True
        except LockBusy:
            return False
        except BaseException:
            if held is not None:
                await self._undo(io, held)
            raise

    async def _undo(self, io: Backend, held: _Handle) -> None:
        """Let go of what was taken when nobody will be told of it."""
        self._handles.leave(held)
        await held._give_back(io)

    def __enter__(self) -> _Handle:
        held = None
        try:
            held = run(self._take(BLOCKING, UNSET))
            self._handles.enter(held)
            return held
        except BaseException:
            if held is not None:
                run(self._undo(BLOCKING, held))
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        held = None
        try:
            entered = self._handles.innermost
            if entered is None:
                raise self._not_entered("thread")
            held = entered.held
            run(held._finish(BLOCKING, exc_value, self.raise_on_release_error))
        except LockError:
            raise
        except BaseException as interrupt:
            # Before it was begun to let go, perhaps.
            held = held or self._innermost()
            if held is not None and not held.began_release:
                run(held._finish(BLOCKING, interrupt))
            raise
        finally:
            # An interrupt may come anywhere above; a handle is not to be counted any more then.
            if held is None:
                held = self._innermost()
            if held is not None:
                self._handles.leave(held)
                if not held.is_let_go:
                    held.count_out()

    def _innermost(self) -> _Handle | None:
        entered = self._handles.innermost
        return None if entered is None else entered.held

    def _not_entered(self, by: str) -> LockError:
        message = f"the block of the lock {self._named} was entered by another {by}"
        return LockError(message, key=self.key)

    async def __aenter__(self) -> _Handle:
        held = await self.atake()
        self._handles.enter(held, CancelScope(held))
        return held

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        entered = self._handles.innermost
        if entered is None or entered.scope is None:
            raise self._not_entered("task")
        held, scope = entered.held, entered.scope
        # Before anything is awaited: another task that closes a generator must not find it, too.
        self._handles.leave(held)
        try:
            await scope.leave(exc_value, raise_on_release_error=self.raise_on_release_error)
        finally:
            if not held.is_let_go:
                held.count_out()

    @property
    def _named(self) -> str:
        """What messages call it."""
        return repr(self.key)

    async def _mine(self, io: Backend, what: str) -> _Handle:
        if self.held is None:
            message = f"cannot {what} the lock {self._named}: it is not held here"
            raise LockError(message, key=self.key)
        return self.held

    async def _check(self, io: Backend) -> None:
        await (await self._mine(io, "check"))._check(io)

    async def _owned(self, io: Backend) -> bool:
        return self.held is not None and await self.held._owned(io)

    async def _extend(self, io: Backend, seconds: float, replace_ttl: bool) -> Literal[True]:
        return await (await self._mine(io, "extend"))._extend(io, seconds, replace_ttl)

    async def _reacquire(self, io: Backend) -> Literal[True]:
        return await (await self._mine(io, "reacquire"))._reacquire(io)

    async def _release(self, io: Backend) -> None:
        held = await self._mine(io, "release")
        try:
            await held._release(io)
        finally:
            # Kept after a failure to reach Redis, so that it can be called again.
            if held.is_let_go or held.lost:
                self._handles.drop(held)
