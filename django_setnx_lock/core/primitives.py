"""What a fork leaves behind, and what gevent and eventlet replace, perhaps after the import."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

# Of mypy: the type of a reentrant lock has no public name before Python 3.13.
_RLock = Any


def kind() -> tuple[object, ...]:
    """What locks and sockets are of that are made now: none of another kind is of use any more."""
    return os.getpid(), threading.Lock, socket.socket


class Guard:
    """A reentrant lock for a module, of the kind that is of use now."""

    def __init__(self) -> None:
        self._locks: dict[tuple[object, ...], _RLock] = {}

    def now(self) -> _RLock:
        """The lock."""
        wanted = kind()
        lock = self._locks.get(wanted)
        # Of several threads that come first, all get the same one.
        return lock or self._locks.setdefault(wanted, threading.RLock())
