"""An interrupt between making a coroutine and awaiting it leaves no warning behind."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Argument: the module in which a coroutine is made, and thrown away.
DROPS = """
import sys
import django_setnx_lock.core.locks.lock
exec("async def wait(): pass\\nwait()", {"__name__": sys.argv[1]})
"""


@pytest.mark.parametrize(
    ("module", "is_told"),
    [("django_setnx_lock.core.locks.mailbox", False), ("shop.views", True)],
)
def test_a_coroutine_that_is_thrown_away_is_told_of_unless_it_is_ours(
    module: str, *, is_told: bool
) -> None:
    command = [sys.executable, "-W", "always", "-c", DROPS, module]
    done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=True)

    assert ("was never awaited" in done.stderr) is is_told
