"""Counts the Python calls of this package that ``with lock("k"): pass`` makes.

``python -m bench.calls [--list]``. Default settings, no transaction open, a spare connection and
the scripts at hand; a private server. ``--list`` names them by file.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import django

import django_setnx_lock
from bench.address import private_server

PACKAGE = Path(django_setnx_lock.__file__).resolve().parent
WARM_UP = 20


def count() -> Counter[tuple[str, str]]:
    """Return how often each function of ours is called, by file and name."""
    django.setup()
    from django_setnx_lock import lock  # the settings need the server

    for _ in range(WARM_UP):
        with lock("k"):
            pass
    found: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, arg: Any) -> None:
        file = Path(frame.f_code.co_filename)
        # A coroutine that goes on counts as a call, as does one that begins.
        if event == "call" and file.is_relative_to(PACKAGE):
            found[str(file.relative_to(PACKAGE)), frame.f_code.co_name] += 1

    sys.setprofile(note)
    try:
        with lock("k"):
            pass
    finally:
        sys.setprofile(None)
    return found


def main() -> None:
    """Print the figures."""
    with private_server(None, tcp=False):
        found = count()
    files = {file for file, _ in found}
    version = ".".join(map(str, sys.version_info[:3]))
    sys.stdout.write(f"Python {version}: {found.total()} calls in {len(files)} files\n")
    if "--list" in sys.argv:
        for (file, name), times in sorted(found.items()):
            sys.stdout.write(f"{times:4} {file}: {name}\n")


if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
    main()
