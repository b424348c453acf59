"""Requests of the tasks of one event loop, which share a few connections to each server."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from redis import exceptions as redis_exceptions

from ..errors import LockUnavailable
from ..protocol.commands import PlainRequest, Request
from . import execute
from .connection import BATCH
from .execute import OF_THE_SERVER, Undo
from .failures import TRANSLATED, unavailable
from .pool import PerLoop

if TYPE_CHECKING:
    from .backends import Backend

# The connections that the tasks of one event loop ask one server on, and what tells one that waits
# for them to connect by itself.
_CONNECTIONS_AT_MOST = 3
_ALONE: Final = object()


@dataclass(slots=True)
class _Waiting:
    """A request that waits for a connection. ``reply``: that, an error, or ``_ALONE``."""

    request: Request
    key: str
    reply: asyncio.Future[Any]
    is_sent: bool = False
    was_repeated: bool = False


class Batcher:
    """Lets the tasks of one event loop share a few connections to one server.

    Who asks while all are in use goes together with the others that do, in one trip, as soon as one
    is free. When the server cannot be reached, each asks for itself.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._in_use = 0
        self._waiting: deque[_Waiting] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(
        self,
        io: Backend,
        client: Any,
        request: Request,
        key: str,
        *,
        repeated: Callable[[], None] | None,
        until: float | None,
        undo: Undo | None,
    ) -> Any:
        """Do as :func:`.execute.call`; ``until``: when to give up, by ``time.monotonic()``."""
        if self._in_use >= _CONNECTIONS_AT_MOST:
            waiting = _Waiting(request, key, self._loop.create_future())
            self._waiting.append(waiting)
            reply = await self._reply(waiting, until)
            if waiting.was_repeated and repeated is not None:
                repeated()
            if isinstance(reply, Exception):
                raise reply
            if reply is not _ALONE:
                return reply
        self._in_use += 1
        try:
            within = None if until is None else until - time.monotonic()
            return await execute.call(
                io, client, request, key, repeated=repeated, within=within, undo=undo
            )
        except LockUnavailable as error:
            self._refused(error)
            raise
        finally:
            self._in_use -= 1
            self._go_on(io, client)

    async def _reply(self, waiting: _Waiting, until: float | None) -> Any:
        if until is None:
            return await waiting.reply
        end = self._loop.call_later(until - time.monotonic(), _give_up, waiting)
        try:
            return await waiting.reply
        finally:
            end.cancel()

    def _go_on(self, io: Backend, client: Any) -> None:
        while self._waiting and self._in_use < _CONNECTIONS_AT_MOST and not self._loop.is_closed():
            batch: list[_Waiting] = []
            while self._waiting and len(batch) < BATCH:
                waiting = self._waiting.popleft()
                # Its task may have been cancelled meanwhile.
                if not waiting.reply.done():
                    waiting.is_sent = True
                    batch.append(waiting)
            if batch:
                self._in_use += 1
                task = self._loop.create_task(self._run(io, client, batch))
                self._tasks.add(task)
                task.add_done_callback(partial(self._has_run, io, client, batch))

    async def _run(self, io: Backend, client: Any, batch: Sequence[_Waiting]) -> None:
        def note_repeat() -> None:
            for one in batch:
                one.was_repeated = True

        requests, keys = [one.request for one in batch], [one.key for one in batch]
        try:
            replies = await execute.call_many(io, client, requests, keys, repeated=note_repeat)
        except LockUnavailable as error:
            replies = [_for_key(error, key) for key in keys]
            self._refused(error)
        except Exception as error:  # noqa: BLE001 - those who wait raise it
            replies = [error] * len(batch)
        for one, reply in zip(batch, replies, strict=True):
            _answer(one, reply)

    def _has_run(
        self, io: Backend, client: Any, batch: Sequence[_Waiting], task: asyncio.Task[None]
    ) -> None:
        # Not in the task itself: one that is cancelled before its first step runs nothing.
        self._tasks.discard(task)
        self._in_use -= 1
        gone = redis_exceptions.ConnectionError("The task that was to ask has been cancelled")
        for one in batch:
            if not one.reply.done():
                # Somebody has cancelled whatever tasks there are.
                _answer(one, unavailable(gone, one.key))
        self._go_on(io, client)

    def _refused(self, error: LockUnavailable) -> None:
        """Take note of ``error``: those who wait, if all will meet it, wait no longer."""
        if error.cause in OF_THE_SERVER:
            while self._waiting:
                _answer(self._waiting.popleft(), _ALONE)


def _give_up(waiting: _Waiting) -> None:
    error = unavailable(
        redis_exceptions.TimeoutError("Timeout reading from the server"), waiting.key
    )
    error.is_unsent = not waiting.is_sent
    _answer(waiting, error)


def _answer(waiting: _Waiting, reply: Any) -> None:
    if not waiting.reply.done():
        waiting.reply.set_result(reply)


def _for_key(error: LockUnavailable, key: str) -> LockUnavailable:
    """Return the ``error`` of a batch as that of the lock ``key``."""
    cause = error.__cause__
    made = unavailable(cause, key) if isinstance(cause, TRANSLATED) else error
    made.__cause__ = cause
    made.repeated, made.is_unsent = error.repeated, error.is_unsent
    return made


# By the pool of the client.
_batchers: PerLoop[WeakKeyDictionary[Any, Batcher]] = PerLoop(lambda _loop: WeakKeyDictionary())


async def call(
    io: Backend,
    client: Any,
    request: Request | PlainRequest,
    key: str,
    *,
    within: float | None = None,
    repeated: Callable[[], None] | None = None,
    undo: Undo | None = None,
    replicas: execute.Replicas | None = None,
    **options: Any,
) -> Any:
    """Do as :func:`.execute.call`, in asyncio: together with other requests where that can be.

    Not on a cluster, whose nodes may send some of them elsewhere, nor where replicas are waited
    for.
    """
    pool = getattr(client, "connection_pool", None)
    if pool is None or replicas is not None or options or not isinstance(request, Request):
        return await execute.call(
            io,
            client,
            request,
            key,
            within=within,
            repeated=repeated,
            undo=undo,
            replicas=replicas,
            **options,
        )
    of_servers = _batchers()
    found = of_servers.get(pool)
    if found is None:
        found = of_servers[pool] = Batcher(asyncio.get_running_loop())
    until = None if within is None else time.monotonic() + within
    return await found.call(io, client, request, key, repeated=repeated, until=until, undo=undo)
