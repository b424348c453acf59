"""redis-py's lock beside ours, for the tests that compare them."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import pytest
import redis.lock

from django_setnx_lock.core import RedisLock

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

NAME = "lock:a"
_Test = TypeVar("_Test")


class Handle(Protocol):
    """What a ``with`` block gives, in both."""

    @property
    def name(self) -> str: ...
    def owned(self) -> bool: ...
    def locked(self) -> bool: ...
    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool: ...
    def reacquire(self) -> bool: ...
    def release(self) -> None: ...


class Lock(Handle, Protocol):
    """What both locks are."""

    sleep: float
    blocking: bool
    thread_local: bool
    raise_on_release_error: bool

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | None = None,
    ) -> bool: ...
    def __enter__(self) -> Handle: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


THEIRS: Callable[..., Lock] = redis.lock.Lock
OURS: Callable[..., Lock] = RedisLock
# Runs a test on each of them; ``library(client, name, ...)`` makes a lock.
both = pytest.mark.parametrize("library", [THEIRS, OURS], ids=["redis-py", "ours"])
# redis-py before 5.3 has no raise_on_release_error.
can_log_a_failed_release = pytest.mark.skipif(
    "raise_on_release_error" not in inspect.signature(redis.lock.Lock).parameters,
    reason="this redis-py always raises",
)


_PAGE = Path(__file__).parents[2] / "docs" / "comparison.md"
_SHOWN: set[str] = set()


def differs(title: str) -> Callable[[_Test], _Test]:
    """Mark a test as the one that shows the difference that the docs list under ``title``."""

    def note(test: _Test) -> _Test:
        _SHOWN.add(title)
        return test

    return note


def shown_differences() -> set[str]:
    """Return the titles of the differences that tests, imported so far, show."""
    return set(_SHOWN)


def listed_differences() -> list[str]:
    """Return the titles of the differences that the docs list."""
    listed = _PAGE.read_text().partition("### What differs")[2].partition("\n## ")[0]
    titles = re.findall(r"^\| ([^|]+) \|", listed, re.MULTILINE)
    return [title for title in titles if title.strip("-")]
