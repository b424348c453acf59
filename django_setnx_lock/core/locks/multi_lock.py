"""A lock over several keys at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .. import clock, values
from ..connections import batcher, execute
from ..connections.backends import ASYNCIO, BLOCKING, Backend, run
from ..connections.failures import unavailable, worth_undoing
from ..errors import LockBusy, LockLost, LockUnavailable, WaitStep
from ..protocol import commands, replies
from ..values import Unset
from .attempt import AcquireAttempt, wait_for
from .batch import cancel_each, is_one_client, note_repeat, share_each
from .handle import LockHandle
from .local import LocalHandles, LocalLock
from .lock import RedisLock
from .multi_handle import LossRelay, MultiLockHandle, names_of
from .redlock import Redlock
from .redlock_servers import RedlockServers

if TYPE_CHECKING:
    from typing_extensions import Self


# How often a caller whose time is up asks again when all it was told is that a token was given up:
# so it is when the answer to a first copy of the request was lost.
_TRIES = 2
# Errors that a server may give for one lock after it has granted those before it.
_OF_ONE = frozenset({"wrongtype", "denied", "memory"})


class MultiAttempt:
    """An attempt at several locks of one server, by ``attempts`` in the order of their names.

    A caller that waits for one holds none that comes after it, so no two callers wait for each
    other. Each request asks for all of them, also for those that are held by then. That renews
    these while the caller waits for another, tells if one was lost meanwhile, and in the end gives
    all of them a whole lease.
    """

    def __init__(self, attempts: Sequence[AcquireAttempt]) -> None:
        self.attempts = attempts
        # That at the first lock which was not granted.
        self.awaited = attempts[0]
        # How many are held, by the last answer.
        self._taken = 0
        # Whether more may be: what was asked since has not been answered.
        self._is_unsure = False
        # Whether all that is known is that a token was given up, and not who has the lock.
        self._is_vague = False
        self._tries = _TRIES
        self._lease = min(one.lease_ms for one in attempts) / 1000

    @property
    def longest_sleep(self) -> float:
        """The seconds to sleep at most before asking again, which renews what is held."""
        return self._lease / 3 if self._taken else math.inf

    def asks_again(self) -> bool:
        """Return whether a caller whose time is over asks once more."""
        self._tries -= 1
        return self._is_vague and self._tries >= 0

    @property
    def partly(self) -> Sequence[AcquireAttempt]:
        """The attempts at those that are held by now."""
        return self.attempts[: self._taken]

    def busy(self, answer: replies.Busy, cycle: tuple[WaitStep, ...] = ()) -> LockBusy:
        """Return the error for an ``answer`` that ends the attempt, or a deadlock's ``cycle``."""
        return self.awaited.busy(answer, cycle)

    def retry_delay(self, error: LockUnavailable, give_up_at: float | None) -> float:
        """Return how many seconds to wait before asking again, or raise ``error``."""
        self._is_unsure = True
        return self.awaited.retry_delay(error, give_up_at)

    def belong_to(self, io: Backend, *, waits: bool) -> None:
        for attempt in self.attempts:
            attempt.belong_to(io, waits=waits)

    def request(self, *, waits: bool) -> commands.Request:
        return commands.acquire_all([attempt.request(waits=waits) for attempt in self.attempts])

    async def ask(
        self, io: Backend, *, waits: bool, within: float | None = None
    ) -> list[LockHandle] | replies.Busy:
        """Ask once, as :meth:`AcquireAttempt.ask` does.

        Raises LockUnavailable; also when one of the names holds what is no lock.
        """
        sent, first = clock.now(), self.attempts[0]
        request, client, replicas = self.request(waits=waits), first.target.client, first.replicas
        copies: list[bool] = []
        call = batcher.call if io.is_asyncio else execute.call
        reply = await call(
            io,
            client,
            request,
            "",
            repeated=lambda: copies.append(True),
            within=within,
            undo=self.undo,
            replicas=replicas,
        )
        for attempt in self.attempts:
            attempt.is_unanswered = False
        if copies:
            note_repeat(self.attempts)
        answers = self._read(reply)
        at, last = len(answers) - 1, answers[-1]
        if isinstance(last, replies.Granted) and clock.now() < sent + self._lease:
            self.awaited.end_wait()
            # That none is late is known.
            settled = [
                attempt.settle(answer, sent, sent)
                for attempt, answer in zip(self.attempts, answers, strict=True)
                if not isinstance(answer, replies.Left)
            ]
            return [held for held in settled if isinstance(held, LockHandle)]
        to_cancel: Sequence[AcquireAttempt] = ()
        if isinstance(last, replies.Granted):
            # That took longer than it lasts.
            answers, at, to_cancel = [replies.Gone()], 0, self.attempts
        elif at < self._taken or self._is_unsure or (waits and (copies or replicas is not None)):
            # Later ones may be held, or a copy of the request may have been granted them.
            to_cancel = self.attempts[at + 1 :]
        if to_cancel:
            await cancel_each(io, to_cancel)
        self._taken = at if waits else 0
        return self._settle(answers, to_cancel, sent)

    def undo(self) -> list[commands.Request]:
        """Return the requests that give all of them up."""
        return [attempt.cancelling() for attempt in self.attempts]

    def _read(self, reply: Any) -> list[replies.Answer | replies.Left]:
        """Return the answers for the locks in order, as far as they were asked for."""
        answers: list[replies.Answer | replies.Left] = []
        for attempt, answer in zip(self.attempts, replies.read_acquire_all(reply), strict=False):
            if isinstance(answer, Exception):
                raise unavailable(answer, attempt.target.key) from answer
            answers.append(answer)
        return answers

    def _settle(
        self,
        answers: Sequence[replies.Answer | replies.Left],
        cancelled: Sequence[AcquireAttempt],
        sent: float,
    ) -> replies.Busy:
        """Return why the last that was asked for was not had."""
        self._is_unsure = False
        for attempt, answer in zip(self.attempts, answers, strict=False):
            if isinstance(answer, replies.Left):
                if answer.head:
                    attempt.watchlist.schedule_handoff_check(attempt.target, answer.head)
                _begin_anew(attempt)
        for attempt in cancelled:
            _begin_anew(attempt)
        before, self.awaited = self.awaited, self.attempts[len(answers) - 1]
        if before is not self.awaited:
            before.end_wait()
        last = answers[-1]
        self._is_vague = not isinstance(last, replies.Busy)
        if isinstance(last, replies.Busy):
            self.awaited.settle(last, sent, sent)
            return last
        _begin_anew(self.awaited)
        return replies.Busy(remaining=0.0, holder=None)

    def is_worth_undoing(self, error: BaseException) -> bool:
        """Return whether to give everything up after ``error``. See :func:`worth_undoing`."""
        if isinstance(error, LockUnavailable) and error.is_undone:
            return False
        is_of_one = isinstance(error, LockUnavailable) and error.cause in _OF_ONE
        return self._taken > 0 or is_of_one or worth_undoing(error)


