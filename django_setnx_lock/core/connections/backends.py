"""How an operation that is written once runs for threads and for asyncio.

An operation is a coroutine over a backend, which executes requests and sleeps. On ``BLOCKING``
nothing suspends, so :func:`run` drives it to its end in one step; on ``ASYNCIO`` it is awaited.
"""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from ..errors import LockError
from .client_settings import CONNECT_WITHIN, refuse_many_servers
from .cluster_routes import is_cluster
from .connection import Command, Connection
from .pool import IdleConnections, loop_state
from .sentinel import follow, follow_in_loop

logger = logging.getLogger("django_setnx_lock.lock")

_Result = TypeVar("_Result")
_CONNECTIONS = IdleConnections(Connection)
_LISTENING = IdleConnections(Connection, connect_timeout=CONNECT_WITHIN)

# Python warns of a coroutine that is thrown away. Ctrl-C, or a handler of a signal that raises, may
# come between making one of ours and awaiting it: it has done nothing then.
_OURS = __name__.rpartition(".connections.")[0].replace(".", r"\.") + r"\."
warnings.filterwarnings("ignore", "coroutine '.*' was never awaited", RuntimeWarning, _OURS)


def run(operation: Coroutine[Any, Any, _Result]) -> _Result:
    """Run ``operation``, which is on the blocking backend and so never suspends.

    Raises what it raises, RuntimeError if it suspends after all, and what :data:`refuse` does
    where an event loop runs in this thread.
    """
    try:
        # Much quicker than get_running_loop(), which raises where there is none.
        if _get_running_loop() is not None:
            refuse(BLOCKS_THE_LOOP)
        operation.send(None)
    except StopIteration as done:
        # No call from here on: none in which a handler of a signal could lose what was granted.
        return done.value  # type: ignore[no-any-return]  # StopIteration has no type for it
    except BaseException:
        # An interrupt may come before it has begun.
        operation.close()
        raise
    operation.close()
    raise RuntimeError("an operation on the blocking backend has suspended")


BLOCKS_THE_LOOP = (
    "This call waits for Redis, and nothing else runs in the event loop of this thread meanwhile: "
    "use the method with the prefix a (async with, aacquire, arelease), or another thread."
)


def refuse_blocking(message: str) -> None:
    raise RuntimeError(message)


# Called for a blocking call in an event loop. It raises, or lets the call pass.
refuse: Callable[[str], None] = refuse_blocking


class Blocking:
    """Sends, receives and sleeps in the calling thread."""

    is_asyncio = False

    async def checkout(self, client: Any) -> tuple[Any, Any]:
        """Return a connection to the server of ``client``, and whom to give it back to.

        Raises LockUnsupported for a client of several servers.
        """
        pool = getattr(client, "connection_pool", None)
        if pool is None:
            refuse_many_servers(client)
        # Most have no Sentinels, and this is asked for each request.
        if hasattr(pool, "sentinel_manager"):
            follow(client)
        return _CONNECTIONS, _CONNECTIONS.checkout(client)

    def idle(self) -> IdleConnections[Any]:
        """Return the idle connections for requests."""
        return _CONNECTIONS

    def listening(self) -> IdleConnections[Any]:
        """Return the idle connections for mailboxes."""
        return _LISTENING

    async def send(self, connection: Any, commands: Sequence[Command]) -> None:
        """Send ``commands`` in one write."""
        connection.send(*commands)

    async def read(self, connection: Any, seconds: float) -> Any:
        """Return the next reply; None when none has begun to come within ``seconds``."""
        return connection.read() if connection.wait(seconds) else None

    async def in_thread(self, work: Callable[..., object], *args: object) -> None:
        """Do ``work``, which blocks: here."""
        work(*args)

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    async def shield(
        self,
        clean_up: Callable[[], Coroutine[Any, Any, None]],
        client: Any,
        after: BaseException | None = None,
    ) -> None:
        """Run ``clean_up`` to its end, ``after`` what has ended the operation.

        What Redis cannot be told is dropped: it ends with its lease.
        """
        with suppress(LockError):
            await clean_up()


def patience(client: Any) -> float:
    """Return how many seconds a clean-up at ``client`` may take: its socket timeout."""
    if is_cluster(client):
        return CONNECT_WITHIN
    options = client.connection_pool.connection_kwargs
    limits = (options.get("socket_timeout"), options.get("socket_connect_timeout"))
    return float(next(filter(None, limits), CONNECT_WITHIN))


async def shield(run: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
    """Await ``run()`` to its end, for ``seconds`` at most. What it raises is not passed on.

    Raises CancelledError afterwards when the task was cancelled meanwhile.
    """
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + seconds
    cancelled: asyncio.CancelledError | None = None
    while True:
        task = loop.create_task(run())
        while not task.done() and (left := give_up_at - loop.time()) > 0:
            try:
                await asyncio.wait({task}, timeout=left)
            except asyncio.CancelledError as error:
                cancelled = error
        # At the end of asyncio.run() every task is cancelled, this one too, but once.
        if not task.cancelled() or loop.time() >= give_up_at:
            break
    if not task.done():
        task.cancel()
    elif not task.cancelled():
        failure = task.exception()
        if failure is not None and not isinstance(failure, LockError):
            logger.error("a lock could not be given up: %r", failure)
    if cancelled is not None:
        raise cancelled


def shield_in_background(run: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
    """Have that done by a task of its own: for coroutines that are closed, and await no more."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    task = loop.create_task(shield(run, seconds))
    _LATER.add(task)
    task.add_done_callback(_LATER.discard)


_LATER: set[asyncio.Task[None]] = set()


class Asyncio:
    """Sends, receives and sleeps in the running event loop."""

    is_asyncio = True

    async def checkout(self, client: Any) -> tuple[Any, Any]:
        """Return a connection to the server of ``client``, and whom to give it back to.

        Raises LockUnsupported for a client of several servers.
        """
        refuse_many_servers(client)
        await follow_in_loop(client)
        pool = loop_state().calling
        return pool, pool.checkout(client)

    def idle(self) -> IdleConnections[Any]:
        """Return the loop's idle connections for requests."""
        return loop_state().calling

    async def send(self, connection: Any, commands: Sequence[Command]) -> None:
        """Send ``commands`` in one write."""
        await connection.send(*commands)

    async def read(self, connection: Any, seconds: float) -> Any:
        """Return the next reply; None when none has come within ``seconds``."""
        return await connection.read(seconds)

    async def in_thread(self, work: Callable[..., object], *args: object) -> None:
        """Do ``work``, which blocks, in a thread."""
        await asyncio.to_thread(work, *args)

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)

    async def shield(
        self,
        clean_up: Callable[[], Coroutine[Any, Any, None]],
        client: Any,
        after: BaseException | None = None,
    ) -> None:
        """Run ``clean_up`` to its end though the task may be cancelled meanwhile.

        A coroutine that is closed (``after`` is GeneratorExit) cannot await: then a task of its
        own runs it.
        """
        if isinstance(after, GeneratorExit):
            shield_in_background(clean_up, patience(client))
        else:
            await shield(clean_up, patience(client))


Backend: TypeAlias = Blocking | Asyncio
BLOCKING, ASYNCIO = Blocking(), Asyncio()
