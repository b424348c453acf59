"""The mixin, in test cases of its own."""

from __future__ import annotations

import io
import unittest

import pytest
from django.test import SimpleTestCase

from django_setnx_lock import LockLost, LockUnavailable, lock
from django_setnx_lock.testing import LockTestMixin


class Tests(LockTestMixin, SimpleTestCase):
    def test_a_lock_is_held(self) -> None:
        with lock("a"):
            self.assert_locked("a")

    async def test_a_lock_is_held_in_asyncio(self) -> None:
        with self.held_elsewhere("b"):
            async with lock("a"):
                self.assert_locked("a")
                self.assert_locked("b")
        self.assert_released("a")

    async def test_the_round_trips_of_asyncio_count(self) -> None:
        with self.assertNumLockRoundTrips(2):
            async with lock("a"):
                pass

    async def test_a_reply_is_lost_in_asyncio(self) -> None:
        self.drop_next_reply()
        with self.assertNumLockRoundTrips(3):
            async with lock("a"):
                pass

    async def test_nobody_reaches_redis_in_asyncio(self) -> None:
        with self.unreachable(), pytest.raises(LockUnavailable):
            async with lock("a"):
                pass

    async def test_a_lock_is_renewed_in_asyncio(self) -> None:
        async with lock("a", timeout=30) as held:
            await self.aadvance(100)
            self.assert_locked("a")
            assert not held.lost

    async def test_a_block_of_asyncio_hears_of_the_loss(self) -> None:
        with pytest.raises(LockLost):
            async with lock("a") as held:
                self.lost(held)


class Leaving(LockTestMixin, SimpleTestCase):
    __test__ = False  # by pytest

    def runTest(self) -> None:  # noqa: N802 - unittest's name
        self.held = lock("a").take()


class Tolerant(Leaving):
    leftover_locks = "ignore"


class Forgetful(LockTestMixin, SimpleTestCase):
    __test__ = False  # by pytest

    def setUp(self) -> None:
        # Without super().setUp().
        pass

    def runTest(self) -> None:  # noqa: N802 - unittest's name
        self.assert_locked("a")


def run(case: unittest.TestCase) -> unittest.TestResult:
    return unittest.TextTestRunner(io.StringIO()).run(case)


def test_a_lock_that_is_left_held_fails_a_test_case() -> None:
    (failure,) = run(Leaving()).failures

    assert "'a' is held" in failure[1]


def test_a_lock_that_is_left_held_may_be_meant() -> None:
    assert run(Tolerant()).wasSuccessful()


def test_who_forgets_the_setup_is_told_so() -> None:
    (error,) = run(Forgetful()).errors

    assert "call super().setUp() in setUp()" in error[1]


@pytest.mark.parametrize("case", [Leaving, Tolerant])
def test_the_next_test_begins_anew(case: type[unittest.TestCase]) -> None:
    run(case())

    assert run(Tests("test_a_lock_is_held")).wasSuccessful()
