"""The guard of a with_lock, and all that came from it, found in /proc."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

#: A variable of the environment that tells what came from one with_lock.
MARK = "TEST_MARK"


def guard_of(with_lock: int) -> int:
    """Return the pid of the guard of a with_lock; 0 if there is none."""
    return next(filter(_is_guard, children_of(with_lock)), 0)


def marked(mark: str) -> list[int]:
    """Return the pids of what was started with ``mark`` as :data:`MARK` in its environment."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if f"{MARK}={mark}".encode() in entry.joinpath("environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def children_of(parent: int) -> list[int]:
    """Return the pids of the children."""
    found: list[str] = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        # A thread may end meanwhile.
        with suppress(FileNotFoundError, ProcessLookupError):
            found += task.joinpath("children").read_text().split()
    return list(map(int, found))


def _is_guard(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_bytes().strip() == b"with_lock-guard"
