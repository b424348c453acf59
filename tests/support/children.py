"""Processes that a test forks, which say what came of their work."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import time
import traceback
import warnings
from typing import TYPE_CHECKING, Any

from tests.processes import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Say = Callable[[Any], None]

DEADLINE = 20


class Child:
    """A process that runs ``work``, which says things with what it is given."""

    def __init__(self, work: Callable[[Say], object], fork: Callable[[], int] = os.fork) -> None:
        readable, writable = os.pipe()
        with warnings.catch_warnings():
            # Threads of the test's own machinery may be about.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = fork()
        if self.pid == 0:
            self._be(work, writable)
        os.close(writable)
        self._said = os.fdopen(readable, "rb", buffering=0)

    @staticmethod
    def _be(work: Callable[[Say], object], writable: int) -> None:
        def say(what: Any) -> None:
            os.write(writable, json.dumps(what).encode() + b"\n")

        # It ends, whatever becomes of the test.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(2 * DEADLINE)
        faulthandler.register(signal.SIGUSR2, file=2)
        try:
            work(say)
        except BaseException:  # noqa: BLE001 - the test is told
            say({"failed": traceback.format_exc()})
        finally:
            os._exit(0)

    def hear(self) -> Any:
        """Return what it says next."""
        heard = readable(self._said, within=DEADLINE)
        if not heard:
            # It says on stderr where it stands.
            os.kill(self.pid, signal.SIGUSR2)
            time.sleep(0.5)
        assert heard, "the child says nothing"
        line = self._said.readline()
        assert line, "the child has ended"
        said = json.loads(line)
        assert not (isinstance(said, dict) and "failed" in said), said["failed"]
        return said

    def kill(self) -> None:
        """End it at once, and wait for it."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        """Wait until it has ended."""
        deadline = time.monotonic() + DEADLINE
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            assert time.monotonic() < deadline, "the child does not end"
            time.sleep(0.002)
        self.pid = 0

    def end(self) -> None:
        if self.pid:
            self.kill()
        self._said.close()


@contextlib.contextmanager
def child(work: Callable[[Say], object], fork: Callable[[], int] = os.fork) -> Iterator[Child]:
    """Run ``work`` in a forked process, which has ended with the block."""
    process = Child(work, fork)
    try:
        yield process
    finally:
        process.end()
