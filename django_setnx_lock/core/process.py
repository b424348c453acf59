"""What a process keeps for itself begins anew in one that was forked from it.

uWSGI forks in C, which calls no hook of Python's. So whoever uses such a state first has it noticed
that this is another process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

_pid = os.getpid()
# The process that begins anew just now.
_beginning: int | None = None
_begin_anew: list[Callable[[], object]] = []
# By process: a lock of the parent may be held by a thread that did not come along.
_locks: dict[int, Any] = {}


def after_fork(begin_anew: Callable[[], object]) -> None:
    """Have ``begin_anew`` called, in the order of these calls, in each process that is forked."""
    _begin_anew.append(begin_anew)


def notice_fork() -> None:
    """Begin anew if this process was forked from the one that was here before."""
    global _pid, _beginning
    pid = os.getpid()
    if pid == _pid:
        return
    with _locks.setdefault(pid, threading.RLock()):
        if pid in (_pid, _beginning):
            return
        _beginning = pid
        try:
            for begin_anew in _begin_anew:
                begin_anew()
            _pid = pid
        finally:
            _beginning = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=notice_fork)
