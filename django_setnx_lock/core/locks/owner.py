"""The owner of a lock: what took it, and so may take it again.

That is an asyncio task, else a greenlet, else a thread, or the job that it runs for a pool.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from asyncio import _get_running_loop
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from operator import attrgetter
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary, ref

if TYPE_CHECKING:
    # Tells the jobs of a pool's thread apart: a future, or numbers; empty between two jobs.
    Job: TypeAlias = ref[Any] | tuple[object, ...]

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
    """An asyncio task or, where no event loop runs, a thread, a greenlet or a job of a pool.

    ``holds``: its grants, by name in Redis, of all servers; what was thrown away without being
    released is still in there, and is swept out when there are more names than ``sweep_at``.
    """

    __slots__ = ("__weakref__", "_job", "_strand", "_task", "holds", "sweep_at")

    def __init__(
        self,
        strand: ThreadOrGreenlet | None = None,
        job: Job | None = None,
        task: asyncio.Task[Any] | None = None,
    ) -> None:
        self.holds: dict[str, list[ref[Any]]] = {}
        self.sweep_at = _FEW
        self._strand = strand
        self._job = job
        self._task = None if task is None else ref(task)

    @property
    def has_ended(self) -> bool:
        """Whether its task, thread, greenlet or job has ended, or it never had any."""
        if self._strand is not None:
            return self._strand.has_ended or (isinstance(self._job, ref) and _is_done(self._job))
        task = self._task() if self._task is not None else None
        return task is None or task.done()

    def sweep(self) -> None:
        """Forget what was thrown away."""
        for name, noted in list(self.holds.items()):
            if all(one() is None for one in noted):
                self.holds.pop(name, None)
        self.sweep_at = 2 * len(self.holds) + _FEW


class _Seat:
    """That ``strand``, while at ``job`` if that is not None, works for ``owner`` (None: no longer).

    A context is copied, to other threads too: so what is found in one says whose it is.
    """

    __slots__ = ("job", "owner", "strand")

    def __init__(
        self, owner: Owner | None, strand: ThreadOrGreenlet, job: Job | None = None
    ) -> None:
        self.owner = owner
        self.strand = strand
        self.job = job


_seat: ContextVar[_Seat | None] = ContextVar("setnx_lock_seat", default=None)
_tasks: WeakKeyDictionary[asyncio.Task[Any], Owner] = WeakKeyDictionary()


def current() -> Owner:
    """Return the owner of the caller.

    A callback of an event loop belongs to no task, and gets a new owner each time.
    """
    loop = _get_running_loop()
    if loop is None:
        seat = _seat.get()
        if seat is not None and seat.strand.is_running():
            owner = seat.owner
            if owner is not None and (seat.job is None or _is_at(seat.job)):
                return owner
        return _sit_down()
    task = asyncio.current_task(loop)
    if task is None:
        return Owner()
    found = _tasks.get(task)
    if found is None:
        found = _tasks[task] = Owner(task=None if only_takes(task) else task)
    return found


def _sit_down() -> Owner:
    strand, job = ThreadOrGreenlet(), _job()
    owner = Owner(strand, job)
    _seat.set(_Seat(owner, strand, job))
    return owner


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


# The function that each thread of a pool runs, and how its variables tell the job.
# All jobs of such a thread may have one context, and what a job holds is not the next one's.
_unseen: dict[tuple[str, str], Callable[[Mapping[str, Any]], Job]] = {
    ("concurrent.futures.thread", "_worker"): lambda within: (),
    ("concurrent.futures.thread", "_WorkItem.run"): lambda within: ref(within["self"].future),
    ("anyio._backends._asyncio", "WorkerThread.run"): lambda within: ref(within["future"]),
    ("multiprocessing.pool", "worker"): lambda within: (within["job"], within["i"]),
}
_of_pools: dict[int, tuple[CodeType, Callable[[Mapping[str, Any]], Job]]] = {}


def _see_pools() -> None:
    for (module, name), reader in list(_unseen.items()):
        if module in _modules:
            # It may be in the middle of its import.
            with suppress(AttributeError):
                code = attrgetter(name)(_modules[module]).__code__
                _of_pools[id(code)] = (code, reader)
                _unseen.pop((module, name), None)


def _job() -> Job | None:
    """Return the job of a pool's thread, equal for the same job only; None in other threads."""
    if _unseen:
        _see_pools()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found = _of_pools.get(id(frame.f_code))
        if found is not None:
            return _job_in(frame.f_locals, found[1])
        frame = frame.f_back
    return None


def _job_in(within: Mapping[str, Any], reader: Callable[[Mapping[str, Any]], Job]) -> Job:
    try:
        return reader(within)
    except (AttributeError, KeyError):
        # It is at none, as when it begins.
        return ()
    finally:
        if isinstance(within, dict):
            # A copy, before Python 3.13, that the frame keeps: it would keep the job alive.
            within.clear()


def _is_at(job: Job) -> bool:
    """Whether the thread is at ``job`` still, at which it was."""
    return (isinstance(job, ref) and not _is_done(job)) or job == _job()


def _is_done(job: ref[Any]) -> bool:
    future = job()
    return future is None or bool(future.done())


def _after_fork_in_child() -> None:
    global _seat, _tasks
    _seat = ContextVar("setnx_lock_seat", default=None)
    _tasks = WeakKeyDictionary()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
