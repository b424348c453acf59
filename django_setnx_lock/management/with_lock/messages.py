"""What with_lock tells on stderr: lines of text, or with ``--json`` one JSON object a line."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from io import UnsupportedOperation
from typing import Any, Literal

from django_setnx_lock.management.wording import printable

# Of ``--json``. One of no other kind is a note; busy is an error, too, and told as such.
Event = Literal["note", "waiting", "taken", "kept", "asked", "lost", "ended", "error", "busy"]
# Not told to one who does not want to hear that somebody else has the lock.
_OF_BUSY = frozenset({"waiting", "busy"})
# Told as text with `-v 2` and more only.
_QUIET = frozenset({"taken", "kept", "ended"})


class Messages:
    """Writes to ``stream``, a stderr, one line at a time. No message carries a token."""

    def __init__(self, stream: Any, options: Mapping[str, Any]) -> None:
        self._stream = stream
        self._as_json = options["json"]
        self._is_quiet = options["quiet"] or options["verbosity"] < 1
        self._is_verbose = options["verbosity"] > 1

    def say(self, message: str, event: Event = "note", **facts: object) -> None:
        """Tell ``message``; ``facts`` are the further members of its JSON object."""
        if event in _OF_BUSY and self._is_quiet:
            return
        if self._as_json:
            told = "error" if event == "busy" else event
            self._write(json.dumps({"event": told, **facts, "message": message}))
        elif self._is_verbose or event not in _QUIET:
            self._write(f"with_lock: {printable(message)}")

    def _write(self, line: str) -> None:
        text = f"{line}\n"
        # A stderr that is closed or broken (None, if it never was open) must not stop the work.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            try:
                descriptor = self._stream.fileno()
            except UnsupportedOperation:
                self._stream.write(text, str)
            else:
                # Past Python's buffer: what a broken pipe leaves there makes the status 120.
                os.write(descriptor, text.encode(errors="backslashreplace"))
