"""What tests of code that takes locks need: no Redis, no second process, no sleep."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .guard import real_redis
    from .helpers import LockTester, LockTestMixin
    from .runner import LockTestRunner

__all__ = ["LockTestMixin", "LockTestRunner", "LockTester", "real_redis"]
_ELSEWHERE = {"LockTestRunner": "runner", "real_redis": "guard"}


def __getattr__(name: str) -> Any:
    # Late, as pytest imports this in every project where the package is installed.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_ELSEWHERE.get(name, 'helpers')}", __name__), name)
