"""What a process keeps, begun anew after a fork and where gevent or eventlet has patched late; and
who runs in it, and so owns locks: an asyncio task, else a greenlet, else a thread.

uWSGI forks in C, which calls no hook of Python's, so :func:`here` looks each time.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import threading
from asyncio import _get_running_loop
from contextvars import ContextVar
from functools import lru_cache
from os import getpid
from typing import Any
from weakref import WeakKeyDictionary, ref

from .holder import Holder


class Here:
    """What this process keeps, with the kind of locks and threads that it has now.

    ``sessions``: by redis-py's pool. ``local``: of each thread. ``owners``: of each task
    and greenlet. ``loops``: of each event loop. ``renewing``: what renews, and has a thread.
    """

    def __init__(self, pid: int, kind: object) -> None:
        self.pid = pid
        # A child has another, and so has a program with the same number later on.
        self.name = secrets.token_urlsafe(6)
        self.kind = kind
        self.sessions: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.local = threading.local()
        self.owners: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.loops: dict[Any, Any] = {}
        self.renewing: set[Any] = set()
        # For handlers of signals, too.
        self.mutex = threading.RLock()


# That of this process, and those before it: to throw them away would close connections of event
# loops, which in a child changes what the parent's loop waits for.
_all: dict[tuple[int, object], Here] = {}
_here = Here(getpid(), threading.Lock)


def here() -> Here:
    """Return what this process keeps."""
    found = _here
    if found.pid == getpid() and found.kind is threading.Lock:
        return found
    return _begin_anew()


def _begin_anew() -> Here:
    global _here
    before, now = _here, (getpid(), threading.Lock)
    # Of several threads that are first, all get the same one.
    _here = found = _all.setdefault(now, Here(*now))
    _all.setdefault((before.pid, before.kind), before)
    if before.pid != found.pid:
        # Those of threads can be closed here, without a word to the server.
        for session in list(before.sessions.values()):
            session.close_idle()
    return found


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=here)


@lru_cache(maxsize=1)
def _hostname() -> str:
    return socket.gethostname()


def holder_here(
    label: str = "",
    user: str = "",
    note: str = "",
    lease: float = 0.0,
    renewed: bool = False,
    max_hold: float = 0.0,
    says_alive: bool = False,
) -> Holder:
    """Return the record of the calling thread. ``says_alive``: whether it names its process."""
    return Holder(
        host=_hostname(),
        pid=os.getpid(),
        thread=threading.current_thread().name,
        label=label,
        user=user,
        note=note,
        lease=lease,
        renewed=renewed,
        max_hold=max_hold,
        process=here().name if says_alive else "",
    )


_PACKAGE = __name__.rpartition(".")[0]
_modules = sys.modules
# That of a thread, or of one whose context was copied, as asyncio.to_thread() does: so that each of
# its calls is an owner of its own.
_found: ContextVar[Owner | None] = ContextVar("setnx_lock_owner_of_next", default=None)


class Owner:
    """A task, greenlet or thread that is running or has ended; ``kind`` says which.

    ``kind`` is empty for nobody: a callback of an event loop, or a task that does nothing but take
    a lock, for whoever awaits it. ``thread``: the thread it runs in. ``holds``: for those who look
    up what an owner holds.
    """

    __slots__ = ("__weakref__", "_what", "holds", "kind", "thread")

    def __init__(self, kind: str = "", what: Any = None) -> None:
        self.kind = kind
        self.thread = threading.current_thread()
        self.holds: dict[Any, Any] = {}
        self._what = None if what is None else ref(what)

    @property
    def has_ended(self) -> bool:
        """Whether it runs no longer, or is nobody."""
        if self.kind == "thread":
            # The main thread counts as ended while it runs what is registered with atexit.
            return not self.thread.is_alive() and self.thread is not threading.main_thread()
        what = None if self._what is None else self._what()
        if what is None:
            return True
        return bool(what.done() if self.kind == "task" else what.dead)


def current(is_asyncio: bool) -> Owner:
    """Return the owner that calls; a new one each time for a callback of an event loop.

    ``is_asyncio``: whether a task is asked for; what blocks is a thread's, even in a loop. A thread
    is one owner in each context, and in the copies of one in which it has asked before. What it
    runs in another context is another owner: that looks like a job of a pool's thread, as of
    asyncio.to_thread(), and one job must not have the lock of the one before.
    """
    if is_asyncio:
        task = asyncio.current_task()
        return Owner() if task is None else _known("task", task)
    if "greenlet" in _modules:
        getcurrent = getattr(_modules["greenlet"], "getcurrent", None)
        # Each thread has a greenlet that is itself, and has no parent.
        if getcurrent is not None and getcurrent().parent is not None:
            return _known("greenlet", getcurrent())
    owner = _found.get()
    if owner is None or owner.thread is not threading.current_thread() or _get_running_loop():
        owner = _of_thread()
    return owner


def _of_thread() -> Owner:
    if _get_running_loop() is None:
        owner = Owner("thread")
        _found.set(owner)
        return owner
    # Where a loop may be blocked, as in a notebook, each cell is a task with a context of its own.
    local = here().local
    try:
        return local.owner  # type: ignore[no-any-return]  # a thread's attributes have no types
    except AttributeError:
        local.owner = owner = Owner("thread")
        return owner


def _known(kind: str, what: Any) -> Owner:
    owners = here().owners
    found: Owner | None = owners.get(what)
    if found is None:
        found = owners[what] = (
            Owner() if kind == "task" and _only_takes(what) else Owner(kind, what)
        )
    return found


def _only_takes(task: asyncio.Task[Any]) -> bool:
    """Return whether ``task`` was made of a coroutine of ours, as before 3.12 by wait_for()."""
    frame = getattr(task.get_coro(), "cr_frame", None)
    return frame is not None and str(frame.f_globals.get("__name__")).startswith(f"{_PACKAGE}.")
