"""The lock itself, written anew beside the core in use; tests take it with SETNX_CORE=next."""

from __future__ import annotations

from .locks.layered import LockHandle, RedisLock, RWLock
from .locks.several import MultiLock, MultiLockHandle

__all__ = ["LockHandle", "MultiLock", "MultiLockHandle", "RWLock", "RedisLock"]
