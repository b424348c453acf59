"""What one lock object holds, for each who took it, and the ``with`` statement."""

from __future__ import annotations

from abc import abstractmethod
from asyncio import _get_running_loop
from collections.abc import Callable
from threading import get_ident
from typing import Any, Generic, TypeVar
from weakref import ref

from ..connections.backend import BLOCKING, Backend, run
from ..connections.pipe import ASYNCIO
from ..errors import LockBusy, LockError, LockUnsupported
from ..options import UNSET, Target, Unset, checked_token, waiting_time
from ..process import Owner, current
from .operations import Handle, Operations

_Handle = TypeVar("_Handle", bound=Handle)


# Called, it gives None, as a dead reference does.
_nothing: Callable[[], Any] = type(None)


class Entry(Generic[_Handle]):
    """What was taken by one call, or for one ``with`` block, ``by`` whom.

    Python looks up the end of a block before the block begins, and keeps what it got until the
    block has ended: a method of this, which alone refers to the handle. So an interrupt that comes
    as the block is left leaves nobody who does, and the lock is renewed no longer.

    ``is_kept``: whether the lock object holds on to it, which nobody else does. ``scope``: what
    else ends with the block, and returns the error that is not of its own making.
    """

    __slots__ = ("__weakref__", "by", "held", "is_block", "is_kept", "lock", "scope")

    def __init__(
        self, lock: LocalLock[_Handle], by: Owner, *, is_block: bool = True, is_kept: bool = True
    ) -> None:
        self.lock = lock
        self.by = by
        self.is_block = is_block
        self.is_kept = is_kept
        self.held: _Handle | None = None
        self.scope: Any = None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        run(self.leave(BLOCKING, error))

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        await self.leave(ASYNCIO, error)

    async def leave(self, io: Backend, error: BaseException | None) -> None:
        """Let go what was taken for the block, which raised ``error``."""
        held, to_raise, is_cancelled = self.held, self.lock.raise_on_release_error, False
        if held is None:
            # Not ``with`` has asked for the end of a block.
            return await self.lock.leave(io, error)
        try:
            if self.scope is not None:
                before, error = error, self.scope.leave(error)
                is_cancelled = before is not error
                to_raise = to_raise or is_cancelled
            await held.finish(io, error, to_raise=to_raise)
            if is_cancelled and held.loss is not None:
                # It was left to somebody else, or released: that does not raise.
                raise held.loss.again()
        finally:
            self.held = None
            if self.is_kept:
                self.lock.drop(self)


class _EndOfBlock:
    """The method of a new entry by which a block ends; called, as by ExitStack, it ends one."""

    def __init__(self, *, is_asyncio: bool) -> None:
        self._is_asyncio = is_asyncio

    def __get__(self, lock: LocalLock[Any] | None, kind: object = None) -> Any:
        if lock is None:
            return self
        entry: Entry[Any] = Entry(lock, current(self._is_asyncio), is_kept=False)
        # Nothing else runs in this thread before __enter__() does.
        lock.begins[get_ident()] = ref(entry)
        return entry.__aexit__ if self._is_asyncio else entry.__exit__

    def __call__(self, lock: LocalLock[Any], *raised: Any) -> Any:
        return self.__get__(lock)(*raised)


