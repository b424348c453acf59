"""Carry the owner of locks over asgiref's ``sync_to_async`` and ``async_to_sync``.

A function called over a bridge acts for its caller, and so may re-enter the caller's locks. A
context variable could not carry that: child tasks, which run beside their parents, inherit those.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import copy
from functools import wraps
from typing import Any

from asgiref.sync import AsyncToSync, SyncToAsync
from django.utils.asyncio import async_unsafe

from .core.connections import backends
from .core.locks import owner

_MARK = "_carries_owner_of_setnx_lock"


def install() -> None:
    """Make all bridges carry the owner, existing ones too. A second call changes nothing."""
    for bridge, calling in ((SyncToAsync, _to_async), (AsyncToSync, _to_sync)):
        original = bridge.__call__
        if not hasattr(original, _MARK):
            call = calling(original)
            setattr(call, _MARK, True)
            bridge.__call__ = call  # type: ignore[method-assign, assignment]  # there is no hook


def _to_async(original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @wraps(original)
    async def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        __traceback_hide__ = True
        bridge = copy(self)
        bridge.func = owner.run_as(owner.current(), self.func)
        return await original(bridge, *args, **kwargs)

    return call


def _to_sync(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        __traceback_hide__ = True
        caller, awaitable = owner.current(), self.awaitable

        async def carrying(*args: Any, **kwargs: Any) -> Any:
            owner.bind_current_task(caller)
            return await awaitable(*args, **kwargs)

        bridge = copy(self)
        bridge.awaitable = carrying
        return original(bridge, *args, **kwargs)

    return call


def refuse(message: str) -> None:
    """Raise SynchronousOnlyOperation, unless DJANGO_ALLOW_ASYNC_UNSAFE is set."""
    async_unsafe(message)(lambda: None)()


backends.refuse = refuse
