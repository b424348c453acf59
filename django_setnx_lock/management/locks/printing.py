"""Print tables, and write without losing anything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from io import UnsupportedOperation

from django.core.management.base import CommandError, OutputWrapper

from django_setnx_lock.management import statuses
from django_setnx_lock.management.wording import printable

_GAP = "  "
# A column is no wider for cells that are longer.
_WIDEST = 60


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return ``rows``, of which the first has heads, as lines."""
    cells = [list(map(_escaped, row)) for row in rows]
    columns = zip(*cells, strict=True)
    widths = [max(min(len(cell), _WIDEST) for cell in column) for column in columns]
    return [_GAP.join(map(str.ljust, row, widths)).rstrip() for row in cells]


def cache_table(head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Return ``rows`` below ``head``, each with its cache alias if there are several."""
    is_named = len({alias for alias, _row in rows}) > 1
    found = [("CACHE", head), *rows]
    return table([[*([alias] if is_named else []), *row] for alias, row in found])


def _escaped(text: str) -> str:
    return text if text.isascii() and text.isprintable() else printable(text)


def pairs(found: Sequence[tuple[str, str]], indent: str = "") -> list[str]:
    """Return labels and what they are of, one a line."""
    return [f"{indent}{line}" for line in table([(f"{label}:", text) for label, text in found])]


def write(stream: OutputWrapper, text: str) -> None:
    """Write ``text`` and the end of a line, if it has none: all of it, in any encoding.

    Raises CommandError with status 74, and BrokenPipeError.
    """
    try:
        _write(stream, text)
    except BrokenPipeError:
        raise
    except OSError as error:
        message = f"the output cannot be written: {error.strerror}"
        raise CommandError(message, returncode=statuses.UNWRITTEN) from error


def _write(stream: OutputWrapper, text: str) -> None:
    try:
        stream.flush()
        descriptor = stream.fileno()
    except (AttributeError, UnsupportedOperation):
        # One that was closed before the program began (None in sys) takes everything.
        with suppress(AttributeError):
            stream.write(text)
        return
    line = text if text.endswith("\n") else f"{text}\n"
    left = line.encode(stream.encoding, "backslashreplace")
    # Python itself tells nobody of a write that was cut short, where stdout has no buffer.
    while left:
        left = left[os.write(descriptor, left) :]


def say(stream: OutputWrapper, text: str) -> None:
    """Write ``text`` to ``stream``, a stderr; one that is closed or broken changes no status."""
    with suppress(OSError, ValueError, AttributeError):
        stream.write(f"locks: {printable(text)}", lambda plain: plain)
