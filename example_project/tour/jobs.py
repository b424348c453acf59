"""Jobs under ``manage.py with_lock``, each a process of its own."""

from __future__ import annotations

import math
import select
import shlex
import subprocess
import sys
import threading
import time
from typing import IO, TYPE_CHECKING, cast

from example_project.embedded import CHECKOUT
from example_project.tour.checks import WentWrong

if TYPE_CHECKING:
    from types import TracebackType

PATIENCE = 15  # seconds
LIMIT = 1  # second


class Job:
    """``manage.py with_lock [OPTION...] KEY -- cat``: it has the lock until end() or kill().

    ``cat`` ends when its input does, and so also when this process dies: no job outlives it.
    """

    def __init__(self, key: str, *options: str) -> None:
        command = ["manage.py", "with_lock", *options, key, "--", "cat"]
        self.line = shlex.join(["python", *command])
        self._process = subprocess.Popen(
            [sys.executable, *command],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal is not for it
        )
        self._input = cast("IO[bytes]", self._process.stdin)
        self._output = cast("IO[bytes]", self._process.stdout)
        self.pid = self._process.pid
        self._said = ""

    def wait_until_it_runs(self) -> None:
        """Return when ``cat`` echoes, so has been started, so the lock is held.

        Raises WentWrong if that does not happen in time.
        """
        limit = threading.Timer(PATIENCE, self._process.kill)
        limit.start()
        try:
            self._input.write(b"?\n")
            self._input.flush()
            echo = self._output.readline()
        except BrokenPipeError:
            echo = b""
        finally:
            limit.cancel()
        if not echo:
            self.kill()
            raise WentWrong(f"the job does not run: {self._said}")

    def end(self) -> int:
        """End the job's input, wait for its end, and return its exit status."""
        self._finish()
        return self._process.returncode

    def kill(self) -> float:
        """Kill ``with_lock`` as ``kill -9`` does. It can do nothing about it, nor let go.

        Return after how many seconds ``cat``, whose input is still open, was gone, too;
        infinity if it was not within LIMIT.
        """
        killed = time.monotonic()
        self._process.kill()
        # There is the end of its output to read when nobody has that open any more.
        is_gone, _, _ = select.select([self._output], [], [], LIMIT)
        took = time.monotonic() - killed
        self._finish()
        return took if is_gone else math.inf

    def _finish(self) -> None:
        # Closes the input and reads what is left until nobody has the pipes: then cat is gone too.
        _, errors = self._process.communicate(timeout=PATIENCE)
        self._said = errors.decode().strip()

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.returncode is None:
            self.kill()
