"""The test runner of Django that has all tests in memory."""

from __future__ import annotations

import multiprocessing
import unittest
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from django.test.runner import DiscoverRunner, ParallelTestSuite

from .helpers import LockHelpers, LockTestMixin
from .memory import Memory


@contextmanager
def whole_suite() -> Iterator[None]:
    """Have each test of unittest begin with empty servers in memory, for the block."""
    run = unittest.TestCase.run

    def run_in_memory(case: unittest.TestCase, result: Any = None) -> Any:
        if isinstance(case, LockTestMixin):
            return run(case, result)
        helpers = LockHelpers()
        with helpers._start_locks():
            leftovers: Any = getattr(case, "leftover_locks", "fail")
            # Last of all, as the test's own cleanups may let locks go.
            case.addCleanup(lambda: helpers._report_leftovers(leftovers))
            return run(case, result)

    # What setUpClass() and setUpTestData() lock is on a server for all classes.
    with Memory(), patch.object(unittest.TestCase, "run", run_in_memory):
        yield


# What a worker that inherits nothing has open.
_of_worker = ExitStack()


def _init_worker(*args: Any) -> None:
    ParallelTestSuite.init_worker(*args)
    if multiprocessing.get_start_method() == "spawn":
        _of_worker.enter_context(whole_suite())


class _Parallel(ParallelTestSuite):
    init_worker = _init_worker


class LockTestRunner(DiscoverRunner):
    """Runs all tests with locks in memory: each begins with an empty server, as with the mixin.

    ``TEST_RUNNER = "django_setnx_lock.testing.LockTestRunner"``. ``leftover_locks`` of a test case
    says what becomes of locks that are held at the end of a test.
    """

    parallel_test_suite = _Parallel

    def run_suite(self, suite: unittest.TestSuite, **kwargs: Any) -> unittest.TextTestResult:
        """Run ``suite`` in memory."""
        with whole_suite():
            return super().run_suite(suite, **kwargs)
