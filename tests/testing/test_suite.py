"""A whole suite in memory, and what becomes of tests that use no kit, in projects of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.testing.test_manage_test import ROOT
from tests.testing.test_plugin import DJANGO, run_pytest

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = """
SECRET_KEY = "only for this"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://none.invalid"}}
INSTALLED_APPS = ["django.contrib.contenttypes", "django_setnx_lock"]
"""
RUNNER = 'TEST_RUNNER = "django_setnx_lock.testing.LockTestRunner"\n'
# None of these uses the kit; each would be refused what another has left.
TESTS = """
import unittest
from django.contrib.contenttypes.models import ContentType
from django.test import SimpleTestCase, TestCase, TransactionTestCase
from django_setnx_lock import LockBusy, lock

class Plain(unittest.TestCase):
    def test_takes(self):
        with lock("a", blocking_timeout=0, min_hold=60):
            pass

    test_again = test_and_again = test_takes

class Simple(SimpleTestCase):
    test_takes = Plain.test_takes

    async def test_in_asyncio(self):
        async with lock("a", blocking_timeout=0, min_hold=60):
            pass

    @unittest.skip("not now")
    def test_skipped(self):
        pass

class OfRows(TestCase):
    @classmethod
    def setUpTestData(cls):
        with lock("made"):
            cls.made = ContentType.objects.create(app_label="a", model="b")

    test_takes = Plain.test_takes

    def test_the_row_is_there(self):
        with lock("made", blocking_timeout=0):
            assert ContentType.objects.filter(pk=self.made.pk).exists()

class OfTransactions(TransactionTestCase):
    test_takes = Plain.test_takes
"""
LEAVES = """
import unittest
from django_setnx_lock import lock

class Leaves(unittest.TestCase):
    def test_leaves(self):
        type(self).held = lock("a").take()

class Tolerant(Leaves):
    leftover_locks = "ignore"
"""
KIT = """
from django.test import SimpleTestCase
from django_setnx_lock import lock
from django_setnx_lock.testing import LockTestMixin, real_redis

class WithKit(LockTestMixin, SimpleTestCase):
    def test_takes(self):
        with lock("a"):
            pass

class WithoutKit(SimpleTestCase):
    def test_takes(self):
        with lock("a"):
            pass

class OnPurpose(SimpleTestCase):
    def test_takes(self):
        with real_redis(), lock("a", blocking_timeout=0):
            pass
"""


def manage(
    folder: Path, settings: str, tests: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run ``manage.py test`` in a project with those tests."""
    (folder / "project_settings.py").write_text(settings)
    (folder / "test_it.py").write_text(tests)
    return subprocess.run(
        [sys.executable, "-m", "django", "test", *arguments],
        cwd=folder,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "project_settings",
            "PYTHONPATH": f"{folder}:{ROOT}",
        },
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.mark.parametrize("arguments", [(), ("--parallel", "2")], ids=["serial", "parallel"])
def test_a_suite_that_uses_no_kit_runs_in_memory(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = manage(tmp_path, SETTINGS + RUNNER, TESTS, *arguments)

    assert done.returncode == 0, done.stdout + done.stderr
    # Python 3.12.1 does not count the one that is skipped.
    assert "Ran 9 tests" in done.stderr or "Ran 8 tests" in done.stderr
    assert "OK (skipped=1)" in done.stderr


@pytest.mark.matrix
def test_a_suite_of_spawned_workers_runs_in_memory(tmp_path: Path) -> None:
    spawning = "import multiprocessing\nmultiprocessing.set_start_method('spawn', force=True)\n"
    done = manage(tmp_path, spawning + SETTINGS + RUNNER, TESTS, "--parallel", "2")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK (skipped=1)" in done.stderr


def test_a_suite_fails_where_a_lock_is_left_held(tmp_path: Path) -> None:
    done = manage(tmp_path, SETTINGS + RUNNER, LEAVES)

    assert "FAILED (failures=1)" in done.stderr, done.stdout + done.stderr
    assert "'a' is held" in done.stderr


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["serial", "xdist"])
def test_a_suite_of_pytest_runs_in_memory(tmp_path: Path, workers: tuple[str, ...]) -> None:
    suite = ("-o", "setnx_lock_suite=true")
    done = run_pytest(tmp_path, TESTS, *DJANGO, *suite, *workers, settings=SETTINGS)

    assert "8 passed, 1 skipped" in done.stdout, done.stdout + done.stderr


def test_a_test_without_the_kit_beside_those_with_it_reaches_no_redis(tmp_path: Path) -> None:
    done = manage(tmp_path, SETTINGS, KIT)

    assert "FAILED (errors=1, failures=1)" in done.stderr.replace(
        "failures=1, errors=1", "errors=1, failures=1"
    ), done.stderr
    assert "FAIL: test_takes (test_it.WithoutKit" in done.stderr
    assert "would reach the Redis at none.invalid:6379/0: write LockTestMixin" in done.stderr
    # There is none.
    assert "ERROR: test_takes (test_it.OnPurpose" in done.stderr
    assert "LockUnavailable" in done.stderr
