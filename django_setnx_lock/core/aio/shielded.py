"""What has to be done whether or not somebody cancels the task meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ..cluster.shared import is_cluster
from ..errors import LockError
from ..line import CONNECT_WITHIN

logger = logging.getLogger("django_setnx_lock.lock")


def patience(client: Any) -> float:
    """The seconds that a clean-up at the server of ``client`` may take: its socket timeout."""
    if is_cluster(client):
        return CONNECT_WITHIN
    options = client.connection_pool.connection_kwargs
    limits = (options.get("socket_timeout"), options.get("socket_connect_timeout"))
    return float(next(filter(None, limits), CONNECT_WITHIN))


async def undisturbed(run: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
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


def undisturbed_later(run: Callable[[], Coroutine[Any, Any, None]], seconds: float) -> None:
    """Have that done by a task of its own: for coroutines that are closed, and await no more."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    task = loop.create_task(undisturbed(run, seconds))
    _LATER.add(task)
    task.add_done_callback(_LATER.discard)


_LATER: set[asyncio.Task[None]] = set()
