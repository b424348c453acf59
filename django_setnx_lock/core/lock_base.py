"""What a lock is, apart from asking Redis for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import own_token
from .cluster.target import kind_of
from .dialects import chosen
from .errors import LockError
from .held import Held
from .holder import Holder
from .keys import lock_keys
from .lease import Upkeep
from .protocol import DEFAULT_TIMEOUT, least_hold, milliseconds, waiting_time
from .replicas import DEFAULT_TIMEOUT as DEFAULT_REPLICA_TIMEOUT
from .replicas import wanted
from .shared import chosen as chosen_shared
from .shelf import Shelf
from .target import AsyncOnly, Target
from .turn import Turn

if TYPE_CHECKING:
    from .ending import Ending


@functools.lru_cache(maxsize=32)
def _is_of_asyncio(client: type) -> bool:
    return any(kind.__module__.startswith("redis.asyncio") for kind in client.__mro__)


class LockBase:
    """The parameters of a lock and what is held through it. See :class:`RedisLock`."""

    # What its handles are.
    _kind: type[Held] = Held

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
        on_lost: Callable[[Held], object] | None = None,
        key: str | None = None,
        index: str | None = None,
        label: str = "",
        user: str = "",
        note: str = "",
        template: str = "",
        reentrant: bool = False,
        protocol: str = "setnx",
        unit: str = "ms",
        expire: bool = True,
        shared: bool = False,
        limit: int | None = None,
        polling: bool = False,
        ending: Ending | None = None,
    ) -> None:
        if timeout is None:
            timeout = DEFAULT_TIMEOUT
        self._upkeep = Upkeep(renew, max_hold, on_lost, reentrant, ending)
        self._least_ms = least_hold(min_hold, max_hold)
        self._lease_ms = self._upkeep.first_lease(milliseconds(timeout, "timeout"))
        self._replicas = wanted(client, replicas, replica_timeout, self._lease_ms)
        self._timeout = float(timeout)
        waiting_time(sleep, "sleep")
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = waiting_time(blocking_timeout)
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.reentrant = reentrant
        kind = AsyncOnly if _is_of_asyncio(client.__class__) else kind_of(client)
        self._target: Target = kind(
            client,
            lock_keys(name),
            name if key is None else key,
            index,
            template,
            chosen_shared(
                chosen(protocol, unit, expire, polling),
                shared,
                limit,
                min_hold=min_hold,
                reentrant=reentrant,
            ),
        )
        if self._least_ms and not self._target.dialect.keeps():
            how = self._target.dialect
            raise ValueError(f"min_hold is not to be had with {how}: hold the lock for that time")
        self._about = (label, user, note)
        self._shelf = Shelf(thread_local=self.thread_local)

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
        return self._timeout

    @property
    def client(self) -> Any:
        """The redis-py client it asks."""
        return self._target.client

    @property
    def can_be_given_away(self) -> bool:
        """Whether another process can take it over from its holder."""
        return self._target.dialect.takes_tokens()

    def turn(self) -> Turn:
        """A fresh attempt at this lock by the calling thread."""
        turn = Turn(self._target, self._lease_ms, Holder.here(*self._about), self._upkeep)
        if self._least_ms:
            turn.least_ms = self._least_ms
        if self._replicas is not None:
            turn.replicas = self._replicas
        return turn

    def _checked(self, token: object) -> str:
        """As :func:`own_token.checked`; ValueError too where it cannot be chosen."""
        if not self._target.dialect.takes_tokens():
            raise ValueError(
                f"with {self._target.dialect} a caller cannot choose what stands at the name: "
                "call acquire() without token="
            )
        return own_token.checked(token)

    def _limit(self, blocking: bool | None, blocking_timeout: float | None) -> float | None:
        if not (self.blocking if blocking is None else blocking):
            return 0
        return self.blocking_timeout if blocking_timeout is None else blocking_timeout

    @property
    def held(self) -> Held | None:
        """The handle of what this thread holds through this object, or None."""
        return self._shelf.last

    def _holding(self, what: str) -> Held:
        if self.held is None:
            message = f"cannot {what} the lock {self.key!r}: it is not held here"
            raise LockError(message, key=self.key)
        return self.held

    @property
    def fence(self) -> int | None:
        """The fencing number while held, else None."""
        return self.held.fence if self.held else None

    @property
    def token(self) -> str | None:
        """The secret token while held, else None."""
        return self.held.token if self.held else None

    @property
    def lost(self) -> bool:
        """Whether it was taken and is known to be ours no longer. Asks nobody."""
        return self.held is not None and self.held.lost

    def remaining(self) -> float:
        """Seconds left of the lease; 0.0 when not held."""
        return self.held.remaining() if self.held else 0.0