def _begin_anew(attempt: AcquireAttempt) -> None:
    """Ask with another token from now on: one that was given up is never granted again."""
    attempt.settle(replies.Gone(), 0.0, 0.0)


class MultiLock(LocalLock[MultiLockHandle]):
    """Several locks that are taken together: all of them or none.

    They are taken in the order of their names, whatever the order given, each first come, first
    served: a caller that waits for one holds those before it and none behind it. So callers never
    deadlock by taking some of the same keys. Free ones on one server cost one round trip together;
    :doc:`many` tells what it cannot do.

    ``client``: as in :class:`RedisLock`, or those of several masters, as in :class:`Redlock`.
    ``names``: the keys in Redis, one at least; one given twice is taken once. ``keys``: what
    messages and the handle call them (the names). ``on_lost``: called once with the handle of all
    when the first of them was found to be lost (None). ``options``: as in RedisLock, the same for
    all; ``blocking_timeout`` bounds the taking of all of them together. Methods, but for an own
    ``token``, and errors are those of RedisLock; ``key`` of an error says which lock it was, and is
    empty where Redis could say nothing of any.

    Raises ValueError for no name at all, TypeError for names that are one str, else as RedisLock.
    """

    def __init__(
        self,
        client: Any,
        names: Iterable[str],
        timeout: float | None = None,
        sleep: float = 0.1,
        *,
        keys: Iterable[str] | None = None,
        on_lost: Callable[[MultiLockHandle], object] | None = None,
        **options: Any,
    ) -> None:
        if isinstance(names, str):
            raise TypeError(f"names is a list of names, not {names!r}: write [{names!r}]")
        names = list(names)
        called = dict(zip(names, names if keys is None else keys, strict=True))
        relay = None if on_lost is None else LossRelay(on_lost)
        make = Redlock if isinstance(client, (RedlockServers, list, tuple)) else RedisLock
        self._be(
            [
                make(client, name, timeout, sleep, key=key, on_lost=relay, **options)
                for name, key in called.items()
            ],
            relay,
        )

    @classmethod
    def of(cls, locks: Sequence[RedisLock], relay: LossRelay | None = None) -> Self:
        """Return one over ``locks``, which differ by name only; ``relay``: their ``on_lost``."""
        made = cls.__new__(cls)
        made._be(locks, relay)
        return made

    def _be(self, locks: Sequence[RedisLock], relay: LossRelay | None) -> None:
        if not locks:
            raise ValueError("there is no key to lock: give one at least")
        if len({lock.key for lock in locks}) < len(locks):
            raise ValueError(
                f"keys has one of them twice, {names_of([lock.key for lock in locks])}, for two "
                "names: give each name a key of its own"
            )
        self._locks = locks
        self._relay = relay
        self._first = first = locks[0]
        self.keys = tuple(lock.key for lock in locks)
        self.names = tuple(lock.name for lock in locks)
        self.blocking = first.blocking
        self.blocking_timeout = first.blocking_timeout
        self.thread_local = first.thread_local
        self.raise_on_release_error = first.raise_on_release_error
        self.reentrant = first.reentrant
        self._handles = LocalHandles(thread_local=self.thread_local)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key} timeout={self.timeout:g}>"

    @property
    def key(self) -> str:
        """The name in messages: all keys."""
        return names_of(self.keys)

    @property
    def timeout(self) -> float:
        """The lease in seconds."""
        return self._first.timeout

    @property
    def client(self) -> Any:
        """The redis-py client it asks."""
        return self._first.client

    @property
    def fences(self) -> dict[str, int] | None:
        """The fencing number of each lock by key while held, else None."""
        return self.held.fences if self.held is not None else None

    @property
    def _named(self) -> str:
        return self.key

    async def _take(
        self, io: Backend, blocking_timeout: float | Unset | None, token: str | None = None
    ) -> MultiLockHandle:
        limit = self._limit(blocking_timeout)
        if self._first._target.is_awaited and not io.is_asyncio:
            raise self._first._target.must_be_awaited()
        give_up_at = None if limit is None else clock.now() + limit
        taken: dict[RedisLock, LockHandle | None] = {}
        try:
            while True:
                await self._fill(io, taken, give_up_at)
                held = self._all_of(taken)
                if not held.lost:
                    return held
                # A lock that was taken first may be lost by the time the others are.
                await held._give_back(io)
                if give_up_at is not None and clock.now() >= give_up_at:
                    lost = next((one for one in held.parts if one.lost), held.parts[0])
                    raise LockBusy(
                        f"the lock {lost.key!r} was lost again while others were waited for",
                        key=lost.key,
                    )
                taken.clear()
        except BaseException as error:
            # Interrupts too.
            parts = list(filter(None, taken.values()))
            if parts:
                await io.shield(lambda: MultiLockHandle(parts)._give_back(io), self.client, error)
            raise

    def _all_of(self, taken: dict[RedisLock, LockHandle | None]) -> MultiLockHandle:
        """Return the handle of what was ``taken``."""
        # Not where it is called: see batch._taken() on comprehensions.
        held = MultiLockHandle([part for lock in self._locks if (part := taken[lock]) is not None])
        if self._relay is not None:
            self._relay.watch(held)
        return held

    async def _fill(
        self, io: Backend, taken: dict[RedisLock, LockHandle | None], give_up_at: float | None
    ) -> None:
        """Put the handles of all of them into ``taken``."""
        missing = await share_each(io, self._locks, taken)
        if not missing:
            return
        if self._are_asked_together():
            await self._take_together(io, missing, give_up_at, taken)
            return
        # One after the other, in the same order.
        for lock in missing:
            left = None if give_up_at is None else max(give_up_at - clock.now(), 0)
            taken[lock] = await lock._take(io, left)
        for held in taken.values():
            # Much of it may have gone while others were waited for.
            if held is not None and not held.lost and not held.has_enough_lease:
                # A caller that finds it lost begins anew.
                with suppress(LockLost):
                    await held._reacquire(io)

    def _are_asked_together(self) -> bool:
        """Return whether one script can take them all."""
        targets = [lock._target for lock in self._locks]
        return (
            getattr(self.client, "connection_pool", None) is not None
            and is_one_client(targets)
            and all(one.command_set is commands.SETNX for one in targets)
        )

    async def _take_together(
        self,
        io: Backend,
        missing: Sequence[RedisLock],
        give_up_at: float | None,
        taken: dict[RedisLock, LockHandle | None],
    ) -> None:
        attempt = MultiAttempt([lock.attempt() for lock in missing])
        limit = None if give_up_at is None else max(give_up_at - clock.now(), 0.0)
        try:
            taken.update(zip(missing, await wait_for(io, attempt, limit), strict=True))
        except LockBusy:
            raise
        except BaseException as error:
            taken.update(dict.fromkeys(missing))
            try:
                if attempt.is_worth_undoing(error):
                    await io.shield(lambda: cancel_each(io, attempt.attempts), self.client, error)
            finally:
                attempt.awaited.end_wait(error)
            raise

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
    ) -> bool:
        """Take all the locks; False when somebody else kept one of them for too long.

        ``blocking`` and ``blocking_timeout`` (seconds) default to those of the lock; ``sleep``
        (seconds) has no effect. Raises LockUnavailable and ValueError as :meth:`take`.
        """
        values.waiting_time(sleep, "sleep, the first argument of acquire(),")
        return run(self._acquire(BLOCKING, blocking, blocking_timeout))

    async def aacquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
    ) -> bool:
        """Take all the locks as :meth:`acquire` does."""
        values.waiting_time(sleep, "sleep, the first argument of aacquire(),")
        return await self._acquire(ASYNCIO, blocking, blocking_timeout)

    def locked(self) -> bool:
        """Return whether anybody holds any of them. Raises LockUnavailable."""
        return any(lock.locked() for lock in self._locks)

    async def alocked(self) -> bool:
        """Ask as :meth:`locked` does."""
        for lock in self._locks:
            if await lock.alocked():
                return True
        return False
