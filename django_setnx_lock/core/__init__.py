"""The lock itself, on redis-py alone: usable without Django."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .holder import Holder
    from .inspection.inspector import Inspector
    from .lock_info import LockInfo, LockPage, Outcome, State, WaiterInfo
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

# Imported when first asked for: the modules below import this package first.
_MODULE_OF = {
    "Holder": "holder",
    **dict.fromkeys(("LockHandle", "RWLock", "RedisLock"), "locks.layered"),
    **dict.fromkeys(("MultiLock", "MultiLockHandle"), "locks.several"),
    "Redlock": "locks.redlock",
    "StopRequest": "protocol.replies",
    "Inspector": "inspection.inspector",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF.get(name, 'lock_info')}"), name)
    globals()[name] = value
    return value
