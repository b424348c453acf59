"""The task that took a lock, and the block that it runs under it."""

from __future__ import annotations

import asyncio
import sys
from asyncio import _get_running_loop
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import ref

from .. import flow
from .loops import here

if TYPE_CHECKING:
    from .block import Block
    from .watchdog import LoopWatchdog


class Owner:
    """The running task; nobody if that only takes the lock, for whoever awaits it."""

    __slots__ = ("_blocks", "_loop", "_task", "watchdog")

    def __init__(self) -> None:
        self.watchdog: LoopWatchdog = here().watchdog
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        self._task: ref[asyncio.Task[Any]] | None = None
        if task is not None and not flow.only_takes(task):
            self._task = ref(task)
        # The outermost first.
        self._blocks: list[Block] = []

    @property
    def has_ended(self) -> bool:
        """Whether the task is over and was not let go."""
        if self._task is None:
            return False
        task = self._task()
        return task is None or task.done()

    def let_go(self) -> None:
        """The lock no longer belongs to the task."""
        self._task = None

    def is_of_same_task(self, other: Owner) -> bool:
        """Whether both are the same task, which was not let go."""
        return self._task is not None and self._task == other._task

    def enter(self, block: Block) -> None:
        """The task is in ``block`` now."""
        self._blocks.append(block)

    def leave(self, block: Block) -> None:
        """The task is in ``block`` no longer."""
        with suppress(ValueError):
            self._blocks.remove(block)

    def lost(self) -> None:
        """The lock is lost. May be told by any thread."""
        if not self._blocks:
            return
        # The outermost: cancelling it cancels those within.
        block = self._blocks[0]
        if _get_running_loop() is self._loop:
            block.cancel()
        else:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(block.cancel)


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
