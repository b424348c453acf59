"""What with_lock tells on stderr: lines of text, or with ``--json`` one JSON object a line."""

from __future__ import annotations

import contextlib
import json
import os
from io import UnsupportedOperation
from typing import Any, Final

from .terminal import unstoppable

#: Events of ``--json``; that of a message of no other kind is NOTE.
NOTE: Final = "note"
WAITING: Final = "waiting"
TAKEN: Final = "taken"
KEPT: Final = "kept"
LOST: Final = "lost"
ENDED: Final = "ended"
ERROR: Final = "error"

# Told as text with `-v 2` and more only.
_QUIET = frozenset({TAKEN, KEPT, ENDED})


class Messages:
    """Writes to ``stream``, a stderr, one line at a time. No message carries a token."""

    def __init__(self, stream: Any, *, as_json: bool = False, verbosity: int = 1) -> None:
        self._stream = stream
        self._as_json = as_json
        self._is_verbose = verbosity > 1

    def say(self, message: str, event: str = NOTE, **facts: object) -> None:
        """Tell ``message``; ``facts`` are the further members of its JSON object."""
        if self._as_json:
            self._write(json.dumps({"event": event, **facts, "message": message}))
        elif self._is_verbose or event not in _QUIET:
            self._write(f"with_lock: {_harmless(message)}")

    def _write(self, line: str) -> None:
        text = f"{line}\n"
        # A stderr that is closed or broken (None, if it never was open) must not stop the work.
        with unstoppable(), contextlib.suppress(OSError, ValueError, AttributeError):
            try:
                descriptor = self._stream.fileno()
            except UnsupportedOperation:
                self._stream.write(text, str)
            else:
                # Past Python's buffer: what a broken pipe leaves there makes the status 120.
                os.write(descriptor, text.encode(errors="backslashreplace"))


def _harmless(message: str) -> str:
    """One line, without what could play tricks on a terminal."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in message
    )
