"""Programs of the tour, each a process of its own. Most of them hold a lock."""

from __future__ import annotations

import math
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import IO, TYPE_CHECKING, cast

from example_project.embedded import CHECKOUT
from example_project.server import TIED_TO_ITS_STARTER
from example_project.tour import WentWrong

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from typing_extensions import Self

PATIENCE = 15  # seconds
LIMIT = 1  # second
LEASE = 2  # seconds


def manage(*command: str) -> list[str]:
    """Run ``manage.py COMMAND``; return the lines that it says.

    Raises WentWrong if its status is not 0.
    """
    done = subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=CHECKOUT,
        env={**os.environ, "COLUMNS": "200"},  # whatever is set here would cut the lines
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
        start_new_session=True,
    )
    if done.returncode != 0:
        raise WentWrong(f"{shlex.join(command)} ended with {done.returncode}: {done.stdout}")
    return done.stdout.splitlines()


class _Program:
    """``manage.py COMMAND``, killed at the end of the ``with`` block if it still runs then."""

    def __init__(self, *command: str, stdin: int, stderr: int, before: Sequence[str] = ()) -> None:
        self.line = shlex.join(["python", "manage.py", *command])
        self._process = subprocess.Popen(
            [*before, sys.executable, "manage.py", *command],
            cwd=CHECKOUT,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,  # Ctrl-C in the terminal is not for it
        )
        self._output = cast("IO[str]", self._process.stdout)
        self.pid = self._process.pid

    def _next_line(self) -> str:
        """Return what it says next; the empty string if it says nothing in time."""
        limit = threading.Timer(PATIENCE, self._process.kill)
        limit.start()
        try:
            return self._output.readline()
        finally:
            limit.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate(timeout=PATIENCE)


class Job(_Program):
    """``manage.py with_lock [OPTION...] KEY -- cat``: it has the lock until end() or kill().

    ``cat`` ends when its input does, and so also when this process dies: no job outlives it.
    """

    def __init__(self, key: str, *options: str) -> None:
        command = ("with_lock", *options, key, "--", "cat")
        super().__init__(*command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        self._said = ""

    def wait_until_it_runs(self) -> None:
        """Return when ``cat`` echoes, so has been started, so the lock is held.

        Raises WentWrong if that does not happen in time.
        """
        given = cast("IO[str]", self._process.stdin)
        try:
            given.write("?\n")
            given.flush()
            echo = self._next_line()
        except BrokenPipeError:
            echo = ""
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
        self._said = errors.strip()


@contextmanager
def queue(key: str, *notes: str) -> Iterator[list[Job]]:
    """Give a job for each note: the first has the lock, the others wait for it, or soon will."""
    with ExitStack() as stack:
        holder = stack.enter_context(Job(key, "--note", notes[0]))
        holder.wait_until_it_runs()
        waiters = [stack.enter_context(Job(key, "--note", note)) for note in notes[1:]]
        yield [holder, *waiters]


def end_all(jobs: Sequence[Job]) -> list[int]:
    """End the jobs, in whatever order they have the lock; return their exit statuses."""
    with ThreadPoolExecutor(len(jobs)) as threads:
        return list(threads.map(Job.end, jobs))


class Counter(_Program):
    """``manage.py pay_order ORDER``: it has the lock once it is stopped, until its lease ends."""

    def __init__(self, order: int) -> None:
        # It would else outlive this process, stopped as it is, if that is killed.
        tie = (sys.executable, "-ISc", TIED_TO_ITS_STARTER, str(os.getpid()))
        command = ("pay_order", str(order), "--timeout", str(LEASE))
        super().__init__(*command, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, before=tie)

    def stop(self) -> str:
        """Stop it where it waits for the provider, as ``kill -STOP`` does; return what it said.

        Raises WentWrong if it does not come so far in time.
        """
        said = self._next_line().strip()
        self._process.send_signal(signal.SIGSTOP)
        if "asking the provider" not in said:
            raise WentWrong(f"the counter does not pay: {said}")
        return said

    def go_on(self) -> tuple[int, str]:
        """Let it go on; return its exit status and the last line that it said."""
        self._process.send_signal(signal.SIGCONT)
        said, _ = self._process.communicate(timeout=PATIENCE)
        return self._process.returncode, said.strip().rpartition("\n")[2]


class Clerk(_Program):
    """``manage.py hold_both FIRST SECOND``: it has the first lock until it has had the second.

    It ends when its input does, and so also when this process dies.
    """

    def __init__(self, first: int, second: int) -> None:
        command = ("hold_both", str(first), str(second))
        super().__init__(*command, stdin=subprocess.PIPE, stderr=subprocess.STDOUT)

    def wait_until_it_has_one(self) -> str:
        """Return what it says when it has the first lock. Raises WentWrong if it has not."""
        said = self._next_line().strip()
        if not said.startswith("has "):
            raise WentWrong(f"a clerk has no lock: {said}")
        return said

    def go_on(self) -> tuple[int, list[str]]:
        """Have it take the second lock; return its exit status and what it said."""
        said, _ = self._process.communicate("\n", timeout=PATIENCE)
        return self._process.returncode, said.splitlines()
