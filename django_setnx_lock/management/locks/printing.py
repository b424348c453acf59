"""Text for a terminal: tables as wide as it, and writing that loses nothing."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import UnsupportedOperation

from django.core.management.base import CommandError, OutputWrapper

from django_setnx_lock.management import statuses
from django_setnx_lock.management.wording import printable

_GAP = "  "
# A column that is cut has so much left; one that is not is no wider for cells that are longer.
_LEAST, _WIDEST = 12, 60
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
        if text.isascii():
            return text[:left] + self.ellipsis
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


def table(
    rows: Sequence[Sequence[str]],
    paper: Paper = PLAIN,
    *,
    cut: Collection[str] = (),
    spare: Sequence[str] = (),
) -> list[str]:
    """Return ``rows``, of which the first has heads, as lines that ``paper`` has room for.

    Columns with a head in ``cut`` are cut short if need be; if that is not enough, those in
    ``spare`` are left out, the first of them first.
    """
    return [line for lines in tables([rows], paper, cut=cut, spare=spare) for line in lines]


def tables(
    batches: Iterable[Sequence[Sequence[str]]],
    paper: Paper = PLAIN,
    *,
    cut: Collection[str] = (),
    spare: Sequence[str] = (),
) -> Iterator[list[str]]:
    """Yield the lines of one :func:`table`, of which the rows come in ``batches``.

    The first batch has the heads, and decides how wide the columns are.
    """
    widths: dict[int, int] = {}
    for rows in batches:
        if not widths:
            cells = [list(map(paper.escaped, row)) for row in rows]
            widths = _fitted(cells, paper, cut, spare)
            cuts = {n: room for n, room in widths.items() if paper.columns and cells[0][n] in cut}
            form = _GAP.join(f"{{{number}:<{room}}}" for number, room in widths.items())
        lines = []
        for row in rows:
            text = "".join(row)
            # Most are: then there is nothing to escape, and each letter takes one column.
            is_plain = text.isascii() and text.isprintable()
            shown = list(row if is_plain else map(paper.escaped, row))
            for number, room in cuts.items():
                shown[number] = paper.cut(shown[number], room)
            if is_plain:
                line = form.format(*shown)
            else:
                padded = (shown[n] + " " * (room - width(shown[n])) for n, room in widths.items())
                line = _GAP.join(padded)
            line = line.rstrip()
            if not is_plain or len(line) > (paper.columns or sys.maxsize):
                line = paper.cut(line, paper.columns)
            lines.append(line)
        yield lines


def _fitted(
    cells: Sequence[Sequence[str]], paper: Paper, cut: Collection[str], spare: Sequence[str]
) -> dict[int, int]:
    """Return how wide the columns are that there is room for, by their numbers."""
    columns = zip(*cells, strict=True)
    widths = {number: _width_of(column, paper.columns) for number, column in enumerate(columns)}
    if paper.columns is None:
        return widths
    while True:
        fitted = dict(widths)
        excess = sum(fitted.values()) + len(_GAP) * (len(fitted) - 1) - paper.columns
        may_be_cut = [number for number in fitted if cells[0][number] in cut]
        while excess > 0 and (wide := [n for n in may_be_cut if fitted[n] > _LEAST]):
            fitted[max(wide, key=fitted.__getitem__)] -= 1
            excess -= 1
        if excess <= 0 or not spare:
            return fitted
        widths = {number: room for number, room in widths.items() if cells[0][number] != spare[0]}
        spare = spare[1:]


def _width_of(column: Sequence[str], most: int | None) -> int:
    widths = [width(cell) for cell in column]
    if most is not None:
        return min(max(widths), most)
    # Where lines may have any length, a few long cells make no column wider.
    return max((one for one in widths if one <= _WIDEST), default=_WIDEST)


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
