"""Print which behaviours hold for which kinds: ``python -m tests.contract``.

``b``: by the blocking methods; ``a``: in asyncio.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django
from django.conf import settings

from tests.support.kinds import ALL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.rows import Row


def behaviours() -> Iterator[tuple[str, str, Row]]:
    """Yield each behaviour: its file, its name, and where it holds."""
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        module: Any = importlib.import_module(f"tests.contract.{file.stem}")
        for name, found in inspect.getmembers(module, inspect.iscoroutinefunction):
            row: Row | None = getattr(found, "row", None)
            if row is not None:
                yield file.stem, name, row


def cell(kind: Any, row: Row) -> str:
    if kind not in row.kinds:
        return ""
    return "".join(sorted((one[0] for one in row.drivers_of(kind)), reverse=True))


def table() -> str:
    """Return behaviours by kinds, one line each."""
    width = 92
    heads = "  ".join(f"{kind.name[:9]:9}" for kind in ALL)
    lines, room = [f"{'':{width}}{heads}"], ""
    for file, name, row in behaviours():
        if file != room:
            room = file
            lines.append(f"\n{file.removeprefix('test_').replace('_', ' ').upper()}")
        said = name.removeprefix("test_").replace("_", " ")
        cells = "  ".join(f"{cell(kind, row):9}" for kind in ALL)
        lines.append(f"{said[: width - 2]:{width}}{cells}".rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    if not settings.configured:
        import os

        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
        django.setup()
    sys.stdout.write(f"{table()}\n")
