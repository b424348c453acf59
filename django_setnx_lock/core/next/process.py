"""What a process keeps, begun anew after a fork and where gevent or eventlet has patched late.

uWSGI forks in C, which calls no hook of Python's, so :func:`here` looks each time.
"""

from __future__ import annotations

import os
import threading
from os import getpid
from typing import Any
from weakref import WeakKeyDictionary


class Here:
    """What this process keeps, with the kind of locks and threads that it has now.

    ``sessions``: by redis-py's pool. ``local``: of each thread. ``owners``: of each task
    and greenlet. ``loops``: of each event loop.
    """

    def __init__(self, pid: int, kind: object) -> None:
        self.pid = pid
        self.kind = kind
        self.sessions: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.local = threading.local()
        self.owners: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self.loops: dict[Any, Any] = {}
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
            session.idle.clear()
            session.listening.clear()
    return found


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=here)
