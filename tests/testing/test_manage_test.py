"""``manage.py test`` in a project of its own, whose cache in tests cannot hold locks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import django_setnx_lock

ROOT = Path(django_setnx_lock.__file__).parents[1]
SETTINGS = """
SECRET_KEY = "only for this"
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}}
CACHES = {{"default": {cache!r}}}
INSTALLED_APPS = ["django.contrib.contenttypes", "django_setnx_lock"]
"""
# What projects have in their settings for tests.
CACHES: dict[str, dict[str, str | None]] = {
    "locmem": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "no location": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": None},
}
WITH_THE_KIT = """
from django.contrib.contenttypes.models import ContentType
from django.test import TestCase
from django_setnx_lock import lock
from django_setnx_lock.testing import LockTestMixin

class Tests(LockTestMixin, TestCase):
    @classmethod
    def setUpTestData(cls):
        with lock("made"):
            cls.made = ContentType.objects.create(app_label="a", model="b")

    def test_a_lock_is_held(self):
        with lock("a"):
            self.assert_locked("a")
        assert self.made.pk
"""
WITHOUT_THE_KIT = """
from django.test import SimpleTestCase

class Tests(SimpleTestCase):
    def test_adds_up(self):
        assert 1 + 1 == 2
"""


def manage(
    folder: Path, cache: dict[str, str | None], tests: str
) -> subprocess.CompletedProcess[str]:
    """Run ``manage.py test`` in a project with that default cache and those tests."""
    (folder / "project_settings.py").write_text(SETTINGS.format(cache=cache))
    (folder / "test_it.py").write_text(tests)
    return subprocess.run(
        [sys.executable, "-m", "django", "test"],
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


@pytest.mark.matrix
@pytest.mark.parametrize("name", [pytest.param("locmem", marks=pytest.mark.matrix), "no location"])
def test_with_the_kit_the_cache_may_be_any(tmp_path: Path, name: str) -> None:
    done = manage(tmp_path, CACHES[name], WITH_THE_KIT)

    assert done.returncode == 0, done.stderr
    assert "Ran 1 test" in done.stderr
    assert "E003" not in done.stdout + done.stderr
    assert "E015" not in done.stdout + done.stderr


def test_without_the_kit_the_tests_run_and_are_warned(tmp_path: Path) -> None:
    done = manage(tmp_path, CACHES["locmem"], WITHOUT_THE_KIT)

    assert done.returncode == 0, done.stderr
    assert "Ran 1 test" in done.stderr
    assert "(django_setnx_lock.E003)" in done.stderr
    assert "LockTestMixin" in done.stderr
