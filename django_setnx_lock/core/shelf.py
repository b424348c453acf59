"""The handles that were taken through one lock object."""

from __future__ import annotations

import asyncio
import threading
from asyncio import _get_running_loop
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, ref

from .held import Held

if TYPE_CHECKING:
    from .aio.block import Block


class Entered(NamedTuple):
    """A block that was entered, by which thread or task, and what cancels it if a task did."""

    by: object
    held: Held
    block: Block | None


class _Mine:
    __slots__ = ("entered", "held")

    def __init__(self, entered: list[Entered] | None = None) -> None:
        self.held: list[Held] = []
        self.entered: list[Entered] = [] if entered is None else entered


class _PerThread(threading.local):
    mine: _Mine | None = None


class Shelf:
    """Keeps the handles of each thread and task apart, or with ``thread_local`` False together."""

    def __init__(self, *, thread_local: bool) -> None:
        self._all = None if thread_local else _Mine()
        self._threads = _PerThread()
        self._tasks: WeakKeyDictionary[asyncio.Task[Any], _Mine] | None = None
        # Of all tasks: an async generator may be entered by one and closed by another.
        self._entered: list[Entered] = []

    def _here(self) -> tuple[_Mine, object]:
        """What the caller took, and who that is."""
        loop = _get_running_loop()
        task = None if loop is None else asyncio.current_task(loop)
        if task is None:
            mine = self._all or self._threads.mine
            if mine is None:
                mine = self._threads.mine = _Mine()
            return mine, threading.get_ident()
        if self._all is not None:
            return self._all, ref(task)
        if self._tasks is None:
            self._tasks = WeakKeyDictionary()
        mine = self._tasks.get(task)
        if mine is None:
            mine = self._tasks[task] = _Mine(self._entered)
        return mine, ref(task)

    def put(self, held: Held) -> None:
        """Keep ``held``; those that are over are thrown away."""
        _put(self._here()[0].held, held)

    def drop(self, held: Held) -> None:
        """Keep ``held`` no longer."""
        _remove(self._here()[0].held, held)

    @property
    def last(self) -> Held | None:
        """What was put here last and is still held by this process, or None."""
        kept = self._here()[0].held
        mine = [held for held in kept if held.is_here and not held.is_let_go]
        return mine[-1] if mine else None

    def enter(self, held: Held, block: Block | None = None) -> None:
        """Keep ``held`` for the block that this thread or task enters."""
        mine, who = self._here()
        _put(mine.held, held)
        mine.entered.append(Entered(who, held, block))

    @property
    def innermost(self) -> Entered | None:
        """The block that was entered last here, else anywhere; or None."""
        mine, who = self._here()
        entered = mine.entered[:]
        for entry in reversed(entered):
            if entry.by == who:
                return entry
        return entered[-1] if entered else None

    def leave(self, held: Held) -> None:
        """Keep ``held`` no longer, nor for the block that it was entered with."""
        mine = self._here()[0]
        for entry in mine.entered[:]:
            if entry.held is held:
                _remove(mine.entered, entry)
        _remove(mine.held, held)


def _put(kept: list[Held], held: Held) -> None:
    for earlier in kept[:]:
        if earlier.is_let_go or earlier.lost:
            _remove(kept, earlier)
    kept.append(held)


def _remove(kept: list[Any], one: object) -> None:
    try:
        kept.remove(one)
    except ValueError:
        # By another thread, meanwhile.
        return
