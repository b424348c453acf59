"""What with_lock tells on stderr."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from io import UnsupportedOperation
from typing import Any

from django_setnx_lock.management.wording import printable


class Messages:
    """Writes to ``stream``, a stderr, one line at a time. No message carries a token."""

    def __init__(self, stream: Any, options: Mapping[str, Any]) -> None:
        self._stream = stream
        self._verbosity = 0 if options["quiet"] else options["verbosity"]

    def say(self, message: str, verbosity: int = 0) -> None:
        """Tell ``message``, with this verbosity and more."""
        if verbosity > self._verbosity:
            return
        text = f"with_lock: {printable(message)}\n"
        # A stderr that is closed or broken (None, if it never was open) must not stop the work.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            try:
                descriptor = self._stream.fileno()
            except UnsupportedOperation:
                self._stream.write(text, str)
            else:
                # Past Python's buffer: what a broken pipe leaves there makes the status 120.
                os.write(descriptor, text.encode(errors="backslashreplace"))
