"""Counts what ``with lock("k"): pass`` makes Python do: a figure that a busy machine does not move.

``python -m bench.calls [--list]``. For each way to take a lock: the calls of this package's
functions, in how many of its files they are, and the opcodes of everything, redis-py included.
Default settings, no transaction open, a spare connection and the scripts at hand; a private server.
``--list`` names the functions by file.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django

import django_setnx_lock
from bench.address import private_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    Use = Callable[[], object]
    Calls = Counter[tuple[str, str]]

PACKAGE = Path(django_setnx_lock.__file__).resolve().parent
WARM_UP = 20
LEASE = 30


def ways() -> dict[str, Use]:
    """Return each way to take and release a lock, by its name."""
    from django_redis import get_redis_connection  # noqa: TID251 - as a project has its client

    from django_setnx_lock import core, lock  # the settings need the server

    client = get_redis_connection("default")
    # What the settings of a project say by default.
    options: dict[str, Any] = {"renew": True, "reentrant": True, "index": "{lock:}:index"}

    def with_lock() -> None:
        with lock("k"):
            pass

    def with_redis_lock() -> None:
        with core.RedisLock(client, "lock:c", LEASE, **options):
            pass

    def with_redis_py() -> None:
        with client.lock("lock:r", timeout=LEASE):
            pass

    return {"lock()": with_lock, "RedisLock": with_redis_lock, "redis-py's lock": with_redis_py}


def calls_of_ours(use: Use) -> Calls:
    """Return how often each function of this package is called, by file and name."""
    found: Calls = Counter()

    def note(frame: FrameType, event: str, arg: object) -> None:
        file = Path(frame.f_code.co_filename)
        # A coroutine that goes on counts as a call, as does one that begins.
        if event == "call" and file.is_relative_to(PACKAGE):
            found[str(file.relative_to(PACKAGE)), frame.f_code.co_name] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        use()
    finally:
        sys.setprofile(before)
    return found


def opcodes(use: Use) -> int:
    """Return how many opcodes Python runs, whoever's they are, without those of a collection."""
    count = 0

    def note(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return note

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(note)
    try:
        use()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count


def row(name: str, found: Calls, count: int) -> str:
    """Return the line of one way in the table."""
    files = len({file for file, _ in found})
    return f"{name:24}{found.total():5} calls of ours in {files:2} files{count:7,} opcodes\n"


def main() -> None:
    """Print the figures."""
    version = ".".join(map(str, sys.version_info[:3]))
    sys.stdout.write(f"Python {version}\n")
    with private_server(None, tcp=False):
        django.setup()
        for name, use in ways().items():
            for _ in range(WARM_UP):
                use()
            found = calls_of_ours(use)
            sys.stdout.write(row(name, found, opcodes(use)))
            if "--list" in sys.argv:
                for (file, function), times in sorted(found.items()):
                    sys.stdout.write(f"{times:8} {file}: {function}\n")


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
    main()
