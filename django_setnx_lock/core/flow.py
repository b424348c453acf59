"""Who is at work here: the flow of execution that takes a lock and may take it again."""

from __future__ import annotations

import asyncio
import os
import threading
from asyncio import _get_running_loop
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, ref

if TYPE_CHECKING:
    from .grant import Grant

_P = ParamSpec("_P")
_R = TypeVar("_R")
_FEW = 64


class Flow:
    """One asyncio task, or one thread where no event loop runs: a live object, never an id.

    ``holds``: what it holds, by name in Redis, of all servers; what was thrown away without being
    released is still in there, and is swept out when there are more names than ``sweep_at``.
    """

    __slots__ = ("__weakref__", "_task", "_thread", "holds", "sweep_at")

    def __init__(
        self, thread: threading.Thread | None = None, task: asyncio.Task[Any] | None = None
    ) -> None:
        self.holds: dict[str, list[ref[Grant]]] = {}
        self.sweep_at = _FEW
        self._thread = thread
        self._task = None if task is None else ref(task)

    @property
    def is_over(self) -> bool:
        """Whether its thread or task has ended."""
        if self._thread is not None:
            return not self._thread.is_alive()
        task = self._task() if self._task is not None else None
        return task is None or task.done()

    def sweep(self) -> None:
        """Forget what was thrown away."""
        for name, noted in list(self.holds.items()):
            if all(one() is None for one in noted):
                self.holds.pop(name, None)
        self.sweep_at = 2 * len(self.holds) + _FEW


class _Here(threading.local):
    def __init__(self) -> None:
        self.flow = Flow(thread=threading.current_thread())


_here = _Here()
_tasks: WeakKeyDictionary[asyncio.Task[Any], Flow] = WeakKeyDictionary()


def current() -> Flow:
    """The flow of the caller.

    A callback of an event loop belongs to none, and so is given a new one each time.
    """
    loop = _get_running_loop()
    if loop is None:
        return _here.flow
    task = asyncio.current_task(loop)
    if task is None:
        return Flow()
    found = _tasks.get(task)
    if found is None:
        found = _tasks[task] = Flow(task=task)
    return found


def carried(flow: Flow, func: Callable[_P, _R]) -> Callable[_P, _R]:
    """``func``, which belongs to ``flow`` in whatever thread it is called."""

    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        before = _here.flow
        try:
            _here.flow = flow
            return func(*args, **kwargs)
        finally:
            _here.flow = before

    return run


def adopt(flow: Flow) -> None:
    """Have the running task, but none that it creates, belong to ``flow``."""
    task = asyncio.current_task()
    if task is not None:
        _tasks[task] = flow


def _after_fork_in_child() -> None:
    global _here, _tasks
    _here = _Here()
    _tasks = WeakKeyDictionary()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
