"""The lock itself, for any redis-py client."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import clock
from ..connections.backends import ASYNCIO, BLOCKING, Backend, run
from ..connections.client_settings import refuse_many_servers, refuse_own_calls
from ..connections.endpoints import AsyncOnly, Target, kind_of
from ..connections.execute import DEFAULT_REPLICA_TIMEOUT, Replicas, wanted_replicas
from ..connections.failures import worth_undoing
from ..errors import LockBusy, LockLost, LockUnsupported
from ..holder import Holder
from ..protocol.keys import lock_keys
from ..values import UNSET, Unset, checked_token, waiting_time
from . import parent_process, reentrancy
from .attempt import AcquireAttempt, wait_for
from .grant import Grant
from .handle import LocalToken, LockHandle
from .local import LocalHandles, LocalLock
from .options import ReleasePolicy, core_options
from .transfer import Secret


@functools.lru_cache(maxsize=32)
def _is_of_asyncio(client: type) -> bool:
    return any(kind.__module__.startswith("redis.asyncio") for kind in client.__mro__)


class RedisLock(LocalLock[LockHandle]):
    """One distributed lock, taken with ``SET name token NX PX ms``.

    Methods, parameters (and their order) and exceptions are those of redis-py's ``Lock``, with
    which it excludes one another. :doc:`moving-from-cache-lock` lists what differs.

    ``client``: a redis-py client; with one of ``redis.asyncio`` it has only the methods that are
    awaited, those of redis-py by its names, too. ``name``: the key in Redis. ``timeout``: the lease
    in seconds (30; None means that too). ``sleep``: how often redis-py's waiting callers ask;
    without effect here. ``blocking``: whether :meth:`acquire` waits (True). ``blocking_timeout``:
    how long, in seconds (None: without limit). ``thread_local``: whether each thread sees only what
    it took with this object itself (True). ``raise_on_release_error``: whether leaving a ``with``
    block raises when the release failed; else it is logged (True). ``renew``: whether the lease is
    renewed in the background while the lock is held (False): until it is let go, its thread has
    ended, or nobody refers to the handle any more. ``max_hold``: the seconds that it is held at
    most, which bounds lease and renewal, not :meth:`extend` (None: without limit). ``min_hold``:
    the seconds from the grant on during which nobody else gets it, however soon it is let go (None:
    none); the lock of a holder that was killed ends with its lease all the same. ``replicas``: how
    many replicas have to acknowledge the lock before it counts as taken (None: none), within
    ``replica_timeout`` seconds (1) or a third of the lease, if that is less; :doc:`replicas`.
    ``on_lost``: called once with the handle when the lock was found to be lost, by the thread that
    found it: mostly the one that renews, which it must not keep (None). ``key``: what the caller
    calls it in messages (name). ``index``: the sorted set to list the lock in (None: in none).
    ``label``, ``user``, ``note``: what the holder record says besides host, process and thread.
    ``reentrant``: whether the thread or asyncio task that holds it by a lock with ``reentrant``
    gets it again (False); :doc:`reentrancy` has the rules. ``protocol``: ``timestamp-s`` or
    ``timestamp-ms`` for a lock whose value is the time at which it stops being valid, in seconds or
    milliseconds, which excludes programs of that older kind; :doc:`protocols` has the rules.
    ``hosted`` for servers that let a script touch none but the keys that it was told of;
    :doc:`hosted` has the rules (``setnx``). ``expire``: whether Redis removes such a time a second
    after it is over (True). ``shared``: whether others that are ``shared`` may be held at the same
    time (False); ``limit``: how many with a limit may (None: it is held alone); :doc:`sharing` has
    the rules. ``ending``: decides whether a blocking release waits for the end of a transaction
    (None: it never does). ``wait_warning``: after how many seconds of waiting a warning in the log
    says who holds the lock (None: never). ``deadlock_timeout``: after how many seconds of waiting,
    and how often from then on, a caller that holds other locks looks whether it waits for itself by
    way of others (None: never); :doc:`deadlocks` has the rules. ``heartbeat_prefix``: the prefix of
    the key by which this process says that it lives while it holds the lock for long (None: it does
    not say so).

    Raises ValueError for a timeout, ``max_hold``, ``min_hold``, ``wait_warning`` or
    ``deadlock_timeout`` that is not a finite number above zero, a ``min_hold`` of more than
    ``max_hold``, ``replicas`` that are no number, a ``blocking_timeout`` or ``sleep`` below zero,
    an impossible name, a ``protocol`` that does not exist, and a ``limit`` that is no number from 1
    to 1,000,000; LockUnsupported for two of ``shared``, ``limit``, ``min_hold`` and a ``protocol``
    other than ``setnx``, and for ``limit`` with ``reentrant``; TypeError when the name is no str,
    ``renew``, ``reentrant``, ``expire`` or ``shared`` no bool, or ``on_lost`` not to be called;
    LockUnsupported, too, for a client whose class has its own ``execute_command()`` or the like, as
    for a prefix: the calls of locks do not go through it.

    The methods with the prefix ``a`` are awaited, and mean what those without it do. What is
    cancelled while it takes or releases the lock leaves neither lock nor waiter in Redis: it takes
    as long as Redis takes to answer that, or a socket timeout at most.
    """

    # The class of its handles.
    _kind: type[LockHandle] = LockHandle

    def __init__(
        self,
        client: Any,
        name: str,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        *,
        renew: bool = False,
        max_hold: float | None = None,
        min_hold: float | None = None,
        replicas: int | None = None,
        replica_timeout: float = DEFAULT_REPLICA_TIMEOUT,
        on_lost: Callable[[LockHandle], object] | None = None,
        key: str | None = None,
        index: str | None = None,
        label: str = "",
        user: str = "",
        note: str = "",
        reentrant: bool = False,
        protocol: str = "setnx",
        expire: bool = True,
        shared: bool = False,
        limit: int | None = None,
        ending: ReleasePolicy | None = None,
        wait_warning: float | None = None,
        deadlock_timeout: float | None = None,
        heartbeat_prefix: str | None = None,
    ) -> None:
        self._options = core_options(
            on_lost,
            timeout=timeout,
            sleep=sleep,
            blocking_timeout=blocking_timeout,
            renew=renew,
            max_hold=max_hold,
            min_hold=min_hold,
            reentrant=reentrant,
            ending=ending,
            wait_warning=wait_warning,
            deadlock_timeout=deadlock_timeout,
            protocol=protocol,
            expire=expire,
            shared=shared,
            limit=limit,
        )
        self._lease_ms = self._options.lease_ms
        refuse_own_calls(client.__class__)
        self._replicas: Replicas | None = None
        if (replicas or type(replicas) is bool) or replica_timeout != DEFAULT_REPLICA_TIMEOUT:
            self._replicas = wanted_replicas(client, replicas, replica_timeout, self._lease_ms)
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = self._options.blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.reentrant = reentrant
        keys = lock_keys(name)
        kind = AsyncOnly if _is_of_asyncio(client.__class__) else kind_of(client)
        self._target: Target = kind(
            client,
            keys,
            name if key is None else key,
            index,
            self._options.commands,
            heartbeat_prefix,
        )
        self._about = (
            *(label, user, note),
            *(self._lease_ms / 1000, renew, max_hold or 0.0),
            heartbeat_prefix is not None,
        )
        self._handles = LocalHandles(thread_local=self.thread_local)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} timeout={self.timeout:g}>"

    @property
    def key(self) -> str:
        """What the caller calls it."""
        return self._target.key

    @property
    def name(self) -> str:
        """The name in Redis."""
        return self._target.keys.name

    @property
    def timeout(self) -> float:
        """The lease in seconds."""
        return self._options.timeout

    @property
    def client(self) -> Any:
        """The redis-py client it asks."""
        return self._target.client

    def attempt(self) -> AcquireAttempt:
        """Return a new attempt at this lock by the calling thread."""
        turn = AcquireAttempt(
            self._target, self._lease_ms, Holder.here(*self._about), self._options
        )
        if self._options.min_hold_ms:
            turn.min_hold_ms = self._options.min_hold_ms
        if self._replicas is not None:
            turn.replicas = self._replicas
        return turn

    @property
    def local(self) -> LocalToken:
        """Its ``token`` is :attr:`token` as bytes, as with redis-py's lock."""
        return LocalToken.of(self.token)

    @property
    def fence(self) -> int | None:
        """The fencing number while held, else None."""
        return self.held.fence if self.held else None

    @property
    def token(self) -> str | None:
        """The secret token while held, else None."""
        return self.held.token if self.held else None

    async def _take(
        self,
        io: Backend,
        blocking_timeout: float | Unset | None = UNSET,
        token: str | None = None,
    ) -> LockHandle:
        limit = self._limit(blocking_timeout)
        if io.is_asyncio:
            refuse_many_servers(self.client)
        elif self._target.is_awaited:
            raise self._target.must_be_awaited()
        # Without a name: in the frames of a traceback, a share would count as held.
        return (await self._again(io) if token is None else None) or await self._take_anew(
            io, limit, token
        )

    def adopt(self, ticket: str) -> LockHandle:
        """Take over the lock that another process gave away, and give its handle.

        ``ticket``: what :meth:`LockHandle.give_away` gave there. The lock was held all the time in
        between, has its fence still, and is this one's alone from then on: the ticket is good for
        one. ``with lock("order:42").adopt(ticket) as held: ...`` lets it go at the end.

        Raises LockLost when the lock is not held by the ticket any more: the time for it was over,
        it was force-released, or somebody has taken it over; ValueError for what is no ticket, or
        that of another lock; LockUnsupported for a lock that is held with others or on several
        masters; LockUnavailable, after which the ticket may still be good.
        """
        secret = Secret(ticket)
        del ticket
        return run(self._adopt(BLOCKING, secret))

    async def _adopt(self, io: Backend, ticket: Secret) -> LockHandle:
        return await self.attempt().adopt(io, ticket)

    def again(self) -> LockHandle | None:
        """Return one more handle if the caller holds the lock and it is reentrant, else None.

        A lock whose release was deferred is had again in any case. Redis is asked only where less
        than half of the lease is left, or where the lock is held around this process; that may
        raise LockUnavailable.
        """
        return run(self._again(BLOCKING))

    async def _again(self, io: Backend) -> LockHandle | None:
        grant = reentrancy.grant_of(self._target) if self.reentrant else None
        share = None
        try:
            if grant is not None:
                share = self._another(grant)
            if share is None and self._options.ending is not None and not io.is_asyncio:
                grant = self._options.ending.kept(self._target)
                if grant is not None:
                    share = self._another(grant)
            # In the frames of a traceback it would be held on to.
            grant = None
            if share is None:
                if self.reentrant and parent_process.is_possible():
                    share = await self._inherited(io)
            elif not share.has_enough_lease:
                share.is_given = False
                await share._reacquire(io)
                share.is_given = True
            return share
        except BaseException as error:
            if share is not None:
                share.count_out()
            if isinstance(error, LockLost):
                return None
            raise

    def _another(self, grant: Grant) -> LockHandle | None:
        return self._kind.another(grant, self._target, self._lease_ms, self._options)

    async def _inherited(self, io: Backend) -> LockHandle | None:
        request = parent_process.request(self._target)
        if request is None:
            return None
        sent = clock.now()
        reply = await self._target.call(io, request)
        return parent_process.enter(self._target, reply, sent, self._another)

    async def _take_anew(self, io: Backend, limit: float | None, token: str | None) -> LockHandle:
        attempt = self.attempt()
        if token is not None:
            attempt.choose(token)
        try:
            return await wait_for(io, attempt, limit)
        except LockBusy:
            raise
        except BaseException as error:
            # Interrupts and cancellations too: the server may have granted what we shall never
            # hear of.
            try:
                if worth_undoing(error):
                    await io.shield(lambda: attempt.cancel(io), self.client, error)
            finally:
                attempt.end_wait(error)
            raise

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Take the lock; False when somebody else kept it for too long.

        ``blocking`` and ``blocking_timeout`` (seconds) default to those of the lock; ``sleep``
        (seconds) has no effect. ``token``: what stands at the name in Redis while it is held
        (default: a random value, which is safer); UTF-8, not empty. Whoever uses one twice answers
        for what comes of it: a second caller with the token of the holder is taken for the holder,
        and one that was given up or lost within the last minute is refused (LockError). Raises
        LockUnavailable and ValueError as :meth:`take`, TypeError and ValueError for what is no
        token, and LockUnsupported where a caller cannot choose it.
        """
        waiting_time(sleep, "sleep, the first argument of acquire(),")
        return run(self._acquire(BLOCKING, blocking, blocking_timeout, self._checked(token)))

    async def aacquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Take the lock as :meth:`acquire` does."""
        waiting_time(sleep, "sleep, the first argument of aacquire(),")
        return await self._acquire(ASYNCIO, blocking, blocking_timeout, self._checked(token))

    def _checked(self, token: object) -> str | None:
        """Return ``token`` as text. Raises TypeError, ValueError and LockUnsupported."""
        if token is None:
            return None
        if not self._target.command_set.supports_custom_token:
            raise LockUnsupported(
                f"with {self._target.command_set} a caller cannot choose what stands at the name: "
                "call acquire() without token=",
                key=self.key,
            )
        return checked_token(token)

    def locked(self) -> bool:
        """Return whether anybody holds it. Raises LockUnavailable."""
        return run(self._target.locked(BLOCKING))

    async def alocked(self) -> bool:
        """Ask as :meth:`locked` does."""
        return await self._target.locked(ASYNCIO)


