"""What lock_core.py has, of the core that is built beside today's: only tests choose it."""

from __future__ import annotations

import logging
from asyncio import _get_running_loop
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import conf, lock_core
from .core.errors import LockError, LockUnavailable, LockUnsupported
from .core.next.connections.backend import ASYNCIO, BLOCKING, run
from .core.next.connections.session import session_of
from .core.next.locks import scope
from .core.next.locks.handle import LockHandle
from .core.next.locks.layered import RedisLock, RWLock
from .core.next.locks.local import LocalLock
from .core.next.locks.lock import PlainLock
from .core.next.locks.reentrancy import SharedHandle, again, note
from .core.next.locks.several import MultiLock
from .core.next.options import checked_callback
from .transactions import defer_to, open_transactions

if TYPE_CHECKING:
    from .core.next.connections.backend import Backend
    from .core.next.locks.several import MultiLockHandle
    from .core.next.owner import Owner
    from .core.next.protocol.requests import Request

logger = logging.getLogger("django_setnx_lock.lock")

Maker = Callable[..., RedisLock]
# What this core does not take: what it does in any case, or not yet.
_NOT_TAKEN = {"replicas", "protocol", "ending", "deadlock_timeout", "heartbeat_prefix"}


class CommitHandle(SharedHandle):
    """A handle whose release waits for the end of the transactions around it.

    It counts as released by then: another one, which ``is_put_off``, keeps the lock.
    """

    is_put_off = False

    def _begin_release(self) -> Request | None:
        grant = self.grant
        if not self.released:
            around = () if self.is_put_off or _get_running_loop() else open_transactions()
            if around and grant.is_here and not grant.is_over:
                later = type(self)(grant, self.target)
                later.is_put_off = True
                if grant.owner is not None:
                    # It is had again before that, reentrant or not.
                    note(grant, grant.owner)
                defer_to(around, later)
                self.released = True
                return None
            if len(grant.handles) > 1:
                with grant.session.deciding:
                    if self._is_followed():
                        return None
        return super()._begin_release()


class CommitLock(RedisLock):
    """A lock that is let go at the end of the transactions around its release."""

    _handle = CommitHandle

    async def _take(
        self, io: Backend, limit: float | None, by: Owner, token: str | None = None
    ) -> LockHandle:
        is_reentrant = self.options.reentrant
        if token is None and by.holds and (is_reentrant or self._is_put_off(by)):
            held = await again(io, self.target, by)
            if held is not None:
                return self._handle(held.grant, held.target)
        held = await PlainLock._take(self, io, limit, by, token)
        if is_reentrant:
            note(held.grant, by)
        return held

    def _is_put_off(self, by: Owner) -> bool:
        """Return whether ``by`` has let it go, and a transaction alone keeps it."""
        noted = by.holds.get((session_of(self.client).place, self.name))
        grant = None if noted is None else noted()
        handles = [] if grant is None else grant.held_by()
        return bool(handles) and all(getattr(one, "is_put_off", False) for one in handles)


class _Together(MultiLock):
    def __init__(self, locks: list[RedisLock], on_lost: Callable[[Any], object] | None) -> None:
        self._locks = locks
        self._first = first = locks[0]
        LocalLock.__init__(
            self,
            first.target,
            blocking=first.blocking,
            thread_local=first.thread_local,
            raise_on_release_error=first.raise_on_release_error,
        )
        self._on_lost = checked_callback(on_lost)
        self.keys = tuple([lock.key for lock in locks])
        self.names = tuple([lock.name for lock in locks])


class CancelScope:
    """The rest of the running task under ``held``, up to :meth:`leave`, which lets that go."""

    def __init__(self, held: LockHandle | MultiLockHandle) -> None:
        self._held = held
        self._scope = scope.CancelScope(held.grants)

    def end(self) -> None:
        self._scope.leave(None)

    async def leave(self, error: BaseException | None) -> None:
        await self._held.finish(ASYNCIO, self._scope.leave(error))


class _ReadAndWrite(RWLock):
    def __init__(self, make: Maker) -> None:
        self._make = make
        self._key = self.read().key


def kind_of(options: dict[str, Any], *, is_redlock: bool) -> tuple[Maker, dict[str, Any]]:
    if is_redlock or options["replicas"] or options["protocol"] != "setnx":
        raise LockUnsupported("several masters, replicas and other protocols come later")
    given = {name: value for name, value in options.items() if name not in _NOT_TAKEN}
    return RedisLock if options["ending"] is None else CommitLock, given


def together(
    keys: Sequence[str], make: Maker, on_lost: Callable[[Any], object] | None
) -> MultiLock:
    return _Together([make(key) for key in keys], on_lost)


def read_and_write(make: Maker) -> RWLock:
    return _ReadAndWrite(make)


def check_each(held: Sequence[LockHandle]) -> None:
    asked = list({id(one.grant): one for one in held if one.is_here and not one.released}.values())
    if not asked:
        return
    session = asked[0].grant.session
    requests = [(one._renew_request("check", -1), one.key) for one in asked]
    replies = run(session.call_many(BLOCKING, requests, 2 * session.limit))
    for one, reply in zip(asked, replies, strict=True):
        if isinstance(reply, LockUnavailable):
            logger.warning("%s; its lease still runs", reply)
            one._refuse_if_over("check")
        else:
            one.grant.confirm(reply)


def release_now(held: Sequence[LockHandle]) -> Sequence[Exception]:
    try:
        return run(_release_each(BLOCKING, held))
    except BaseException:
        # Interrupted: to release twice is as good as once.
        for error in run(_release_each(BLOCKING, held)):
            logger.warning("%s", error)
        raise


async def _release_each(io: Backend, held: Sequence[LockHandle]) -> list[LockError]:
    errors: list[LockError] = []
    asked: list[tuple[LockHandle, Request]] = []
    for one in held:
        try:
            request = one._begin_release() if one.is_here and not one.released else None
            if request is not None:
                asked.append((one, request))
        except LockError as error:
            errors.append(error)
    if not asked:
        return errors
    session = asked[0][0].grant.session
    requests = [(request, one.key) for one, request in asked]
    replies = await session.call_many(io, requests, 2 * session.limit)
    for (one, _), reply in zip(asked, replies, strict=True):
        try:
            if isinstance(reply, LockUnavailable):
                raise reply
            await one._end_release(io, reply)
        except LockError as error:
            errors.append(error)
    return errors


def finish(held: LockHandle | MultiLockHandle, error: BaseException | None) -> None:
    run(held.finish(BLOCKING, error))


def choose() -> None:
    """Have the locks of the app be of this core from now on, in this process."""
    vars(lock_core).update({name: globals()[name] for name in lock_core.__all__})
    conf.known = conf.Known()
