"""What a task runs under a lock: cancelled when the lock is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from .. import clock
from .owner import COUNTS_CANCELLATIONS, cancelling, uncancel

if TYPE_CHECKING:
    from ..held import Held

# Tells our cancellation from others where they are not counted.
_MESSAGE = "the lock was lost"


class Block:
    """The rest of the running task, up to :meth:`leave`, under ``held``.

    When the lock is lost the task is cancelled, once; leaving the block then raises LockLost in
    the place of the CancelledError, unless somebody else has cancelled the task as well.
    """

    def __init__(self, held: Held) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can run under a lock")
        self._held = held
        self._task: asyncio.Task[Any] = task
        self._before = cancelling(task)
        self._has_cancelled = False
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None
        held.enter(self)
        if not held.wants_renewal:
            # Nobody else looks when the lease is over.
            self._look_at_its_end()

    def cancel(self) -> None:
        """The lock is lost. Called in the loop of the task."""
        # Who finds it out himself is told by an exception.
        if self._has_cancelled or self._is_over or asyncio.current_task() is self._task:
            return
        self._has_cancelled = True
        self._task.cancel(_MESSAGE)

    async def leave(
        self, body_error: BaseException | None, *, raise_on_release_error: bool = True
    ) -> None:
        """Let the lock go, after ``body_error``, which is never hidden.

        Raises LockLost when it was lost, unless the block raised something of its own.
        """
        self._is_over = True
        self._held.leave(self)
        if self._timer is not None:
            self._timer.cancel()
        is_ours = self._has_cancelled and self._takes_back(body_error)
        await self._held.afinish(
            None if is_ours else body_error,
            raise_on_release_error=raise_on_release_error or is_ours,
        )

    def _takes_back(self, error: BaseException | None) -> bool:
        """Take our cancellation back; whether ``error`` is that, and of nobody else besides."""
        others = uncancel(self._task) > self._before
        if others or not isinstance(error, asyncio.CancelledError):
            return False
        return COUNTS_CANCELLATIONS or _MESSAGE in error.args

    def _look_at_its_end(self) -> None:
        left = max(self._held.lease.end - clock.now(), 0) + 0.001
        self._timer = asyncio.get_running_loop().call_later(left, self._look)

    def _look(self) -> None:
        if self._is_over or self._held.released:
            return
        if self._held.lost:
            self._held.lose(self._held.ran_out())
        else:
            self._look_at_its_end()
