"""The lock itself, written anew beside the core in use; tests take it with SETNX_CORE=next."""

from __future__ import annotations

from .connections import cluster, sentinel  # noqa: F401 - so that there are their sessions
from .inspection.inspector import Inspector
from .locks.layered import LockHandle, RedisLock, RWLock
from .locks.redlock import Redlock
from .locks.several import MultiLock, MultiLockHandle

__all__ = [
    "Inspector",
    "LockHandle",
    "MultiLock",
    "MultiLockHandle",
    "RWLock",
    "RedisLock",
    "Redlock",
]
