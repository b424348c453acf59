"""Print tables, and write without losing anything."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
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
    return [line for lines in tables([rows]) for line in lines]


def tables(batches: Iterable[Sequence[Sequence[str]]]) -> Iterator[list[str]]:
    """Yield the lines of one :func:`table`, of which the rows come in ``batches``.

    The first batch has the heads, and decides how wide the columns are.
    """
    widths: list[int] = []
    for rows in batches:
        cells = [list(map(_escaped, row)) for row in rows]
        widths = widths or [
            max(min(len(cell), _WIDEST) for cell in column) for column in zip(*cells, strict=True)
        ]
        yield [_GAP.join(map(str.ljust, row, widths)).rstrip() for row in cells]


def _escaped(text: str) -> str:
    return text if text.isascii() and text.isprintable() else printable(text)


def pairs(found: Sequence[tuple[str, str]], indent: str = "") -> list[str]:
    """Return labels and what they are of, one a line."""
    return [f"{indent}{line}" for line in table([(f"{label}:", text) for label, text in found])]


def write(stream: OutputWrapper, text: str, end: str = "\n") -> None:
    """Write ``text`` and the ``end`` of a line, if it has none: all of it, in any encoding.

    Raises CommandError with status 74, and BrokenPipeError.
    """
    try:
        _write(stream, text, end)
    except BrokenPipeError:
        raise
    except OSError as error:
        message = f"the output cannot be written: {error.strerror}"
        raise CommandError(message, returncode=statuses.UNWRITTEN) from error


def _write(stream: OutputWrapper, text: str, end: str) -> None:
    try:
        stream.flush()
        descriptor = stream.fileno()
    except (AttributeError, UnsupportedOperation):
        # One that was closed before the program began (None in sys) takes everything.
        with suppress(AttributeError):
            stream.write(text, ending=end)
        return
    line = text if text.endswith(end) else f"{text}{end}"
    left = line.encode(stream.encoding, "backslashreplace")
    # Python itself tells nobody of a write that was cut short, where stdout has no buffer.
    while left:
        left = left[os.write(descriptor, left) :]


def say(stream: OutputWrapper, text: str) -> None:
    """Write ``text`` to ``stream``, a stderr; one that is closed or broken changes no status."""
    with suppress(OSError, ValueError, AttributeError):
        stream.write(f"locks: {printable(text)}", lambda plain: plain)
