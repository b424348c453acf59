"""A lock on several independent masters, as of Redlock."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from . import clock, tickets
from .errors import LockError, LockUnsupported
from .held import Held
from .holder import Holder
from .lock import RedisLock
from .masters.held import MastersHeld, MastersTarget, refuse_asyncio
from .masters.masters import DEFAULT_TIMEOUT, Masters, masters_of
from .masters.turn import MastersTurn
from .turn import Turn

# Those who wait ask at random, or those who got in one another's way would do so again.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 0.08
# So many answers may be outstanding in a third of the lease.
_LEAST_LEASE = 3


# What needs one server, and the value that is without effect.
_NOT_HERE = {
    "min_hold": None,
    "replicas": 0,
    "protocol": "setnx",
    "polling": False,
    "shared": False,
    "limit": None,
}


class Redlock(RedisLock):
    """One lock on a majority of several independent masters, which need not all be there.

    The algorithm is that of https://redis.io/docs/latest/develop/use/patterns/distributed-locks/:
    all masters are asked at once with the same token; the lock is taken when a majority has
    granted it and the time that took, and one per cent and 2 ms for the drift of clocks, are less
    than the lease; else all are asked to take it back. docs/redlock.md tells what it does not give.

    ``clients``: a redis-py client of each master, three at least, better an odd number: a fourth
    allows for no more failures than three do. ``names``: what messages call them (their
    addresses). ``master_timeout``: the seconds that a master has to be connected to and to answer
    (0.1); a dead one, one that hangs and a slow one cost so much at the most, alone or together.
    ``options``: the rest as in :class:`RedisLock`, whose methods it has.

    Nobody queues: who waits asks again after a pause at random. ``fence``, an own ``token`` and
    the methods with the prefix a raise LockUnsupported. Raises ValueError for fewer than three
    masters, for two that are one server, for a lease shorter than three times the
    ``master_timeout``, and for ``min_hold``, ``replicas`` and the protocol ``timestamp``;
    TypeError for clients of a cluster or of asyncio; else as RedisLock.
    """

    _kind = MastersHeld

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
        masters = (
            clients if isinstance(clients, Masters) else masters_of(clients, names, master_timeout)
        )
        for option, without in _NOT_HERE.items():
            if options.get(option, without) != without:
                raise ValueError(
                    f"{option} is not to be had for a lock on several masters: leave it out"
                )
        super().__init__(masters, name, timeout, sleep, **options)
        if self._lease_ms < _LEAST_LEASE * masters.timeout * 1000:
            raise ValueError(
                f"timeout and max_hold must be at least {_LEAST_LEASE} times the master_timeout of "
                f"{masters.timeout:g} s, or a master that hangs would cost the lease"
            )
        plain = self._target
        self._target = MastersTarget(masters, plain.keys, plain.key, plain.index, plain.template)

    @property
    def can_be_given_away(self) -> bool:
        """Never."""
        return False

    def turn(self) -> MastersTurn:
        """A fresh attempt at this lock by the calling thread."""
        return MastersTurn(self._target, self._lease_ms, Holder.here(*self._about), self._upkeep)

    def _take(self, blocking_timeout: float | None, token: str | None = None) -> Held:
        if token is not None:
            raise LockUnsupported(
                f"the lock {self.key!r} is one on several masters, which takes no token of the "
                "caller's: leave token out",
                key=self.key,
            )
        return super()._take(blocking_timeout)

    def _adopt(self, ticket: str, token: str | None = None) -> NoReturn:
        tickets.refuse(self.key, "on several masters")

    def _take_anew(self, limit: float | None, token: str | None) -> Held:
        turn = self.turn()
        try:
            return self._wait_for(turn, limit)
        except LockError:
            # What was granted has been given back.
            raise
        except BaseException:
            with suppress(LockError):
                turn.leave()
            raise

    def _wait_for(self, turn: Turn, limit: float | None) -> Held:
        give_up_at = None if limit is None else clock.now() + limit
        is_first = True
        while True:
            last = give_up_at is not None and clock.now() >= give_up_at
            answer = turn.ask(waits=False)
            if isinstance(answer, Held):
                return answer
            if last:
                raise turn.busy(answer)
            if is_first:
                is_first = False
                turn.tell_wait(answer)
            pause = random.uniform(_SHORTEST_PAUSE, _LONGEST_PAUSE)  # noqa: S311 - no secret
            if give_up_at is not None:
                pause = max(min(pause, give_up_at - clock.now()), 0)
            time.sleep(pause)

    async def _atake(self, blocking_timeout: float | None, token: str | None = None) -> NoReturn:
        refuse_asyncio(self.key)

    async def alocked(self) -> NoReturn:
        refuse_asyncio(self.key)
