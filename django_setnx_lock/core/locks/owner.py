"""The owner of a lock: what took it, and so may take it again.

That is an asyncio task, else a greenlet, else a thread.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from asyncio import _get_running_loop
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary, ref

from ..process import after_fork, notice_fork

_FEW = 64
_CORE = __name__.rpartition(".locks.")[0]
_modules = sys.modules


class ThreadOrGreenlet:
    """The thread or greenlet that makes one, as a live object, never an id.

    gevent and eventlet may replace what the module ``threading`` has at any time, so greenlets are
    looked for where they are, and nothing is kept by thread.
    """

    __slots__ = ("_greenlet", "_is_within_thread", "_thread")

    def __init__(self) -> None:
        self._thread = threading.current_thread()
        getcurrent = getattr(_modules.get("greenlet"), "getcurrent", None)
        me = None if getcurrent is None else getcurrent()
        self._greenlet: ref[Any] | None = None if me is None else ref(me)
        # Each thread has a greenlet that is itself.
        self._is_within_thread = me is not None and me.parent is not None

    def is_running(self) -> bool:
        """Whether it is the one that asks."""
        getcurrent = getattr(_modules.get("greenlet"), "getcurrent", None)
        if getcurrent is None:
            return self._thread is threading.current_thread()
        if self._greenlet is not None:
            return self._greenlet() is getcurrent()
        return getcurrent().parent is None and self._thread is threading.current_thread()

    @property
    def has_ended(self) -> bool:
        """Whether it runs no longer."""
        if self._is_within_thread and self._greenlet is not None:
            me = self._greenlet()
            return me is None or me.dead
        # The main thread counts as ended while it runs what is registered with atexit.
        thread = self._thread
        return not thread.is_alive() and thread is not threading.main_thread()


class Owner:
    """An asyncio task or, where no event loop runs, a thread or a greenlet.

    ``holds``: its grants, by name in Redis, of all servers; what was thrown away without being
    released is still in there, and is swept out when there are more names than ``sweep_at``.
    """

    __slots__ = ("__weakref__", "_task", "holds", "strand", "sweep_at")

    def __init__(
        self,
        strand: ThreadOrGreenlet | None = None,
        task: asyncio.Task[Any] | None = None,
    ) -> None:
        self.holds: dict[str, list[ref[Any]]] = {}
        self.sweep_at = _FEW
        self.strand = strand
        self._task = None if task is None else ref(task)

    @property
    def has_ended(self) -> bool:
        """Whether its task, thread or greenlet has ended, or it never had any."""
        if self.strand is not None:
            return self.strand.has_ended
        task = self._task() if self._task is not None else None
        return task is None or task.done()

    def sweep(self) -> None:
        """Forget what was thrown away."""
        for name, noted in list(self.holds.items()):
            if all(one() is None for one in noted):
                self.holds.pop(name, None)
        self.sweep_at = 2 * len(self.holds) + _FEW


# A context is copied, to other threads too: what is found in one says itself whose it is. As each
# call of asyncio.to_thread() has a copy, it is an owner of its own.
_found: ContextVar[Owner | None] = ContextVar("setnx_lock_owner", default=None)
_tasks: WeakKeyDictionary[asyncio.Task[Any], Owner] = WeakKeyDictionary()


def current() -> Owner:
    """Return the owner of the caller.

    A callback of an event loop belongs to no task, and gets a new owner each time.
    """
    notice_fork()
    loop = _get_running_loop()
    if loop is None:
        owner = _found.get()
        if owner is None or owner.strand is None or not owner.strand.is_running():
            owner = Owner(ThreadOrGreenlet())
            _found.set(owner)
        return owner
    task = asyncio.current_task(loop)
    if task is None:
        return Owner()
    found = _tasks.get(task)
    if found is None:
        found = _tasks[task] = Owner(task=None if only_takes(task) else task)
    return found


def running_task() -> Owner | None:
    """Return the running task, even where it works for another owner, to see when it ends.

    None if it only takes the lock: who awaits it is to have it, whoever that is.
    """
    task = asyncio.current_task()
    return None if task is None or only_takes(task) else Owner(task=task)


def only_takes(task: asyncio.Task[Any]) -> bool:
    """Whether ``task`` does nothing but take a lock, and ends then.

    As one that ``create_task``, or before Python 3.12 ``wait_for``, was made with: who awaits it
    is to have the lock, whoever that is.
    """
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame is not None and str(frame.f_globals.get("__name__")).startswith(f"{_CORE}.")


def _after_fork_in_child() -> None:
    global _found, _tasks
    _found = ContextVar("setnx_lock_owner", default=None)
    _tasks = WeakKeyDictionary()


after_fork(_after_fork_in_child)
