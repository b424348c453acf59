"""Carries the flow of execution over asgiref's ``sync_to_async`` and ``async_to_sync``.

What is called over a bridge belongs to who called it, and so has again the locks that he holds.
No context variable could tell: child tasks inherit those too, and run beside their parents.

The two classes behind the bridges are called through a copy whose function carries the flow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import copy
from functools import wraps
from typing import Any

from asgiref.sync import AsyncToSync, SyncToAsync

from .core import flow

_MARK = "_carries_flow_of_setnx_lock"


def install() -> None:
    """Have all bridges carry the flow, those that are made already too. A second call is none."""
    for bridge, calling in ((SyncToAsync, _to_async), (AsyncToSync, _to_sync)):
        original = bridge.__call__
        if not hasattr(original, _MARK):
            call = calling(original)
            setattr(call, _MARK, original)
            bridge.__call__ = call  # type: ignore[method-assign, assignment]  # there is no hook


def uninstall() -> None:
    """Undo :func:`install`."""
    for bridge in (SyncToAsync, AsyncToSync):
        original = getattr(bridge.__call__, _MARK, None)
        if original is not None:
            bridge.__call__ = original  # type: ignore[method-assign]  # as above


def _to_async(original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(original)
    async def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        __traceback_hide__ = True
        bridge = copy(self)
        bridge.func = flow.carried(flow.current(), self.func)
        return await original(bridge, *args, **kwargs)

    return call


def _to_sync(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        __traceback_hide__ = True
        caller, awaitable = flow.current(), self.awaitable

        def carrying(*args: Any, **kwargs: Any) -> Awaitable[Any]:
            return _adopted(caller, awaitable(*args, **kwargs))

        bridge = copy(self)
        bridge.awaitable = carrying
        return original(bridge, *args, **kwargs)

    return call


async def _adopted(caller: flow.Flow, awaitable: Awaitable[Any]) -> Any:
    flow.adopt(caller)
    return await awaitable
