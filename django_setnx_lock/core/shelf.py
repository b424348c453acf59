"""The handles that were taken through one lock object."""

from __future__ import annotations

import asyncio
import threading
from asyncio import _get_running_loop
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from .held import Held

if TYPE_CHECKING:
    from .aio.block import Block


class Entered(NamedTuple):
    """A block that was entered, by which thread or task, and what cancels it if a task did."""

    by: Any
    held: Held
    block: Block | None


class _Mine:
    def __init__(self, entered: list[Entered] | None = None) -> None:
        self.held: list[Held] = []
        self.entered: list[Entered] = [] if entered is None else entered


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.mine = _Mine()


class Shelf:
    """Keeps the handles of each thread and task apart, or with ``thread_local`` False together."""

    def __init__(self, *, thread_local: bool) -> None:
        self._all = None if thread_local else _Mine()
        self._threads = _PerThread()
        self._tasks: WeakKeyDictionary[asyncio.Task[Any], _Mine] | None = None
        # Of all tasks: an async generator may be entered by one and closed by another.
        self._entered: list[Entered] = []

    @property
    def _mine(self) -> _Mine:
        if self._all is not None:
            return self._all
        task = _running_task()
        if task is None:
            return self._threads.mine
        if self._tasks is None:
            self._tasks = WeakKeyDictionary()
        mine = self._tasks.get(task)
        if mine is None:
            mine = self._tasks[task] = _Mine(self._entered)
        return mine

    def put(self, held: Held) -> None:
        """Keep ``held``; those that are over are thrown away."""
        for earlier in list(self._mine.held):
            if earlier.released or earlier.lost:
                self.drop(earlier)
        self._mine.held.append(held)

    def drop(self, held: Held) -> None:
        """Keep ``held`` no longer."""
        # Another thread may have dropped it meanwhile.
        with suppress(ValueError):
            self._mine.held.remove(held)

    @property
    def last(self) -> Held | None:
        """What was put here last and is still held by this process, or None."""
        mine = [held for held in self._mine.held if held.is_here and not held.released]
        return mine[-1] if mine else None

    def enter(self, held: Held, block: Block | None = None) -> None:
        """Keep ``held`` for the block that this thread or task enters."""
        self.put(held)
        self._mine.entered.append(Entered(_who(), held, block))

    @property
    def innermost(self) -> Entered | None:
        """The block that was entered last here, else anywhere; or None."""
        entered = list(self._mine.entered)
        who = _who()
        own = [entry for entry in entered if entry.by == who]
        return (own or entered)[-1] if entered else None

    def leave(self, held: Held) -> None:
        """Keep ``held`` no longer, nor for the block that it was entered with."""
        entered = self._mine.entered
        for entry in [entry for entry in entered if entry.held is held]:
            with suppress(ValueError):
                entered.remove(entry)
        self.drop(held)


def _running_task() -> asyncio.Task[Any] | None:
    return None if _get_running_loop() is None else asyncio.current_task()


def _who() -> Any:
    task = _running_task()
    return threading.get_ident() if task is None else ref(task)
