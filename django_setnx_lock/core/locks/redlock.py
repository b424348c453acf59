"""A lock on a majority of several independent servers: Redlock."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from .. import clock
from ..connections.backends import Backend
from ..connections.endpoints import Target
from ..errors import LockUnsupported
from ..holder import Holder
from ..protocol import commands, quorum, scripts
from ..protocol.commands import PlainRequest, Request
from ..protocol.replies import Busy, Granted, text
from ..renewal.lease import Lease
from ..renewal.requests import Asked, RenewalPipeline
from ..renewal.scheduler import RenewalScheduler
from ..renewal.watchdog import Watchdog
from ..values import UNSET, Unset
from .attempt import AcquireAttempt
from .grant import Grant
from .handle import LockHandle
from .lock import RedisLock
from .redlock_servers import DEFAULT_TIMEOUT, RedlockServers, servers_of
from .transfer import Secret, refuse

logger = logging.getLogger("django_setnx_lock.lock")

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 0.08
# The lease is at least so many times the time that a server has to answer.
_LEAST_LEASE = 3


# The options that need one server, and the value of each that asks for nothing.
_NOT_HERE = {
    "min_hold": None,
    "replicas": 0,
    "protocol": "setnx",
    "shared": False,
    "limit": None,
}


@dataclass(slots=True)
class RedlockTarget(Target):
    """Which lock, and the :class:`RedlockServers` to ask for it, as ``client``."""

    async def call(self, io: Backend, request: Request | PlainRequest, **options: Any) -> Any:
        refuse_asyncio(io, self.key)
        releases = isinstance(request, Request) and request.script.name == scripts.RELEASE.name
        repeated = options.get("repeated")
        replies = self.client.ask(request, insists=releases, repeated=repeated)
        reply = quorum.read_kept(replies)
        if reply is None:
            raise self.client.unavailable(replies, self.key)
        return reply

    async def locked(self, io: Backend) -> bool:
        """Return whether nobody could take it, so many servers have it. Raises LockUnavailable."""
        refuse_asyncio(io, self.key)
        replies = self.client.exist(self.keys.name)
        found = quorum.may_be_held(replies)
        if found is None:
            raise self.client.unavailable(replies, self.key)
        return found


class RedlockPipeline(RenewalPipeline):
    """Sends renewals to all servers; the answer to each is that of a majority."""

    async def _call_each(self, todo: Sequence[Asked]) -> None:
        self._sent = clock.now()
        answers = self.client.ask_each([request for _, request in todo])
        for (job, request), replies in zip(todo, answers, strict=True):
            if isinstance(request, PlainRequest):
                # A heartbeat, which each server has for itself.
                reply: Any = replies
            else:
                reply = quorum.read_kept(replies) or self.client.unavailable(replies, job.key)
            self._deliver(job, request, reply)


class RedlockScheduler(RenewalScheduler):
    """Renews what is held on a majority of servers."""

    new_pipeline = RedlockPipeline


class RedlockWatchdog(Watchdog):
    """A watchdog of its own, so that a master that hangs delays no lock on one server."""

    _new_scheduler = RedlockScheduler


WATCHDOG = RedlockWatchdog()


class RedlockLease(Lease):
    """A lease that ends earlier here than at the servers, by what their clocks may drift."""

    def to_ask(self, now: float) -> int:
        return max(round(quorum.lease_for(self.bounded(self.seconds, now)) * 1000), 1)


class RedlockHandle(LockHandle):
    """A :class:`LockHandle` lock on a majority of servers: without fencing number and asyncio."""

    @property
    def fence(self) -> int:
        """Refused. Raises LockUnsupported."""
        raise LockUnsupported(
            f"the lock {self.key!r} has no fencing number: it is held on several masters, which "
            "have no common order to number its holders by; take it on one server with using, "
            "where late writes are to be refused",
            key=self.key,
        )

    def __repr__(self) -> str:
        state = "released" if self._released else "lost" if self.lost else "held"
        return f"<{type(self).__name__} {self.key!r} {state}>"

    def giving_away(self, within: float | None) -> NoReturn:
        """Refused. Raises LockUnsupported."""
        refuse(self.key, "on several masters")

    async def _release(self, io: Backend) -> None:
        refuse_asyncio(io, self.key)
        await super()._release(io)


def refuse_asyncio(io: Backend, key: str) -> None:
    """Raise LockUnsupported in asyncio, in which several masters are not asked."""
    if io.is_asyncio:
        raise LockUnsupported(
            f"the lock {key!r} is one on several masters, which has no asyncio: write a function "
            "that does the work inside `with lock(...)` and call it by asyncio.to_thread() or "
            "sync_to_async(), or take the lock on one server",
            key=key,
        )


class RedlockAttempt(AcquireAttempt):
    """An attempt at a lock on several servers, known to all of them by the same token."""

    @property
    def masters(self) -> RedlockServers:
        """The servers to ask."""
        masters: RedlockServers = self.target.client
        return masters

    @property
    def longest_sleep(self) -> float:  # type: ignore[override]  # another one each time
        """The pause of a waiter, at random: two who got in each other's way do not do so again."""
        return random.uniform(_SHORTEST_PAUSE, _LONGEST_PAUSE)  # noqa: S311 - no secret

    def request(self, *, waits: bool) -> NoReturn:
        """Refuse what asks for several locks in one round trip."""
        raise LockUnsupported(
            f"several locks at once, as admin actions take them, are not taken on several masters "
            f"({', '.join(self.masters.names)}): give one cache alias with using",
            key=self.target.key,
        )

    async def ask(
        self, io: Backend, *, waits: bool, within: float | None = None
    ) -> LockHandle | Busy:
        """Ask all servers once. A grant without a majority is given back. Raises LockUnavailable.

        The servers have no queue in common: a caller that ``waits`` asks again after a pause.
        ``within`` has no effect: the time limit is that of the servers.
        """
        sent = clock.now()
        replies = self.masters.ask(super().request(waits=False))
        answer = quorum.read_acquires(replies)
        seconds = self.lease_ms / 1000
        ends = sent + seconds - quorum.drift(seconds)
        if isinstance(answer, Granted) and clock.now() < ends:
            return self._has_majority(sent, ends)
        self._give_back(replies)
        self.token = commands.SETNX.new_token()
        if answer is None:
            error = self.masters.unavailable(replies, self.target.key)
            error.is_undone = True
            raise error
        busy = answer if isinstance(answer, Busy) else Busy(remaining=0.0, holder=None)
        if waits and busy.remaining is not None:
            # Two who got in each other's way at once must not ask again at once.
            return replace(busy, remaining=max(busy.remaining, _LONGEST_PAUSE))
        return busy

    def _give_back(self, replies: Sequence[Any]) -> None:
        """Cancel the attempt at all servers but those that said busy, which forgot it then.

        A server that did not answer gets this behind the request, and is not waited for.
        """
        to = [number for number, reply in enumerate(replies) if not _is_busy(reply)]
        answered = [
            at for at, number in enumerate(to) if not isinstance(replies[number], Exception)
        ]
        if to:
            self.masters.ask(self.cancelling(), to=to, awaited=answered, insists=True)
        logger.debug("gave up the lock %r", self.target.key)

    async def cancel(self, io: Backend) -> None:
        """Give up: undo whatever was or will be granted to this token."""
        self.masters.ask(self.cancelling(), insists=True)
        logger.debug("gave up the lock %r", self.target.key)

    def _has_majority(self, sent: float, ends: float) -> LockHandle:
        grant = Grant(
            self.target,
            token=self.token,
            fence=None,  # type: ignore[arg-type]  # listeners are told that it has none
            timeout=self.lease_ms / 1000,
            # The grant counts from it since when it is held.
            deadline=sent + self.lease_ms / 1000,
            options=self.options,
        )
        grant.watchdog = WATCHDOG
        grant.lease = RedlockLease(ends - sent, ends, self.options.max_hold)
        return self._has(RedlockHandle(grant), sent)


