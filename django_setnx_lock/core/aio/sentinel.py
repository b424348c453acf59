"""Follows the primary that Sentinels name. The twin of :mod:`django_setnx_lock.core.sentinel`."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from ..sentinel import WITHIN, primary_of
from .line import take_note


async def follow(client: Any) -> None:
    """The twin of :func:`~django_setnx_lock.core.sentinel.follow`."""
    primary = primary_of(client)
    if primary is None or not primary.is_due():
        return
    seconds = WITHIN if primary.are_quick else 0
    if inspect.iscoroutinefunction(client.connection_pool.get_master_address):
        primary.task = asyncio.get_running_loop().create_task(primary.ask())
        primary.task.add_done_callback(take_note)
        await asyncio.wait({primary.task}, timeout=seconds)
        return
    asking = asyncio.wrap_future(primary.asking.begin())
    try:
        await asyncio.wait({asking}, timeout=seconds)
    finally:
        # Or it would be told of the end by the thread, even when its loop is closed by then.
        asking.cancel()
