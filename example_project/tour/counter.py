"""A payment at the counter, by a process of its own that stands still in the middle of it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, cast

from example_project.embedded import CHECKOUT
from example_project.server import TIED_TO_ITS_STARTER
from example_project.tour.checks import WentWrong
from example_project.tour.jobs import PATIENCE

if TYPE_CHECKING:
    from types import TracebackType

LEASE = 2  # seconds


class Counter:
    """``manage.py pay_order ORDER``: it has the lock once it is stopped, until its lease ends."""

    def __init__(self, order: int) -> None:
        command = ["manage.py", "pay_order", str(order), "--timeout", str(LEASE)]
        # It would else outlive this process, stopped as it is, if that is killed.
        tie = (sys.executable, "-ISc", TIED_TO_ITS_STARTER, str(os.getpid()))
        self.line = shlex.join(["python", *command])
        self._process = subprocess.Popen(
            [*tie, sys.executable, *command],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C in the terminal is not for it
        )
        self.pid = self._process.pid

    def stop(self) -> str:
        """Stop it where it waits for the provider, as ``kill -STOP`` does; return what it said.

        Raises WentWrong if it does not come so far in time.
        """
        limit = threading.Timer(PATIENCE, self._process.kill)
        limit.start()
        try:
            said = cast("IO[str]", self._process.stdout).readline().strip()
        finally:
            limit.cancel()
        self._process.send_signal(signal.SIGSTOP)
        if "asking the provider" not in said:
            raise WentWrong(f"the counter does not pay: {said}")
        return said

    def go_on(self) -> tuple[int, str]:
        """Have it go on; return its exit status and the last line that it said."""
        self._process.send_signal(signal.SIGCONT)
        said, _ = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, said.strip().rpartition("\n")[2]

    def __enter__(self) -> Counter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate(timeout=PATIENCE)
