"""Work that its callers need not wait for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress


class Background:
    """Runs ``work`` in a thread of its own, once at a time. What ``work`` raises is dropped."""

    def __init__(self, work: Callable[[], object], name: str) -> None:
        self._work = work
        self._name = name
        self._run: tuple[int, Future[None]] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a run has begun and has not ended."""
        # A thread of the process that this one was forked from has not come along.
        return self._run is not None and self._run[0] == os.getpid() and not self._run[1].done()

    def begin(self) -> Future[None]:
        """Begin unless it is under way. The future is done when it has ended."""
        run = self._run
        if run is None or not self.is_under_way:
            run = self._run = (os.getpid(), Future())
            run[1].set_running_or_notify_cancel()
            thread = threading.Thread(target=self._go, args=run[1:], name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # As when the interpreter is about to end.
                run[1].set_result(None)
        return run[1]

    def _go(self, done: Future[None]) -> None:
        try:
            with suppress(Exception):
                self._work()
        finally:
            done.set_result(None)
