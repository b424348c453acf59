"""One distributed lock for a Django team, taken with Redis SETNX through django-redis."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.errors import (
        LockBusy,
        LockError,
        LockLost,
        LockUnavailable,
        LockUnsupported,
        StaleFence,
    )
    from .core.keytemplate import KeyTemplate
    from .core.lock import RedisLock
    from .core.many.lock import MultiLock
    from .core.redlock import Redlock
    from .core.rwlock import RWLock
    from .decorators import redis_lock
    from .locks import lock, lock_all
    from .sharing import rwlock, semaphore

__all__ = [
    "KeyTemplate",
    "LockBusy",
    "LockError",
    "LockLost",
    "LockUnavailable",
    "LockUnsupported",
    "MultiLock",
    "RWLock",
    "RedisLock",
    "Redlock",
    "StaleFence",
    "lock",
    "lock_all",
    "redis_lock",
    "rwlock",
    "semaphore",
]

# Imported when first asked for, so that the core can be used without Django, and pytest can load
# the plugin where nobody uses locks.
_ERRORS = "core.errors"
_MODULES = {
    "KeyTemplate": "core.keytemplate",
    "LockBusy": _ERRORS,
    "LockError": _ERRORS,
    "LockLost": _ERRORS,
    "LockUnavailable": _ERRORS,
    "LockUnsupported": _ERRORS,
    "MultiLock": "core.many.lock",
    "RWLock": "core.rwlock",
    "RedisLock": "core.lock",
    "Redlock": "core.redlock",
    "StaleFence": _ERRORS,
    "lock": "locks",
    "lock_all": "locks",
    "redis_lock": "decorators",
    "rwlock": "sharing",
    "semaphore": "sharing",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
