"""A lock on a majority of several independent servers: Redlock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..connections.quorum import DEFAULT_TIMEOUT, Masters, drift, masters_of
from ..errors import LockUnsupported
from ..options import milliseconds
from ..protocol.replies import Busy, Reply
from ..protocol.requests import Scripts
from .deadlock import WatchfulAttempt
from .grant import Grant
from .layered import LockHandle, RedisLock

if TYPE_CHECKING:
    from ..connections.backend import Backend

# The servers have no queue in common: who waits asks again and again.
_SCRIPTS = Scripts(several=None, polls=True)
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


class RedlockHandle(LockHandle):
    """A lock that is held on a majority of servers: without a fencing number."""

    @property
    def fence(self) -> int:
        """Refused. Raises LockUnsupported."""
        raise LockUnsupported(
            f"the lock {self.key!r} has no fencing number: it is held on several masters, which "
            "have no common order to number its holders by; take it on one server with using, "
            "where late writes are to be refused",
            key=self.key,
        )


class RedlockAttempt(WatchfulAttempt):
    """An attempt at a lock on several servers, known to all of them by the same token."""

    def _choose_mailbox(self, io: Backend) -> None:
        """Have none: the servers have no queue in common."""

    async def _read(self, io: Backend, reply: Reply) -> Grant | Busy | None:
        value = reply.value
        if value[0] == b"OK":
            answer = await super()._read(io, reply)
            if isinstance(answer, Grant):
                answer.end -= drift(answer.lease)
                # Listeners are told that it has none.
                answer.fence = None  # type: ignore[assignment]
            return answer
        if value[-1] or reply.was_retried:
            # What a minority has granted is given back.
            await self._cancel(io, in_doubt=reply.was_retried)
        self._begin_anew(io)
        return Busy(int(value[1]), value[2])


class Redlock(RedisLock):
    """One lock on a majority of several independent masters, which need not all be there.

    The algorithm is that of https://redis.io/docs/latest/develop/use/patterns/distributed-locks/:
    all masters are asked at once with the same token; the lock is taken when a majority has
    granted it and the time that took, and one per cent and 2 ms for the drift of clocks, are less
    than the lease; else all are asked to take it back. Its limits: :doc:`redis`.

    ``clients``: a redis-py client of each master, three at least, better an odd number: a fourth
    allows for no more failures than three do. ``names``: what messages call them (their
    addresses). ``master_timeout``: the seconds that a master has to be connected to and to answer
    (0.1); a dead one, one that hangs and a slow one cost so much at the most, alone or together.
    ``options``: the rest as in :class:`RedisLock`, whose methods it has.

    Nobody queues: who waits asks again after a pause at random. ``fence`` and an own ``token``
    raise LockUnsupported, and so do ``min_hold``, ``shared``, ``limit``, ``replicas`` and any
    ``protocol`` but ``setnx``. Raises ValueError for fewer than three masters, for two that are one
    server, and for a lease shorter than three times the ``master_timeout``; TypeError for clients
    of a cluster; else as RedisLock.
    """

    _handle = RedlockHandle
    _attempt = RedlockAttempt

    def __init__(
        self,
        clients: Sequence[Any] | Masters,
        name: str,
        timeout: float | None = None,
        sleep: float = 0.1,
        *,
        names: Sequence[str] | None = None,
        master_timeout: float = DEFAULT_TIMEOUT,
        **options: Any,
    ) -> None:
        if not isinstance(clients, Masters):
            milliseconds(master_timeout, "master_timeout")
            clients = masters_of(clients, names, master_timeout)
        for option, without in _NOT_HERE.items():
            if options.pop(option, without) != without:
                raise LockUnsupported(
                    f"{option} is not to be had for a lock on several masters: leave it out"
                )
        super().__init__(clients, name, timeout, sleep, **options)
        if self.options.lease < _LEAST_LEASE * clients.timeout:
            raise ValueError(
                f"timeout and max_hold must be at least {_LEAST_LEASE} times the master_timeout of "
                f"{clients.timeout:g} s, or a master that hangs would cost the lease"
            )
        self.target = self.target._replace(scripts=_SCRIPTS)
