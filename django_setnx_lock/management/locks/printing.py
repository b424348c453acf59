"""Text for a terminal: tables as wide as it, and writing that loses nothing."""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import UnsupportedOperation

from django.core.management.base import CommandError, OutputWrapper

from django_setnx_lock.management import statuses
from django_setnx_lock.management.wording import printable

_GAP = "  "
# A column is no wider for cells that are longer.
_WIDEST = 60
# By what Unicode says of letters: those that stand above others or are not seen, the wide ones.
_TAKE_NO_PLACE = frozenset({"Mn", "Me", "Cf"})
_TAKE_TWO = frozenset({"W", "F"})


@dataclass(frozen=True, slots=True)
class Paper:
    """Cuts and escapes text, so that it fits where it is printed.

    ``columns``: how many there are (None: any number). ``encoding``: of the letters it can show.
    """

    columns: int | None = None
    encoding: str = "utf-8"

    @classmethod
    def of(cls, stream: OutputWrapper) -> Paper:
        """Return the paper of ``stream``: as wide as its terminal, or as COLUMNS says."""
        encoding = getattr(stream, "encoding", None) or cls().encoding
        given = os.environ.get("COLUMNS", "")
        if stream.isatty() or (given.isdecimal() and int(given)):
            return cls(shutil.get_terminal_size().columns, encoding)
        return cls(None, encoding)

    def escaped(self, text: str) -> str:
        """Return ``text`` with what plays tricks, or is not in the encoding, escaped."""
        if text.isascii() and text.isprintable():
            return text
        return printable(text).encode(self.encoding, "backslashreplace").decode(self.encoding)

    @property
    def ellipsis(self) -> str:
        """What stands where text was cut."""
        return "…" if self.escaped("…") == "…" else "..."

    def cut(self, text: str, columns: int | None) -> str:
        """Return ``text`` in so many ``columns`` (None: any), with an ellipsis if it was longer."""
        if columns is None or width(text) <= columns:
            return text
        left = columns - len(self.ellipsis)
        if left < 0:
            return self.ellipsis[:columns]
        for end, letter in enumerate(text):
            left -= width(letter)
            if left < 0:
                return text[:end] + self.ellipsis
        return text


PLAIN = Paper()


def width(text: str) -> int:
    """Return how many columns of a terminal ``text`` takes, which is one line."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.category(letter) in _TAKE_NO_PLACE
        else 1 + (unicodedata.east_asian_width(letter) in _TAKE_TWO)
        for letter in text
    )


def table(rows: Sequence[Sequence[str]], paper: Paper = PLAIN) -> list[str]:
    """Return ``rows``, of which the first has heads, as lines that ``paper`` has room for."""
    return [line for lines in tables([rows], paper) for line in lines]


def tables(batches: Iterable[Sequence[Sequence[str]]], paper: Paper = PLAIN) -> Iterator[list[str]]:
    """Yield the lines of one :func:`table`, of which the rows come in ``batches``.

    The first batch has the heads, and decides how wide the columns are.
    """
    widths: list[int] = []
    for rows in batches:
        cells = [list(map(paper.escaped, row)) for row in rows]
        widths = widths or [
            max(min(width(cell), _WIDEST) for cell in column) for column in zip(*cells, strict=True)
        ]
        yield [paper.cut(_line(row, widths).rstrip(), paper.columns) for row in cells]


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return _GAP.join(
        cell + " " * (room - width(cell)) for cell, room in zip(row, widths, strict=True)
    )


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
