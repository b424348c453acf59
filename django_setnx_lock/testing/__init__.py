"""What tests of code that takes locks need: no Redis, no second process, no sleep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .helpers import LockTester, LockTestMixin

__all__ = ["LockTestMixin", "LockTester"]


def __getattr__(name: str) -> Any:
    # Late, as pytest imports this in every project where the package is installed.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import helpers

    return getattr(helpers, name)
