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
        self._is_quiet = options["quiet"] or options["verbosity"] < 1
        self._is_verbose = options["verbosity"] > 1

    def say(self, message: str, *, of_busy: bool = False, is_detail: bool = False) -> None:
        """Tell ``message``.

        ``of_busy``: not to one who does not want to hear that somebody else has the lock.
        ``is_detail``: with ``-v 2`` and more only.
        """
        if (of_busy and self._is_quiet) or (is_detail and not self._is_verbose):
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
