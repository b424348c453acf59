"""One distributed lock for a Django team, taken with Redis SETNX through django-redis."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.errors import (
        LockBusy,
        LockDeadlock,
        LockError,
        LockLost,
        LockUnavailable,
        LockUnsupported,
        StaleFence,
    )
    from .core.locks.lock import RedisLock, RWLock
    from .core.locks.multi_lock import MultiLock
    from .core.locks.redlock import Redlock
    from .decorators import redis_lock
    from .key_template import KeyTemplate
    from .locks import lock, lock_all, rwlock, semaphore

__all__ = [
    "KeyTemplate",
    "LockBusy",
    "LockDeadlock",
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
# The rest is in core.errors.
_MODULE_OF = {
    **dict.fromkeys(("RWLock", "RedisLock"), "core.locks.lock"),
    "MultiLock": "core.locks.multi_lock",
    "Redlock": "core.locks.redlock",
    "redis_lock": "decorators",
    "KeyTemplate": "key_template",
    **dict.fromkeys(("lock", "lock_all", "rwlock", "semaphore"), "locks"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULE_OF.get(name, 'core.errors')}")
    value = getattr(module, name)
    globals()[name] = value
    return value
