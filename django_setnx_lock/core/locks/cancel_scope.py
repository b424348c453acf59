"""The part of a task that runs under a lock, cancelled when the lock is lost."""

from __future__ import annotations

import asyncio
import sys
from asyncio import _get_running_loop
from contextlib import suppress
from typing import Any

from .. import clock
from .operations import Handle

# Tells our cancellation from others where they are not counted.
_MESSAGE = "the lock was lost"


class CancelScope:
    """The rest of the running task, up to :meth:`leave`, under ``held``.

    When the lock is lost the task is cancelled, once; leaving the scope then raises LockLost in
    the place of the CancelledError, unless somebody else has cancelled the task as well.
    """

    def __init__(self, held: Handle) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can run under a lock")
        self._held = held
        self.task: asyncio.Task[Any] = task
        self._before = cancelling(task)
        self._loop = asyncio.get_running_loop()
        self._has_cancelled = False
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        held.enter(self)
        if not held.wants_renewal:
            # Nobody else looks when the lease is over.
            self._look_at_its_end()

    def cancel(self) -> None:
        """Cancel the task: the lock is lost. Any thread may call it."""
        if _get_running_loop() is self._loop:
            self._cancel()
        else:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        # A task that finds the loss itself is told by an exception.
        if self._has_cancelled or self._is_over or asyncio.current_task() is self.task:
            return
        self._has_cancelled = True
        self.task.cancel(_MESSAGE)

    def end(self) -> None:
        """Cancel the task no longer. The lock stays held."""
        self._is_over = True
        self._held.leave(self)
        if self._timer is not None:
            self._timer.cancel()

    async def leave(
        self, body_error: BaseException | None, *, raise_on_release_error: bool = True
    ) -> None:
        """Let the lock go, after ``body_error``, which is never hidden.

        Raises LockLost when it was lost, unless the block raised something of its own.
        """
        self.end()
        is_ours = self._has_cancelled and self._takes_back(body_error)
        await self._held.afinish(
            None if is_ours else body_error,
            raise_on_release_error=raise_on_release_error or is_ours,
        )

    def _takes_back(self, error: BaseException | None) -> bool:
        """Take our cancellation back; whether ``error`` is that, and of nobody else besides."""
        others = uncancel(self.task) > self._before
        if others or not isinstance(error, asyncio.CancelledError):
            return False
        return COUNTS_CANCELLATIONS or _MESSAGE in error.args

    def _look_at_its_end(self) -> None:
        left = max(self._held.lease.end - clock.now(), 0) + 0.001
        self._timer = self._loop.call_later(left, self._look)

    def _look(self) -> None:
        if self._is_over or self._held.released:
            return
        if self._held.lost:
            self._held.declare_over()
        else:
            self._look_at_its_end()


COUNTS_CANCELLATIONS = sys.version_info >= (3, 11)

if sys.version_info >= (3, 11):

    def cancelling(task: asyncio.Task[Any]) -> int:
        """How often ``task`` has been asked to end and has not declined."""
        return task.cancelling()

    def uncancel(task: asyncio.Task[Any]) -> int:
        """Take one such request back; gives how many are left."""
        return task.uncancel()

else:  # They are not counted.

    def cancelling(task: asyncio.Task[Any]) -> int:
        """Not known before Python 3.11."""
        return 0

    def uncancel(task: asyncio.Task[Any]) -> int:
        """Not known before Python 3.11."""
        return 0
