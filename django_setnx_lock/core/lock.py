"""The lock itself, for any redis-py client."""

from __future__ import annotations

import functools
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal

from . import clock, protocol, waiting
from .calling import worth_undoing
from .errors import LockBusy, LockError
from .held import Held
from .holder import Holder
from .keys import lock_keys
from .shelf import Shelf
from .target import Target
from .turn import Turn
from .unset import UNSET, Unset


@functools.lru_cache(maxsize=32)
def _is_of_asyncio(client: type) -> bool:
    return any(kind.__module__.startswith("redis.asyncio") for kind in client.__mro__)


class RedisLock:
    """One distributed lock, taken with ``SET name token NX PX ms``.

    Methods, parameters and exceptions are those of redis-py's ``Lock``, with which it
    excludes one another, except that there is always a lease.

    ``client``: a redis-py client. ``name``: the key in Redis. ``timeout``: the lease in
    seconds (30; None means that too). ``blocking``: whether :meth:`acquire` waits (True).
    ``blocking_timeout``: how long, in seconds (None: without limit). ``thread_local``:
    whether each thread sees only what it took with this object itself (True).
    ``raise_on_release_error``: whether leaving a ``with`` block raises when the release
    failed; else it is logged (True). ``key``: what the caller calls it in messages (name).
    ``index``: the sorted set to list the lock in (None: in none). ``label``, ``user``,
    ``note``: what the holder record says besides host, process and thread.

    Raises ValueError for a timeout that is not a finite number above zero, a
    ``blocking_timeout`` below zero, or an impossible name; TypeError when the name is no str or
    the client one of asyncio.
    """

    def __init__(
        self,
        client: Any,
        name: str,
        timeout: float | None = None,
        *,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        key: str | None = None,
        index: str | None = None,
        label: str = "",
        user: str = "",
        note: str = "",
    ) -> None:
        if timeout is None:
            timeout = protocol.DEFAULT_TIMEOUT
        if _is_of_asyncio(client.__class__):
            raise TypeError("RedisLock needs a synchronous client, redis.Redis, not one of asyncio")
        self._lease_ms = protocol.milliseconds(timeout, "timeout")
        self.timeout = float(timeout)
        self.blocking = blocking
        self.blocking_timeout = protocol.waiting_time(blocking_timeout)
        self.raise_on_release_error = raise_on_release_error
        self._target = Target(client, lock_keys(name), name if key is None else key, index)
        self._about = {"label": label, "user": user, "note": note}
        self._shelf = Shelf(thread_local=thread_local)

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
    def client(self) -> Any:
        """The redis-py client it asks."""
        return self._target.client

    def take(self, blocking_timeout: float | Unset | None = UNSET) -> Held:
        """Take the lock and give its handle.

        ``blocking_timeout``: seconds to wait at most (default: that of the lock, 0 when it is
        not ``blocking``); 0 asks once; None waits without limit. Raises LockBusy when somebody
        else kept it for so long, LockUnavailable when Redis cannot say (what it may have
        granted is given back), and ValueError.
        """
        if isinstance(blocking_timeout, Unset):
            limit = self._limit(None, None)
        else:
            limit = protocol.waiting_time(blocking_timeout)
        turn = self.turn()
        try:
            return self._wait_for(turn, limit)
        except LockBusy:
            raise
        except BaseException as error:
            # Interrupts too: the server may have granted what we shall never hear of.
            if worth_undoing(error):
                with suppress(LockError):
                    turn.leave()
            raise

    def turn(self) -> Turn:
        """A fresh attempt at this lock by the calling thread."""
        return Turn(self._target, self._lease_ms, Holder.here(**self._about))

    def _wait_for(self, turn: Turn, limit: float | None) -> Held:
        give_up_at = None if limit is None else clock.now() + limit
        mailbox = waiting.Mailbox(self._target)
        tries = 0
        try:
            while True:
                left = None if give_up_at is None else give_up_at - clock.now()
                last = left is not None and left <= 0
                answer = turn.ask(waits=not last)
                if isinstance(answer, Held):
                    return answer
                if last:
                    raise turn.busy(answer)
                tries += 1
                mailbox.sleep(turn.token, waiting.time_to_sleep(answer, tries, left))
        finally:
            mailbox.close()

    def acquire(
        self, *, blocking: bool | None = None, blocking_timeout: float | None = None
    ) -> bool:
        """Take the lock; False when somebody else kept it for too long.

        ``blocking`` and ``blocking_timeout`` (seconds) default to those of the lock.
        Raises LockUnavailable and ValueError as :meth:`take`.
        """
        try:
            self._shelf.put(self.take(self._limit(blocking, blocking_timeout)))
        except LockBusy:
            return False
        return True

    def _limit(self, blocking: bool | None, blocking_timeout: float | None) -> float | None:
        if not (self.blocking if blocking is None else blocking):
            return 0
        return self.blocking_timeout if blocking_timeout is None else blocking_timeout

    def __enter__(self) -> Held:
        held = self.take()
        self._shelf.enter(held)
        return held

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        held = self._shelf.leave()
        if held is None:
            message = f"the block of the lock {self.key!r} was entered by another thread"
            raise LockError(message, key=self.key)
        held.finish(exc_value, raise_on_release_error=self.raise_on_release_error)

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

    def check(self) -> None:
        """Raise LockLost unless it is still ours. See :meth:`Held.check`."""
        self._holding("check").check()

    def owned(self) -> bool:
        """Whether it is ours, by Redis' word. Raises LockUnavailable."""
        return self.held is not None and self.held.owned()

    def locked(self) -> bool:
        """Whether anybody holds it. Raises LockUnavailable."""
        return self._target.locked()

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Add to the lease or replace it. See :meth:`Held.extend`."""
        return self._holding("extend").extend(additional_time, replace_ttl)

    def reacquire(self) -> Literal[True]:
        """Start the lease anew. See :meth:`Held.reacquire`."""
        return self._holding("reacquire").reacquire()

    def release(self) -> None:
        """Let the lock go. See :meth:`Held.release`."""
        held = self._holding("release")
        try:
            held.release()
        finally:
            # Kept after a failure to reach Redis, so that it can be called again.
            if held.released or held.lost:
                self._shelf.drop(held)
