"""Waiting, always with a deadline, and a look at other processes.

Programs that tests start import it, too: pytest, which takes long, is imported when it is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import re
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pytest

T = TypeVar("T")


def readable(*files: Any, within: float | None = None) -> list[Any]:
    """Return which of ``files`` can be read within so many seconds.

    select.select() refuses a file whose number is over 1,023.
    """
    with selectors.DefaultSelector() as selector:
        for each in files:
            selector.register(each, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(within)]


def fork_in_c() -> int:
    """Fork as uWSGI does: no hook of Python's is called.

    A thread that asks for the interpreter just then leaves the child a mutex that nobody opens, or
    a request for the interpreter that nobody takes back: of the children that were forked beside
    busy threads, one in forty hung. So a child counts only if no other thread has run meanwhile.
    """
    fork = ctypes.PyDLL(None).fork
    deadline = time.monotonic() + 20
    while True:
        others = other_threads()
        # Who has asked for the interpreter gets it, and so has run.
        time.sleep(0.001)
        if is_still(others):
            readable, writable = os.pipe()
            pid = int(fork())
            if not pid:
                os.close(writable)
                counts = os.read(readable, 1)
                os.close(readable)
                if not counts:
                    os._exit(0)
                return 0
            os.close(readable)
            with open(writable, "wb", buffering=0) as say:
                if is_still(others):
                    say.write(b"x")
                    return pid
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        assert time.monotonic() < deadline, f"other threads never sleep: {others}"


def other_threads() -> dict[str, list[str]]:
    """Return of each other thread whether it sleeps, and how often it has run; Linux only."""
    found = {}
    for task in Path("/proc/self/task").glob("*"):
        # It may have ended.
        with contextlib.suppress(OSError):
            status = (task / "status").read_text()
            found[task.name] = re.findall(r"(?:State|switches):\s*(.*)", status)
    found.pop(str(threading.get_native_id()), None)
    return found


def is_still(threads: dict[str, list[str]]) -> bool:
    """Return whether all of these were asleep, and none has run since."""
    asleep = all(state.startswith("S") for state, *_ in threads.values())
    return asleep and other_threads() == threads


FORKS: dict[str, Callable[[], int]] = {"python": os.fork, "C": fork_in_c}


def in_thread(work: Callable[[], T]) -> T:
    """Return what ``work`` returns, or raise what it raises, in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(20)


def run(work: Coroutine[Any, Any, T], seconds: float = 20) -> T:
    """Return what ``work`` returns, or raise what it raises, in a loop of its own."""

    async def bounded() -> T:
        return await asyncio.wait_for(work, seconds)

    return asyncio.run(bounded())


async def until(condition: Callable[[], object]) -> None:
    """Return as soon as ``condition()`` is true."""
    pause = 0.001
    while not condition():
        await asyncio.sleep(pause)
        pause = min(1.2 * pause, 0.02)


def eventually(condition: Callable[[], T], seconds: float = 20) -> T:
    """Return the first true answer of ``condition``; fail the test if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            import pytest

            pytest.fail(f"not true after {seconds} s, but {answer!r}")
        time.sleep(0.01)
    return answer


class Stopwatch:
    """Seconds since it was made, less those for which the machine let nobody of this process run.

    Those are seen at a thread beside, which only sleeps, and then wakes later than it should. What
    keeps the whole process waiting, as code that never gives way, is not to be measured with it.
    """

    STEP = 0.005

    def __init__(self) -> None:
        self._began = time.monotonic()
        # How long it was away so far, and when it wakes next.
        self._state = 0.0, self._began + self.STEP
        self._took: float | None = None
        # Behind its block: by the clock on the wall. What is at least to pass is measured with it.
        self.passed = 0.0
        threading.Thread(target=self._sleep, daemon=True).start()

    def _sleep(self) -> None:
        while self._took is None:
            away, due = self._state
            time.sleep(max(due - time.monotonic(), 0))
            now = time.monotonic()
            self._state = away + max(now - due, 0), now + self.STEP

    @property
    def seconds(self) -> float:
        """How long it takes so far; from the end of its block on, how long it took."""
        away, due = self._state
        now = time.monotonic()
        took = now - self._began - away - max(now - due, 0)
        return took if self._took is None else self._took

    def __enter__(self) -> Stopwatch:
        return self

    def __exit__(self, *error: object) -> None:
        self._took, self.passed = self.seconds, time.monotonic() - self._began


def may_be_late(quiet: float) -> pytest.MarkDecorator:
    """Give a test the seconds that something may come ``late``.

    They are many on a machine that does other things too; ``make storm`` runs the test alone, and
    gives it those of a ``quiet`` one.
    """
    import pytest

    alone = pytest.param(quiet, marks=[pytest.mark.storm, pytest.mark.alone], id="quiet")
    return pytest.mark.parametrize("late", [pytest.param(4.0, id="busy"), alone])


def figure(text: str) -> None:
    """Print what a test measured; ``-s`` shows it."""
    sys.stdout.write(f"\n{text}\n")


def is_running(pid: int) -> bool:
    """Say whether the process exists and is no zombie."""
    try:
        os.kill(pid, 0)
        return sys.platform != "linux" or _state(pid)[0] not in "ZX"
    except (ProcessLookupError, FileNotFoundError):
        return False


def parent_of(pid: int) -> int:
    """Return the pid of the process's parent; Linux only."""
    return int(_state(pid)[1])


def _state(pid: int) -> list[str]:
    """Return what /proc says of the process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
