"""The helpers for Django's test cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .helpers import Leftovers, LockHelpers

if TYPE_CHECKING:
    from django.test import SimpleTestCase

    _Base = SimpleTestCase
else:
    _Base = object


class LockTestMixin(LockHelpers, _Base):
    """Has each test begin with an empty server in memory; write it before the test case.

    ``class PayTests(LockTestMixin, TestCase)``. It suits SimpleTestCase, TestCase,
    TransactionTestCase, and async tests of them. ``leftover_locks``: what becomes of locks that
    are held at the end of a test: ``fail`` (the default), ``warn`` or ``ignore``.
    """

    leftover_locks: Leftovers = "fail"

    def setUp(self) -> None:
        started = self._start_locks()
        # Last of all, as the test's own cleanups may let locks go.
        self.addCleanup(started.close)
        self.addCleanup(lambda: self._report_leftovers(self.leftover_locks))
        super().setUp()
