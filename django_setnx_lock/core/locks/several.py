"""Several locks of one server that are taken together: all of them or none."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias
from weakref import ref

from redis import exceptions as redis_exceptions

from .. import clock
from ..connections.backend import Backend
from ..connections.failures import unavailable
from ..errors import LockBusy, LockError, LockLost, LockUnavailable, LockUnsupported
from ..options import checked_callback
from ..protocol.replies import Busy, Reply
from ..protocol.requests import Request
from .deadlock import WatchfulAttempt
from .grant import Grant, look
from .layered import LockHandle, RedisLock
from .local import LocalLock
from .operations import Handle
from .renewal import renewal_of
from .scope import CancelScope

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..connections.session import Session
    from ..options import Target
    from ..process import Owner

    OnLost: TypeAlias = Callable[["MultiLockHandle"], object] | None

logger = logging.getLogger("django_setnx_lock.lock")


class _Together(WatchfulAttempt):
    """One try to take several locks of one server, all of them or none, by one token.

    ``is_last``: whether the caller gives up then.
    """

    def __init__(
        self, targets: Sequence[Target], session: Session, owner: Owner, *, is_last: bool
    ) -> None:
        super().__init__(targets[0], session, owner, None)
        self.targets = targets
        self._is_last = is_last

    def _request(self) -> Request:
        names = [key for target in self.targets for key in target.keys[:2]]
        script: Any = self.target.scripts.several
        keys = (*names, *self.target.keys[2:])
        return super()._request()._replace(script=script, keys=keys)

    async def _read(self, io: Backend, reply: Reply) -> Grant | Busy | None:
        # They end with the first that is not to be had.
        *values, last = reply.value
        self.target = self.targets[len(values)]
        if isinstance(last, redis_exceptions.ResponseError):
            raise unavailable(last, self.target.key) from last
        for target, value in zip(self.targets, values, strict=False):
            if len(value) > 2:
                await look(io, self.session, target, value[3])
        if last[0] != b"OK" and [value for value in values if value[0] == b"OK"]:
            # The script has let go only what nobody else waits for.
            await self._cancel(io, in_doubt=reply.was_retried)
        answer = await super()._read(io, reply._replace(value=last))
        if isinstance(answer, Grant):
            self._grants = [
                Grant(target, self.session, self.token, int(value[1]), reply.sent, self.owner)
                for target, value in zip(self.targets, reply.value, strict=True)
            ]
            for grant, value in zip(self._grants, reply.value, strict=True):
                grant.was_retried, grant.is_listed = self.was_retried, len(value) > 2
        return answer

    def _hold(self, io: Backend, grant: Grant) -> list[LockHandle]:
        hold = super()._hold
        return [hold(io, grant) for grant in self._grants]

    def _end_wait(self, error: BaseException | None) -> None:
        if self._is_last or not isinstance(error, LockBusy):
            super()._end_wait(error)


class MultiLockHandle(Handle, Mapping[str, "LockHandle"]):
    """Several locks that are held together; what ``with lock("a", "b") as held`` gives.

    ``held["a"]`` is the handle of one of them. It may be passed to other threads and tasks, but
    belongs to the process that took it. Each method is one round trip for all.
    """

    def __init__(self, parts: Sequence[LockHandle], on_lost: OnLost = None) -> None:
        self.target = parts[0].target
        self._parts = {part.key: part for part in parts}
        self._on_lost = on_lost
        if on_lost is not None:
            for part in parts:
                part.target = part.target._replace(on_lost=partial(_notify_of_loss, ref(self)))

    def __getitem__(self, key: str) -> LockHandle:
        return self._parts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    # Two are never the same, whatever they hold.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def parts(self) -> list[LockHandle]:
        """The handle of each lock, in the order in which the keys were given."""
        return list(self._parts.values())

    @property
    def key(self) -> str:
        """The name in messages: all keys."""
        return names_of(self)

    _named = key

    @property
    def grants(self) -> Sequence[Grant]:
        return [held.grant for held in self.parts]

    @property
    def fences(self) -> dict[str, int]:
        """The fencing number of each lock, by key."""
        return {key: held.fence for key, held in self.items()}

    @property
    def fence(self) -> NoReturn:
        """Refused. Raises LockUnsupported."""
        raise LockUnsupported(
            f"the locks {self.key} have a fencing number each, and none in common: use fences, "
            "which has them by key",
            key=self.key,
        )

    @property
    def timeout(self) -> float:
        """The lease in seconds, as asked for."""
        return min([held.timeout for held in self.parts])

    @property
    def _left(self) -> list[LockHandle]:
        """Those that were not released by their own handles."""
        # No generator: an interrupt as it is thrown away would be lost.
        return [held for held in self.parts if not held.released]

    @property
    def released(self) -> bool:
        """Whether all were released."""
        return not self._left

    @property
    def lost(self) -> bool:
        return bool([held for held in self.parts if held.lost])

    def remaining(self) -> float:
        return min([held.remaining() for held in self._left], default=0.0)

    def detach(self) -> Callable[[], None]:
        """Leave the block without a release. See :meth:`LockHandle.detach`."""
        left = self._left or self.parts
        for held in left:
            # Before one is left to that: of one that is lost the others are let go here.
            held.refuse_if_over("leave the release of")
        return MultiLockHandle([held._detached() for held in left], self._on_lost).release

    async def _locked(self, io: Backend) -> bool:
        return any([await held._locked(io) for held in self.parts])

    async def _renew(self, io: Backend, what: str, ms: int | None, *, to_add: bool = False) -> None:
        left = self._left or self.parts
        asked = [(held, held._renew_request(what, ms, to_add=to_add)) for held in left]
        _raise_gravest(await _ask(io, asked, _confirm))

    async def _release(self, io: Backend) -> None:
        if self.released or not self.is_here:
            self.parts[0]._refuse_if_not_ours("release")
        _raise_gravest(await release_each(io, self.parts))


def _notify_of_loss(reference: ref[MultiLockHandle], lost: object) -> None:
    """Call ``on_lost`` with the handle of all, once; one of its locks is ``lost``."""
    held = reference()
    if held is not None and held._on_lost is not None and not held.released:
        on_lost, held._on_lost = held._on_lost, None
        on_lost(held)


class MultiLock(LocalLock[MultiLockHandle]):
    """Several locks that are taken together: all of them or none.

    Free ones are taken in one round trip. Else they are taken one after the other in the order of
    their names, whatever the order given: a caller that waits for one holds, and renews, those
    before it and none behind it. So callers never deadlock by taking some of the same keys.

    ``client``: as in :class:`RedisLock`. ``names``: the keys in Redis, one at least; one given
    twice is taken once. ``keys``: what messages and the handle call them (the names). ``on_lost``:
    called once with the handle of all when the first of them was found to be lost (None).
    ``options``: as in RedisLock, the same for all; ``blocking_timeout`` bounds the taking of all of
    them together. Methods, but for an own ``token``, and errors are those of RedisLock; ``key`` of
    an error says which lock it was.

    Raises ValueError for no name at all and for two names with the same key, TypeError for names
    that are one str, else as RedisLock.
    """

    _is_one = False
    _scope = CancelScope

    def __init__(
        self,
        client: Any,
        names: Iterable[str],
        timeout: float | None = None,
        sleep: float = 0.1,
        *,
        keys: Iterable[str] | None = None,
        on_lost: OnLost = None,
        **options: Any,
    ) -> None:
        if isinstance(names, str):
            raise TypeError(f"names is a list of names, not {names!r}: write [{names!r}]")
        names = list(names)
        called = dict(zip(names, names if keys is None else keys, strict=True))
        if not called:
            raise ValueError("there is no key to lock: give one at least")
        if len(set(called.values())) < len(called):
            raise ValueError(
                f"keys has one of them twice, {names_of(called.values())}, for two names: give "
                "each name a key of its own"
            )
        locks = [
            RedisLock(client, name, timeout, sleep, key=key, **options)
            for name, key in called.items()
        ]
        self._begin(locks, on_lost)

    def _begin(self, locks: Sequence[RedisLock], on_lost: OnLost) -> None:
        first = locks[0]
        super().__init__(
            first.target, first.blocking, first.thread_local, first.raise_on_release_error
        )
        # Whatever the order given: so callers of some of the same do not wait for each other.
        self._locks = sorted(locks, key=lambda lock: lock.name)
        self._on_lost = checked_callback(on_lost)
        self.keys = tuple([lock.key for lock in locks])
        self.names = tuple([lock.name for lock in locks])

    @classmethod
    def of(cls, locks: Sequence[RedisLock], on_lost: OnLost = None) -> Self:
        """Return what takes ``locks`` together, which differ by name and key alone."""
        made = cls.__new__(cls)
        made._begin(locks, on_lost)
        return made

    @property
    def key(self) -> str:
        """The name in messages: all keys."""
        return names_of(self.keys)

    _named = key

    @property
    def fences(self) -> dict[str, int] | None:
        """The fencing number of each lock by key while held, else None."""
        return self.held.fences if self.held is not None else None

    async def _take(
        self, io: Backend, limit: float | None, by: Owner, token: str | None = None
    ) -> MultiLockHandle:
        end = inf if limit is None else clock.now() + limit
        held = None
        while held is None:
            held = await self._take_once(io, end, by)
        return held

    async def _take_once(self, io: Backend, end: float, by: Owner) -> MultiLockHandle | None:
        session = self._locks[0].session_for(io)
        # Nothing else refers to them: an interrupt may come anywhere.
        taken: list[Any] = []
        keepers: list[LockHandle] = []
        try:
            if session.asks_together and self._locks[0].target.scripts.several is not None:
                await self._take_free(io, session, end, by, taken)
            for lock in self._locks:
                if lock.key not in [held.key for held in taken if held]:
                    taken.append(await lock._take(io, max(end - clock.now(), 0.0), by))
                    keepers += _keeper(io, taken[-1])
            by_key = {held.key: held for held in taken if held}
            held = MultiLockHandle([by_key[key] for key in self.keys], self._on_lost)
            with suppress(LockLost):
                if keepers:
                    await check_each(io, held.parts)
            keepers.clear()
            if not held.lost:
                return held
            # One was lost while the others were waited for.
            await held.give_back(io)
        except BaseException as error:
            # Interrupts too.
            keepers.clear()
            if parts := [held for held in taken if held]:
                give_back = MultiLockHandle(parts).give_back
                await io.shield(partial(give_back, io), 2 * session.limit, error)
            raise
        return None

    async def _take_free(
        self, io: Backend, session: Session, end: float, by: Owner, taken: list[Any]
    ) -> None:
        """Add to ``taken`` what ``by`` has again, and the others if all of these are free.

        Raises LockBusy if that is the ``end``.
        """
        missing: list[Target] = []
        for lock in self._locks:
            taken.append(await lock._again(io, by))
            if taken[-1] is None:
                missing.append(lock.target)
        is_last = clock.now() >= end
        try:
            if missing:
                attempt = _Together(missing, session, by, is_last=is_last)
                taken += await attempt.take(io, 0)
        except LockBusy:
            if is_last:
                raise
        except LockUnavailable as error:
            # Asked for by itself, the one at fault is named.
            if error.cause != "wrongtype":
                raise

    async def _locked(self, io: Backend) -> bool:
        return any([await lock._locked(io) for lock in self._locks])


def _keeper(io: Backend, held: LockHandle) -> list[LockHandle]:
    """Have the lock be renewed for as long as what this returns is referred to."""
    grant, target = held.grant, held.target
    if target.options.renew:
        return []
    target = target._replace(options=target.options._replace(renew=True))
    grant.due = min(grant.due, grant.sent + grant.lease / 3)
    renewal_of(grant, io).register(grant)
    return [type(held)(grant, target)]


def names_of(keys: Iterable[str]) -> str:
    """Return ``keys`` as messages name them."""
    return ", ".join(map(repr, keys))


# What is asked of several handles, of those of one server in one write


async def release_each(io: Backend, handles: Sequence[LockHandle]) -> list[LockError]:
    """Release each of ``handles`` that is not released; return the errors.

    One of a parent process is left alone. When it is interrupted it releases all the same before it
    raises that.
    """
    if not handles:
        return []
    try:
        return await _release_each(io, handles)
    except BaseException as interrupt:

        async def again() -> None:
            for error in await _release_each(io, handles):
                logger.warning("%s", error)

        # To release twice is as good as once.
        await io.shield(again, 2 * handles[0].grant.session.limit, interrupt)
        raise


async def _release_each(io: Backend, handles: Sequence[LockHandle]) -> list[LockError]:
    errors: list[LockError] = []
    asked: list[tuple[LockHandle, Request]] = []
    for held in handles:
        try:
            request = held._begin_release() if held.is_here and not held.released else None
            if request is not None:
                asked.append((held, request))
        except LockError as error:
            errors.append(error)
    return errors + await _ask(io, asked, LockHandle._end_release)


async def check_each(io: Backend, handles: Sequence[LockHandle]) -> None:
    """Raise LockLost if one of ``handles`` is no longer ours, by Redis' word.

    Where Redis cannot say, the lease counts by the local clock.
    """
    ours = {held.grant: held for held in handles if held.is_here and not held.released}
    asked = [(held, held._renew_request("check", -1)) for held in ours.values()]
    for error in await _ask(io, asked, _confirm):
        if isinstance(error, LockUnavailable):
            logger.warning("%s; its lease still runs", error)
    for held, _ in asked:
        held.refuse_if_over("check")


async def _confirm(held: LockHandle, io: Backend, reply: Reply) -> None:
    held.grant.confirm(reply)


async def _ask(
    io: Backend,
    asked: Sequence[tuple[LockHandle, Request]],
    read: Callable[[LockHandle, Backend, Reply], Awaitable[None]],
) -> list[LockError]:
    """Send the request of each, and ``read`` the reply to it; return the errors."""
    errors: list[LockError] = []
    by_session: dict[Session, list[tuple[LockHandle, Request]]] = {}
    for held, request in asked:
        by_session.setdefault(held.grant.session, []).append((held, request))
    for session, some in by_session.items():
        requests = [(request, held.key) for held, request in some]
        replies = await session.call_many(io, requests, 2 * session.limit)
        for (held, _), reply in zip(some, replies, strict=True):
            try:
                if isinstance(reply, LockUnavailable):
                    raise reply
                await read(held, io, reply)
            except LockError as error:
                errors.append(error)
    return errors


def _raise_gravest(errors: list[LockError]) -> None:
    """Raise a loss, else another of ``errors``, if there is one, and log the others."""
    errors.sort(key=lambda error: not isinstance(error, LockLost))
    for other in errors[1:]:
        logger.warning("%s", other)
    if errors:
        raise errors[0]
