"""Waiting for what announces itself by no event, always with a deadline."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def eventually(condition: Callable[[], T], seconds: float = 10) -> T:
    """Return the first true answer of ``condition``; fail the test if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"not true after {seconds} s, but {answer!r}")
        time.sleep(0.01)
    return answer


def is_running(pid: int) -> bool:
    """Say whether the process exists and is no zombie."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat")
        return not status.exists() or status.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return False