class LocalToken:
    """What ``local`` is, where redis-py's lock keeps its token: None while nothing is held."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    @property
    def token(self) -> bytes | None:
        """The token as it is in Redis."""
        return None if self._token is None else self._token.encode()


class LocalLock(Operations, Generic[_Handle]):
    """A lock, or several, as its caller has it: taken by a call or by ``with``, and asked about."""

    # Whether it has one key.
    _is_one = True
    # The class of what else ends with an ``async with`` block.
    _scope: type[Any] | None = None

    def __init__(
        self, target: Target, blocking: bool, thread_local: bool, raise_on_release_error: bool
    ) -> None:
        """``target``: the lock, or the first of several."""
        self.target = target
        self.options = target.options
        self.blocking = blocking
        self.blocking_timeout = target.options.blocking_timeout
        self.thread_local = thread_local
        self.raise_on_release_error = raise_on_release_error
        # In the order in which they were taken; those that are not kept live as long as the block.
        self._entries: list[ref[Entry[_Handle]]] = []
        self._kept: set[Entry[_Handle]] = set()
        # By thread, the block that begins.
        self.begins: dict[int, ref[Entry[_Handle]]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._named} timeout={self.timeout:g}>"

    def _with_layers(self, target: Target) -> Target:
        """Return ``target`` as options beyond those of a plain lock have it."""
        return target

    @abstractmethod
    async def _take(
        self, io: Backend, limit: float | None, by: Owner, token: str | None = None
    ) -> _Handle:
        """Take the lock for ``by`` within ``limit`` seconds. Raises LockBusy."""

    @property
    def timeout(self) -> float:
        """The lease in seconds."""
        return self.options.timeout

    # What this object holds

    @property
    def held(self) -> _Handle | None:
        """The handle of what this thread holds through this object, or None."""
        return self._mine(_get_running_loop() is not None)

    def _mine(self, is_asyncio: bool) -> _Handle | None:
        """Return what the caller took last and has not let go; else what is nobody's, if one is."""
        entries = [
            entry
            for entry in self._known()
            if entry.held is not None and entry.held.is_here and not entry.held.released
        ]
        if entries and self.thread_local:
            entries = _entries_of(current(is_asyncio), entries, lambda owner: not owner.kind)
        return entries[-1].held if entries else None

    def _known(self) -> list[Entry[_Handle]]:
        entries = [reference() for reference in self._entries[:]]
        return [entry for entry in entries if entry is not None]

    async def leave(self, io: Backend, error: BaseException | None) -> None:
        """End the block that the caller entered last, as one of ExitStack. Raises LockError."""
        entries = [entry for entry in self._known() if entry.is_block]
        entries = _entries_of(current(io.is_asyncio), entries, lambda owner: owner.has_ended)
        if not entries:
            raise LockError(
                f"no block of the lock {self._named} was entered by this thread or task: leave a "
                "block where it was entered",
                key=self.key,
            )
        await entries[-1].leave(io, error)

    def _prune(self) -> None:
        """Drop what is over."""
        for entry in tuple(self._kept):
            held = entry.held
            if held is not None and not entry.is_block and (held.released or held.lost):
                self.drop(entry)

    def drop(self, entry: Entry[_Handle]) -> None:
        """Hold ``entry`` no longer."""
        entry.held = None
        self._kept.discard(entry)

    @property
    def lost(self) -> bool:
        held = self.held
        return held is not None and held.lost

    def remaining(self) -> float:
        held = self.held
        return 0.0 if held is None else held.remaining()

    # Taking

    def take(self, blocking_timeout: float | Unset | None = UNSET) -> _Handle:
        """Take the lock, with all its keys or none, and return its handle.

        ``blocking_timeout``: seconds to wait at most (default: that of the lock, 0 when it is not
        ``blocking``); 0 asks once; None waits without limit. Raises LockBusy when somebody else
        held it for that long, LockUnavailable when Redis cannot say (what it may have granted is
        given back), and ValueError.
        """
        return run(self._take(BLOCKING, self._limit(blocking_timeout), current(False)))

    async def atake(self, blocking_timeout: float | Unset | None = UNSET) -> _Handle:
        """Take the lock as :meth:`take` does. The handle belongs to the running task."""
        return await self._take(ASYNCIO, self._limit(blocking_timeout), current(True))

    def _limit(self, blocking_timeout: float | Unset | None = UNSET) -> float | None:
        if isinstance(blocking_timeout, Unset):
            return self.blocking_timeout if self.blocking else 0
        return waiting_time(blocking_timeout)

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Take the lock; False when somebody else held it for too long.

        ``blocking`` and ``blocking_timeout`` (seconds) default to those of the lock; ``sleep``
        (seconds) has no effect. ``token``: what stands at the name in Redis while it is held
        (default: a random value, which is safer); UTF-8, not empty. Whoever uses one twice answers
        for what comes of it: a second caller with the token of the holder is taken for the holder,
        and one that was given up or lost within the last minute is refused (LockError). Raises
        LockUnavailable and ValueError as :meth:`take`, TypeError and ValueError for what is no
        token, and LockUnsupported where a caller cannot choose it.
        """
        return run(self._acquire(BLOCKING, sleep, blocking, blocking_timeout, self._chosen(token)))

    async def aacquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Take the lock as :meth:`acquire` does."""
        return await self._acquire(ASYNCIO, sleep, blocking, blocking_timeout, self._chosen(token))

    async def _acquire(
        self,
        io: Backend,
        sleep: float | None,
        blocking: bool | None,
        blocking_timeout: float | None,
        token: str | None = None,
    ) -> bool:
        waiting_time(sleep, f"sleep, the first argument of {'a' * io.is_asyncio}acquire(),")
        if not (self.blocking if blocking is None else blocking):
            blocking_timeout = 0
        elif blocking_timeout is None:
            blocking_timeout = self.blocking_timeout
        limit = waiting_time(blocking_timeout)
        entry: Entry[_Handle] = Entry(self, current(io.is_asyncio), is_block=False)
        try:
            await self._enter(io, entry, limit, token)
        except LockBusy:
            return False
        return True

    async def _enter(
        self, io: Backend, entry: Entry[_Handle], limit: float | None, token: str | None = None
    ) -> _Handle:
        """Take the lock, and note in ``entry`` that the caller has it by this object."""
        held = None
        try:
            held = await self._take(io, limit, entry.by, token)
            entry.held = held
            if self._kept:
                self._prune()
            if entry.is_kept:
                self._kept.add(entry)
            self._entries.append(ref(entry, self._entries.remove))
            return held
        except BaseException:
            # Interrupts too.
            self.drop(entry)
            if held is not None:
                await held.give_back(io)
            raise

    def __enter__(self) -> _Handle:
        entry = self.begins.pop(get_ident(), _nothing)() or Entry(self, current(False))
        limit = self.blocking_timeout if self.blocking else 0
        return run(self._enter(BLOCKING, entry, limit))

    async def __aenter__(self) -> _Handle:
        entry = self.begins.pop(get_ident(), _nothing)() or Entry(self, current(True))
        held = await self._enter(ASYNCIO, entry, self._limit())
        if self._scope is not None:
            entry.scope = self._scope(held.grants)
        return held

    __exit__ = _EndOfBlock(is_asyncio=False)
    __aexit__ = _EndOfBlock(is_asyncio=True)

    # Asking

    def _held_to(self, io: Backend, what: str) -> _Handle:
        held = self._mine(io.is_asyncio)
        if held is None:
            message = f"cannot {what} the lock {self._named}: it is not held here"
            raise LockError(message, key=self.key)
        return held

    async def _owned(self, io: Backend) -> bool:
        held = self._mine(io.is_asyncio)
        return held is not None and await held._owned(io)

    async def _renew(self, io: Backend, what: str, ms: int | None, *, to_add: bool = False) -> None:
        await self._held_to(io, what)._renew(io, what, ms, to_add=to_add)

    async def _release(self, io: Backend) -> None:
        held = self._held_to(io, "release")
        try:
            await held._release(io)
        finally:
            # Kept after a failure to reach Redis, so that it can be called again.
            self._prune()

    def _chosen(self, token: object) -> str | None:
        if token is not None and (self.options.is_shared or not self._is_one):
            raise LockUnsupported(
                f"the lock {self._named} is held with others: none of them chooses its token",
                key=self.key,
            )
        if token is not None and self.target.scripts.polls:
            raise LockUnsupported(
                f"no token can be chosen for the lock {self._named} with its protocol", key=self.key
            )
        return None if token is None else checked_token(token)


def _entries_of(
    owner: Owner, entries: list[Entry[_Handle]], is_nobody: Callable[[Owner], bool]
) -> list[Entry[_Handle]]:
    """Return the ``entries`` of ``owner``, else the one that is nobody's, if there is just one."""
    mine = [entry for entry in entries if entry.by is owner]
    nobodys = [entry for entry in entries if is_nobody(entry.by)]
    return mine or (nobodys if len(nobodys) == 1 else [])
