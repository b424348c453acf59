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
    from .decorators import locked, redis_lock
    from .key_template import KeyTemplate
    from .locks import inspector, lock, rwlock, semaphore

__all__ = [
    "KeyTemplate",
    "LockBusy",
    "LockDeadlock",
    "LockError",
    "LockLost",
    "LockUnavailable",
    "LockUnsupported",
    "StaleFence",
    "inspector",
    "lock",
    "locked",
    "redis_lock",
    "rwlock",
    "semaphore",
]

# Imported when first asked for, so that the core can be used without Django, and pytest can load
# the plugin where nobody uses locks.
# The rest is in core.errors.
_MODULE_OF = {
    "KeyTemplate": "key_template",
    **dict.fromkeys(("locked", "redis_lock"), "decorators"),
    **dict.fromkeys(("inspector", "lock", "rwlock", "semaphore"), "locks"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULE_OF.get(name, 'core.errors')}")
    value = getattr(module, name)
    globals()[name] = value
    return value
