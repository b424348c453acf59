"""What the commands say and write, fit for a terminal; none of it is lost on the way."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import UnsupportedOperation

from django.core.management.base import CommandError, OutputWrapper

from django_setnx_lock.core.holder import plain
from django_setnx_lock.management import statuses

_GAP = "  "
# A column is no wider for cells that are longer.
_WIDEST = 60


def printable(text: str) -> str:
    """Return all of ``text`` as :func:`plain` text: keys and notes are others' words."""
    return plain(text, longest=sys.maxsize)


def user_name() -> str:
    """Return the name of the user we run as, or the number of one that has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid {os.getuid()}"


def table(rows: Sequence[Sequence[str]], first: int = 0) -> list[str]:
    """Return ``rows``, of which the first has heads, as lines; of each from column ``first`` on."""
    cells = [list(map(_escaped, row[first:])) for row in rows]
    columns = zip(*cells, strict=True)
    widths = [max(min(len(cell), _WIDEST) for cell in column) for column in columns]
    return [_GAP.join(map(str.ljust, row, widths)).rstrip() for row in cells]


def _escaped(text: str) -> str:
    return text if text.isascii() and text.isprintable() else printable(text)


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


def say(stream: OutputWrapper, text: str, name: str = "locks") -> None:
    """Write ``text`` to ``stream``, a stderr, as the command ``name``.

    A stream that is closed or broken changes no status.
    """
    line = f"{name}: {printable(text)}\n"
    with suppress(OSError, ValueError, AttributeError):
        try:
            # Past Python's buffer: what a broken pipe leaves there makes the status 120.
            os.write(stream.fileno(), line.encode(errors="backslashreplace"))
        except UnsupportedOperation:
            stream.write(line, lambda plain: plain)
