"""The guards of a with_lock, found in /proc, and guards without one of their rules."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

# Tests show what each rule of the guards is for by leaving it out.
from django_setnx_lock.management.with_lock import guard


def outer_guard(with_lock: int) -> int:
    """Return the pid of the guard that with_lock has started; 0 if there is none."""
    return next(filter(_is_guard, children_of(with_lock)), 0)


def inner_guard(with_lock: int) -> int:
    """Return the pid of the guard that has started the command; 0 if there is none."""
    return outer_guard(outer_guard(with_lock))


def with_guard(folder: Path, *changes: tuple[str, str]) -> str:
    """Return what with_lock must run first so that its guards are those of a changed program."""
    text = Path(guard.__file__).read_text()
    for before, after in changes:
        assert text.count(before) == 1
        text = text.replace(before, after)
    changed = folder / "transactions.py"
    changed.write_text(text)
    return f"""
from importlib.util import module_from_spec, spec_from_file_location
from django_setnx_lock.management.with_lock import child
spec = spec_from_file_location("changed", {str(changed)!r})
child.guard = module_from_spec(spec)
spec.loader.exec_module(child.guard)
"""


def children_of(parent: int) -> list[int]:
    """Return the pids of the children."""
    found: list[str] = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        # A thread may end meanwhile.
        with suppress(FileNotFoundError, ProcessLookupError):
            found += task.joinpath("children").read_text().split()
    return list(map(int, found))


def _is_guard(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_bytes().strip() == guard.NAME
