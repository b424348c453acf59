"""The lock itself, on redis-py alone: usable without Django."""

from __future__ import annotations

from .holder import Holder
from .inspection.inspector import Inspector
from .inspection.lock_info import LockInfo, LockPage, Outcome, State, WaiterInfo
from .locks.layered import LockHandle, RedisLock, RWLock
from .locks.redlock import Redlock
from .locks.several import MultiLock, MultiLockHandle
from .protocol.replies import StopRequest

__all__ = [
    "Holder",
    "Inspector",
    "LockHandle",
    "LockInfo",
    "LockPage",
    "MultiLock",
    "MultiLockHandle",
    "Outcome",
    "RWLock",
    "RedisLock",
    "Redlock",
    "State",
    "StopRequest",
    "WaiterInfo",
]
