"""The mixin, in test cases of its own."""

from __future__ import annotations

import io
import unittest
from typing import TYPE_CHECKING

import pytest
from django.conf import settings
from django.contrib.contenttypes.models import ContentType
from django.test import SimpleTestCase, TestCase

from django_setnx_lock import LockLost, LockUnavailable, lock
from django_setnx_lock.testing import LockTestMixin

if TYPE_CHECKING:
    from django_setnx_lock.core import LockHandle
    from tests.servers import FakeServer


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


def run(case: unittest.TestCase | unittest.TestSuite) -> unittest.TestResult:
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


class MadeBefore(LockTestMixin, TestCase):
    __test__ = False  # by pytest
    made: ContentType
    held: LockHandle

    @classmethod
    def setUpTestData(cls) -> None:
        with lock("a"):
            cls.made = ContentType.objects.create(app_label="made", model="before")
        cls.held = lock("b").take()

    def test_one(self) -> None:
        self.assert_not_locked("b")
        assert ContentType.objects.filter(pk=self.made.pk).exists()

    def test_two(self) -> None:
        self.assert_not_locked("b")
        with lock("b"):
            pass


class MadeInVain(LockTestMixin, SimpleTestCase):
    __test__ = False  # by pytest

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        raise RuntimeError("it cannot be set up")

    def runTest(self) -> None:  # noqa: N802 - unittest's name
        pass


@pytest.mark.django_db
def test_what_is_set_up_for_a_class_is_locked_in_memory(fake_server: FakeServer) -> None:
    fake_server.connected = False
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(MadeBefore)

    result = unittest.TextTestRunner(io.StringIO()).run(suite)

    assert (result.testsRun, result.errors, result.failures) == (2, [], [])


@pytest.mark.parametrize("case", [MadeBefore, MadeInVain])
@pytest.mark.django_db
def test_the_caches_of_a_class_are_put_back(case: type[unittest.TestCase]) -> None:
    before = settings.CACHES
    run(unittest.defaultTestLoader.loadTestsFromTestCase(case))

    assert before == settings.CACHES


def test_the_mixin_behind_the_test_case_is_refused() -> None:
    with pytest.raises(TypeError, match="put LockTestMixin before the test case in the bases of"):

        class Wrong(SimpleTestCase, LockTestMixin):  # type: ignore[misc]  # as it says
            pass


def test_the_mixin_may_come_with_a_base_class() -> None:
    class Other(SimpleTestCase):
        pass

    class Right(Other, Tests):
        pass

    assert run(Right("test_a_lock_is_held")).wasSuccessful()