def _is_busy(reply: Any) -> bool:
    return not isinstance(reply, Exception) and text(reply[0]) == "BUSY"


class Redlock(RedisLock):
    """One lock on a majority of several independent masters, which need not all be there.

    The algorithm is that of https://redis.io/docs/latest/develop/use/patterns/distributed-locks/:
    all masters are asked at once with the same token; the lock is taken when a majority has
    granted it and the time that took, and one per cent and 2 ms for the drift of clocks, are less
    than the lease; else all are asked to take it back. :doc:`redlock` tells what it does not give.

    ``clients``: a redis-py client of each master, three at least, better an odd number: a fourth
    allows for no more failures than three do. ``names``: what messages call them (their
    addresses). ``master_timeout``: the seconds that a master has to be connected to and to answer
    (0.1); a dead one, one that hangs and a slow one cost so much at the most, alone or together.
    ``options``: the rest as in :class:`RedisLock`, whose methods it has.

    Nobody queues: who waits asks again after a pause at random. ``fence``, an own ``token`` and the
    methods with the prefix a raise LockUnsupported, and so do ``min_hold``, ``replicas`` and any
    ``protocol`` but ``setnx``. Raises ValueError for fewer than three masters, for two that are one
    server, and for a lease shorter than three times the ``master_timeout``; TypeError for clients
    of a cluster or of asyncio; else as RedisLock.
    """

    _kind = RedlockHandle

    def __init__(
        self,
        clients: Sequence[Any] | RedlockServers,
        name: str,
        timeout: float | None = None,
        sleep: float = 0.1,
        *,
        names: Sequence[str] | None = None,
        master_timeout: float = DEFAULT_TIMEOUT,
        **options: Any,
    ) -> None:
        masters = (
            clients
            if isinstance(clients, RedlockServers)
            else servers_of(clients, names, master_timeout)
        )
        for option, without in _NOT_HERE.items():
            if options.get(option, without) != without:
                raise LockUnsupported(
                    f"{option} is not to be had for a lock on several masters: leave it out"
                )
        super().__init__(masters, name, timeout, sleep, **options)
        if self._lease_ms < _LEAST_LEASE * masters.timeout * 1000:
            raise ValueError(
                f"timeout and max_hold must be at least {_LEAST_LEASE} times the master_timeout of "
                f"{masters.timeout:g} s, or a master that hangs would cost the lease"
            )
        plain = self._target
        self._target = RedlockTarget(
            *(masters, plain.keys, plain.key, plain.index),
            heartbeat_prefix=plain.heartbeat_prefix,
        )

    def attempt(self) -> RedlockAttempt:
        """Return a fresh attempt at this lock by the calling thread."""
        return RedlockAttempt(
            self._target, self._lease_ms, Holder.here(*self._about), self._options
        )

    async def _take(
        self,
        io: Backend,
        blocking_timeout: float | Unset | None = UNSET,
        token: str | None = None,
    ) -> LockHandle:
        refuse_asyncio(io, self.key)
        if token is not None:
            raise LockUnsupported(
                f"the lock {self.key!r} is one on several masters, which takes no token of the "
                "caller's: leave token out",
                key=self.key,
            )
        return await super()._take(io, blocking_timeout)

    async def _adopt(self, io: Backend, ticket: Secret) -> NoReturn:
        refuse(self.key, "on several masters")


WATCHDOG.belong_to_process()
