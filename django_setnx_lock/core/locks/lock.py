"""The lock itself, for any redis-py client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..connections.backend import Backend
from ..connections.connection import refuse_own_calls
from ..connections.session import Session, session_of
from ..options import Target, checked_callback, options_of
from ..process import Owner
from ..protocol.requests import keys_of
from .attempt import Attempt
from .handle import PlainHandle
from .local import LocalLock

_Handle = TypeVar("_Handle", bound=PlainHandle)


class PlainLock(LocalLock[_Handle]):
    """One distributed lock, taken with ``SET name token NX PX ms``.

    Methods, parameters (and their order) and exceptions are those of redis-py's ``Lock``, with
    which it excludes one another. What differs: :doc:`comparison`.

    ``client``: a redis-py client; with one of ``redis.asyncio`` only awaited methods work.
    ``name``: the key in Redis. ``timeout``: the lease in seconds (None: 30). ``sleep``: without
    effect, waiters do not poll. ``blocking``: whether :meth:`acquire` waits. ``blocking_timeout``:
    how long, in seconds (None: without limit). ``thread_local``: whether each thread sees only what
    it took with this object itself. ``raise_on_release_error``: whether leaving a ``with`` block
    raises when the release failed; else it is logged. ``renew``: whether the lease is renewed in
    the background until the lock is released, its thread has ended, or nobody refers to the handle.
    ``max_hold``: the seconds that it is held at most, which bounds lease and renewal, not
    :meth:`extend`. ``min_hold``: the seconds from the grant on during which nobody else gets it,
    however soon it is released. ``on_lost``: called once with the handle when the lock is lost,
    mostly by the thread that renews, so it must be quick. ``key``: what messages call the lock
    (None: its name). ``index``: the sorted set to list it in. ``label``, ``user``, ``note``: what
    the holder record says besides host, process and thread. ``reentrant``: whether the thread or
    task that holds it gets it again. ``shared``: whether others that are ``shared`` may be held at
    the same time; ``limit``: how many with a limit may. ``wait_warning``: after how many seconds of
    waiting a warning in the log says who holds the lock; ``deadlock_timeout``: after how many the
    caller looks for a deadlock (None: never; see :doc:`kinds`).

    Raises ValueError for a time that is no finite number above zero (``blocking_timeout`` and
    ``sleep`` may be 0), a ``min_hold`` of more than ``max_hold``, an impossible name, and a
    ``limit`` that is no number from 1 to 1,000,000; TypeError for a value of another type;
    LockUnsupported for two of ``shared``, ``limit`` and ``min_hold``, for ``limit`` with
    ``reentrant``, and for a client whose class has its own ``execute_command()`` or the like.

    The methods with the prefix ``a`` are awaited. One that is cancelled leaves neither lock nor
    waiter in Redis: it takes as long as Redis takes to answer that, or a socket timeout at most.
    """

    _handle: type[PlainHandle] = PlainHandle
    _attempt: type[Attempt] = Attempt

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
        on_lost: Callable[[_Handle], object] | None = None,
        key: str | None = None,
        index: str | None = None,
        label: str = "",
        user: str = "",
        note: str = "",
        reentrant: bool = False,
        shared: bool = False,
        limit: int | None = None,
        wait_warning: float | None = None,
        deadlock_timeout: float | None = None,
        **layers: Any,
    ) -> None:
        refuse_own_calls(client.__class__)
        given = (timeout, blocking_timeout, sleep, renew, max_hold, min_hold, reentrant, shared)
        values = (*given, limit, wait_warning, deadlock_timeout, label, user, note, bool(index))
        try:
            options = options_of(*values)
        except TypeError:
            # One of them has no hash, or is refused, and why is said anew.
            options = options_of.__wrapped__(*values)
        target = Target(
            client,
            name if key is None else key,
            keys_of(name, index),
            options,
            on_lost if on_lost is None else checked_callback(on_lost),
            renew or index is not None or on_lost is not None,
            self._handle,
        )
        self.sleep = sleep
        if layers:
            target = self._with_layers(target, **layers)
        super().__init__(target, blocking, thread_local, raise_on_release_error)

    @property
    def name(self) -> str:
        """The name in Redis."""
        return self.target.keys[0]

    @property
    def fence(self) -> int | None:
        """The fencing number while held, else None."""
        return self.held.fence if self.held else None

    @property
    def token(self) -> str | None:
        """The secret token while held, else None."""
        return self.held.token if self.held else None

    async def _take(
        self, io: Backend, limit: float | None, by: Owner, token: str | None = None
    ) -> Any:
        return await self._attempt(self.target, self.session_for(io), by, token).take(io, limit)

    def session_for(self, io: Backend) -> Session:
        """Return the session with the server. Raises TypeError where nothing would be awaited."""
        session = session_of(self.target.client)
        if session.is_awaited and not io.is_asyncio:
            raise TypeError(
                f"the lock {self.key!r} was made with a client of redis.asyncio: use async with "
                "and the methods with the prefix a, or give it a synchronous client, redis.Redis"
            )
        return session
