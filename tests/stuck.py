"""Where each thread stands, shown of a test that its timeout cannot end."""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

SHOWN_AFTER = 90.0  # seconds
ROUND = 15.0


class StuckTests:
    """Shows the threads of this process when a test has run for SHOWN_AFTER, or a ROUND longer.

    pytest's ``faulthandler_timeout`` begins a thread for each test, which takes as long as many of
    the tests do; here one serves all that begin in a round.
    """

    def __init__(self) -> None:
        # While the tests run, what is written to stderr is captured.
        self._file = os.dup((sys.__stderr__ or sys.stderr).fileno())
        self._round_ends = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        # Long tests last longer, and to look at one that runs may end the process.
        if item.get_closest_marker("storm") or item.get_closest_marker("marathon"):
            self._end()
        elif time.monotonic() >= self._round_ends:
            faulthandler.dump_traceback_later(SHOWN_AFTER + ROUND, file=self._file)
            self._round_ends = time.monotonic() + ROUND
        try:
            return (yield)
        finally:
            if nextitem is None:
                self._end()

    def pytest_exception_interact(self) -> None:
        # pytest ends it there; the next test begins another.
        self._round_ends = 0.0

    def pytest_unconfigure(self) -> None:
        self._end()
        os.close(self._file)

    def _end(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._round_ends = 0.0
