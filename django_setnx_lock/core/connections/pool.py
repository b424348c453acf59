"""The idle connections that requests borrow."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from ..process import after_fork, notice_fork
from .client_settings import CONNECT_WITHIN
from .connection import AioConnection
from .primitives import kind as kind_now
from .sentinel import leads_elsewhere

_SPARE_AT_MOST = 16
# How long a connection is kept open for an answer that nobody waits for, and how many are.
_KEPT_FOR, _KEPT_AT_MOST = 60.0, 100


# Has ``address``, ``close()`` and ``made``, by what it was made: see :func:`.primitives.kind`.
_AnyConnection = TypeVar("_AnyConnection", bound=Any)
_Made = TypeVar("_Made")


class IdleConnections(Generic[_AnyConnection]):
    """Connections that are alike, by redis-py's pool whose settings they have.

    ``connection``: what makes one. ``connect_timeout``: as in :class:`.DedicatedConnection`, for
    those whose client sets none itself.
    """

    def __init__(
        self, connection: Callable[..., _AnyConnection], *, connect_timeout: float | None = None
    ) -> None:
        self._make = connection
        self._connect_timeout = connect_timeout
        self._spare: WeakKeyDictionary[Any, list[_AnyConnection]] = WeakKeyDictionary()
        # Nobody uses them any more; what was sent on them may yet be carried out.
        self._kept: deque[tuple[float, _AnyConnection]] = deque()
        self._is_closed = False

    def checkout(self, client: Any) -> _AnyConnection:
        """Return a connection to the server of ``client``: a spare or an unconnected one."""
        pool = client.connection_pool
        made = kind_now()
        spare = self._spare.get(pool)
        while spare:
            # Another thread may take the last one meanwhile.
            try:
                connection = spare.pop()
            except IndexError:
                break
            if connection.made == made:
                if not (hasattr(pool, "sentinel_manager") and leads_elsewhere(client, connection)):
                    return connection
                connection.close()
        limits: dict[str, float] = {}
        if self._connect_timeout is not None:
            options = pool.connection_kwargs
            limits["connect_timeout"] = (
                options.get("socket_connect_timeout")
                or options.get("socket_timeout")
                or self._connect_timeout
            )
        connection = self._make(client, **limits)
        connection.made = made
        return connection

    def forget(self, client: Any) -> None:
        """Keep none to the server of ``client``: one has failed, so all may be dead."""
        _close_each(self._spare.pop(client.connection_pool, []))

    def checkin(self, client: Any, connection: _AnyConnection) -> None:
        """Keep ``connection``, which has no reply outstanding, for the next who asks for one."""
        if self._kept:
            self._expire()
        spare = self._spare.get(client.connection_pool)
        if spare is None:
            spare = self._spare.setdefault(client.connection_pool, [])
        if len(spare) < _SPARE_AT_MOST and not self._is_closed:
            spare.append(connection)
        else:
            connection.close()

    def keep(self, connection: _AnyConnection) -> None:
        """Keep ``connection`` open for a while: some proxies forget what came from whom hangs up.

        Nobody uses it any more; what was sent on it may yet be carried out.
        """
        self._kept.append((time.monotonic() + _KEPT_FOR, connection))
        self._expire()

    def _expire(self) -> None:
        now = time.monotonic()
        # Another thread may take the last one meanwhile.
        with suppress(IndexError):
            while self._is_closed or self._kept[0][0] < now or len(self._kept) > _KEPT_AT_MOST:
                self._kept.popleft()[1].close()

    def close(self) -> None:
        """Close those that nobody uses, and keep none from now on."""
        self._is_closed = True
        self._expire()
        for pool in list(self._spare):
            _close_each(self._spare.pop(pool, []))


def _close_each(spare: list[Any]) -> None:
    # Another thread may take some meanwhile, or the last one.
    with suppress(IndexError):
        while True:
            spare.pop().close()


class PerLoop(Generic[_Made]):
    """One object for each event loop, which ``make`` returns when the loop first needs it."""

    def __init__(self, make: Callable[[asyncio.AbstractEventLoop], _Made]) -> None:
        self._make = make
        self._found: dict[asyncio.AbstractEventLoop, _Made] = {}
        # The objects of the parent process. To forget them would close connections that it uses.
        self._of_parents: list[dict[asyncio.AbstractEventLoop, _Made]] = []
        after_fork(self._after_fork_in_child)

    def __call__(self) -> _Made:
        """Return that of the running event loop. Raises RuntimeError where there is none."""
        notice_fork()
        loop = asyncio.get_running_loop()
        found = self._found.get(loop)
        if found is None:
            for other in [other for other in list(self._found) if other.is_closed()]:
                self._found.pop(other, None)
            found = self._found[loop] = self._make(loop)
        return found

    def all(self) -> list[_Made]:
        """Return those of all event loops of this process."""
        notice_fork()
        return list(self._found.values())

    def _after_fork_in_child(self) -> None:
        self._of_parents.append(self._found.copy())
        self._found.clear()


class LoopState:
    """The idle connections of one loop: ``calling`` for requests, ``waiting`` for mailboxes.

    ``before_end``: what to await when the loop ends, before they are closed. Others may let a lock
    go even then: on connections that are closed after that one request.
    """

    def __init__(self) -> None:
        self.calling = IdleConnections(AioConnection)
        self.waiting = IdleConnections(AioConnection, connect_timeout=CONNECT_WITHIN)
        self.before_end: list[Callable[[], Awaitable[None]]] = []
        # No public hook says that a loop ends. But asyncio.run(), and whatever else ends a loop in
        # order, closes its asynchronous generators, and one that was begun is among them.
        self._at_end = self._close_at_end()
        with suppress(StopIteration):
            self._at_end.asend(None).send(None)

    async def _close_at_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            try:
                for finish in self.before_end:
                    await finish()
            finally:
                self.calling.close()
                self.waiting.close()
                # The transports of what was closed hear of it in the loop's next turn.
                await asyncio.sleep(0)


loop_state = PerLoop(lambda _loop: LoopState())
