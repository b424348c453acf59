"""The tests that the shop has itself, which show the kit for tests."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.example_project.conftest import HERE


@pytest.mark.matrix
def test_the_shop_is_tested_without_redis() -> None:
    kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    command = [sys.executable, "-W", "error", "manage.py", "test", "example_project"]

    done = subprocess.run(command, cwd=HERE, env=kept, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert "Ran 7 tests" in done.stderr
