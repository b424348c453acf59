"""Coverage of the programs that tests start: from when Django is set up.

What they import by then is measured in the tests' own process; where coverage looks on, it would
take each of hundreds of programs twice the time.
"""

from __future__ import annotations

import os
import sys

from django.apps import AppConfig

# The path of coverage's configuration, for programs that use tests/settings.py.
VARIABLE = "TEST_COVERAGE"
# Where coverage looks for it when Python starts.
AT_THE_START = "COVERAGE_PROCESS_START"


class Measuring(AppConfig):
    """An app that is there where a program is to be measured, and after all others."""

    name = "tests.measuring"

    def ready(self) -> None:
        import coverage

        os.environ[AT_THE_START] = os.environ[VARIABLE]
        try:
            coverage.process_startup()
        finally:
            del os.environ[AT_THE_START]


def postpone() -> None:
    """Have the programs that this process starts measured by the app, if it is measured itself."""
    coverage = sys.modules.get("coverage")
    if coverage and coverage.Coverage.current() and AT_THE_START in os.environ:
        os.environ[VARIABLE] = os.environ.pop(AT_THE_START)
