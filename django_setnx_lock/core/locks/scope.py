"""The body of an ``async with`` block: its task is cancelled when the lock is lost under it."""

from __future__ import annotations

import asyncio
import sys
from asyncio import _get_running_loop
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..connections.pipe import ASYNCIO
from .renewal import renewal_of

if TYPE_CHECKING:
    from .grant import Grant

# Tells our cancellation from others where they are not counted.
_MESSAGE = "the lock was lost"
_COUNTS = sys.version_info >= (3, 11)


class CancelScope:
    """The rest of the running task, up to :meth:`leave`, under ``grants``.

    When one of them is lost the task is cancelled, once. Of two scopes of a task that share a grant
    the outer one cancels it.
    """

    def __init__(self, grants: Sequence[Grant]) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can run under a lock")
        self._grants = grants
        self.task: asyncio.Task[Any] = task
        # How often it was cancelled and went on all the same; Python 3.10 does not count.
        self._before: int = getattr(task, "cancelling", int)()
        self._loop = asyncio.get_running_loop()
        self._has_cancelled = self._is_over = False
        for grant in grants:
            grant.scopes += (self,)
            if grant.renewal is None:
                # Nobody else looks when its lease ends.
                renewal_of(grant, ASYNCIO).register(grant)

    def cancel(self) -> None:
        """Cancel the task: a lock is lost. Any thread may call it."""
        if _get_running_loop() is self._loop:
            self._cancel()
        else:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cancel)

    def leave(self, error: BaseException | None) -> BaseException | None:
        """Cancel the task no longer; return ``error`` of its body, None if that is our doing."""
        self._is_over = True
        for grant in self._grants:
            grant.scopes = tuple(scope for scope in grant.scopes if scope is not self)
        if not self._has_cancelled:
            return error
        # Somebody else may have cancelled the task as well.
        others = getattr(self.task, "uncancel", int)() > self._before
        if others or not isinstance(error, asyncio.CancelledError):
            return error
        return None if _COUNTS or _MESSAGE in error.args else error

    def _cancel(self) -> None:
        # A task that finds the loss itself gets an exception.
        has_found = self._has_cancelled or asyncio.current_task() is self.task
        if not (has_found or self._is_over or self._is_within_another()):
            self._has_cancelled = True
            self.task.cancel(_MESSAGE)

    def _is_within_another(self) -> bool:
        around = [
            scope for grant in self._grants for scope in grant.scopes[: grant.scopes.index(self)]
        ]
        return any(scope.task is self.task for scope in around)
