"""The plugin of pytest, in processes of its own."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from pathlib import Path

import pytest

import django_setnx_lock

ROOT = Path(django_setnx_lock.__file__).parents[1]
SETTINGS = """
SECRET_KEY = "only for this"
CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://none.invalid"}}
INSTALLED_APPS = ["django_setnx_lock"]
"""
TESTS = """
def test_holds(locks):
    from django_setnx_lock import lock

    with lock("a"):
        locks.assert_locked("a")

def test_leaves(locks):
    from django_setnx_lock import lock

    global held
    held = lock("b").take()
"""
IDLE = """
import sys

def test_nothing_is_imported():
    assert any(name.endswith(".testing.plugin") for name in sys.modules)
    assert not {"redis", "django", "fakeredis", "django_redis"} & set(sys.modules)

def test_the_option_is_known(pytestconfig):
    assert pytestconfig.getini("setnx_lock_leftovers") == "warn"
"""


def entry_points() -> str:
    """Return those of the package as an installed one has them."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return f"[pytest11]{setup['options.entry_points']['pytest11']}\n"


def run_pytest(
    folder: Path, tests: str, *arguments: str, settings: str = SETTINGS
) -> subprocess.CompletedProcess[str]:
    """Run ``tests`` where the package is installed, as far as pytest can tell."""
    installed = folder / "site" / "django_setnx_lock_as_installed-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Name: django-setnx-lock-as-installed\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(entry_points())
    (folder / "project_settings.py").write_text(settings)
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\n")
    path = os.pathsep.join(map(str, (installed.parent, ROOT, folder)))
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    plugins = ("-p", "no:cacheprovider", "-p", "no:valkey", "-p", "no:randomly")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *arguments, "test_it.py"],
        cwd=folder,
        env={**kept, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )


# Others import Django and redis-py themselves.
IMPORTS_NOTHING = ("-p", "no:django", "-p", "no:hypothesispytest", "-p", "no:cov")
DJANGO = ("--ds", "project_settings")


def test_the_fixture_gives_the_kit_and_reports_what_is_left_held(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, TESTS, *DJANGO)

    assert "2 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "locks are held at the end of the test: 'b' is held" in done.stdout


@pytest.mark.matrix
def test_it_can_be_left_out(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, TESTS, *IMPORTS_NOTHING, "-p", "no:setnx_lock")

    assert "fixture 'locks' not found" in done.stdout, done.stdout + done.stderr


def test_it_imports_nothing_where_it_is_not_used_and_has_an_option(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, IDLE, *IMPORTS_NOTHING, "-o", "setnx_lock_leftovers=warn")

    assert "2 passed" in done.stdout, done.stdout + done.stderr


WITHOUT_EACH = """
import sys
from django.conf import settings
settings.configure()
for missing in ("fakeredis", "lupa"):
    sys.modules[missing] = None
    try:
        from django_setnx_lock.testing import LockTester
        LockTester().__enter__()
    except Exception as error:
        print(missing, error)
    del sys.modules[missing]
"""


@pytest.mark.matrix
def test_what_is_missing_is_named_with_how_to_get_it() -> None:
    command = [sys.executable, "-c", WITHOUT_EACH]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)

    assert done.stdout.count("pip install 'django-setnx-lock[testing]'") == 2, done.stderr