class RWLock:
    """A lock that any number of readers hold at the same time, or one writer.

    First come, first served: a reader waits behind a writer that came before it, so that neither
    starves. Each reader has a lease of its own. With ``reentrant``, a writer may read within, and
    holds the lock alone until it has let both go; a reader that wants to write would wait for
    itself: that raises LockError.

    ``client``, ``name`` and ``options``: those of :class:`RedisLock`, which is what a writer
    takes; it raises what this raises.
    """

    def __init__(self, client: Any, name: str, **options: Any) -> None:
        self._begin(functools.partial(RedisLock, client, name, **options))

    @classmethod
    def made_by(cls, make: Callable[..., RedisLock]) -> RWLock:
        """Return one whose locks ``make(shared=...)`` makes."""
        made = cls.__new__(cls)
        made._begin(make)
        return made

    def _begin(self, make: Callable[..., RedisLock]) -> None:
        self._make = make
        # An option that is wrong is told at once.
        self._key = make(shared=True).key

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._key!r}>"

    @property
    def key(self) -> str:
        """What the caller calls it."""
        return self._key

    def read(self) -> RedisLock:
        """Return the lock of one reader."""
        return self._make(shared=True)

    def write(self) -> RedisLock:
        """Return the lock of one writer."""
        return self._make(shared=False)
