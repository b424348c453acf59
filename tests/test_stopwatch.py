"""What the tests measure short times with does not count what the machine adds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

SLEEPS = """
import time
from tests.processes import Stopwatch

began = time.monotonic()
with Stopwatch() as watch:
    print(flush=True)
    time.sleep(1)
print(time.monotonic() - began, watch.seconds)
"""


@pytest.mark.parametrize("stopped", [0.0, 2.0])
def test_it_does_not_count_while_the_process_stands_still(stopped: float) -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPS], stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(stopped)
        os.kill(child.pid, signal.SIGCONT)
        took, counted = map(float, child.stdout.read().split())

    assert took >= max(stopped, 1.0)
    assert counted <= took - 0.9 * stopped
