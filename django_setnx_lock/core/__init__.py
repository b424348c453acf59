"""The lock itself, on redis-py alone: usable without Django."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .holder import Holder
    from .inspection import Inspector
    from .lock_info import LockInfo, LockPage, Outcome, ShareInfo, State, WaiterInfo
    from .locks.handle import LockHandle
    from .locks.lock import RedisLock, RWLock
    from .locks.multi_handle import MultiLockHandle
    from .locks.multi_lock import MultiLock
    from .locks.redlock import Redlock
    from .stop_request import StopRequest

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
    "ShareInfo",
    "State",
    "StopRequest",
    "WaiterInfo",
]

# Imported when first asked for: the modules below import this package first.
_MODULE_OF = {
    "Holder": "holder",
    "LockHandle": "locks.handle",
    **dict.fromkeys(("RWLock", "RedisLock"), "locks.lock"),
    "MultiLock": "locks.multi_lock",
    "MultiLockHandle": "locks.multi_handle",
    "Redlock": "locks.redlock",
    "StopRequest": "stop_request",
    "Inspector": "inspection",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF.get(name, 'lock_info')}"), name)
    globals()[name] = value
    return value
