"""with_lock as processes that start at once: forked from one that has imported Django.

What is forked runs the command as ``manage.py`` does, in a session of its own; only the start-up
of Python and Django is shared.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any

from tests.processes import eventually, readable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

SECONDS = 30
# Between the one that forks and with_lock stands one that tells of its pid and its status.
FORKS = """
import array, fcntl, importlib, json, os, resource, signal, socket, sys, termios

import django
from django.core.management import execute_from_command_line
from django.test import override_settings

django.setup()
from django.core.management import load_command_class
load_command_class("django_setnx_lock", "with_lock")
from tests import settings

asked = socket.socket(fileno=int(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)

def become_with_lock(order, files):
    os.setsid()
    for number in range(3):
        os.dup2(files[number], number)
    os.closerange(3, max(files) + 1)
    if order["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(order["environment"])
    importlib.reload(settings)
    override_settings(CACHES=settings.CACHES, SETNX_LOCK=settings.SETNX_LOCK).enable()
    # It ends by a signal only where the line is its own.
    sys.argv = line = ["manage.py", "with_lock", *order["arguments"]]
    status = 1
    try:
        exec(order["first"], globals())
        execute_from_command_line(line)
        status = 0
    except SystemExit as ended:
        status = ended.code
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        os._exit(status)

os.write(1, b"ready\\n")
while True:
    text, files, _, _ = socket.recv_fds(asked, 65536, 4)
    if os.fork():
        for file in files:
            os.close(file)
        continue
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if not pid:
        become_with_lock(json.loads(text), files)
    os.write(files[3], b"%d\\n" % pid)
    for file in files[:3]:
        os.close(file)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(files[3], b"%d\\n" % status)
    os._exit(0)
"""


class Speaks:
    """What is common to programs with pipes."""

    stdout: IO[str] | None
    stderr: IO[str] | None

    def line(self) -> str:
        """Return the next line that the command under the lock prints."""
        assert self.stdout is not None
        return self.stdout.readline().rstrip("\n")

    def message(self) -> str:
        """Return the next line on stderr."""
        assert self.stderr is not None
        return self.stderr.readline().rstrip("\n")


class Forked(Speaks):
    """A running with_lock, the first of its session; it has what the tests use of Popen."""

    def __init__(self, told: int, pipes: dict[str, IO[str]]) -> None:
        # Unbuffered, for has_ended().
        self._told = os.fdopen(told, "rb", buffering=0)
        self.pid = int(self._told.readline())
        self.returncode: int | None = None
        self.stdin = pipes.get("stdin")
        self.stdout = pipes.get("stdout")
        self.stderr = pipes.get("stderr")

    def has_ended(self, within: float) -> bool:
        """Whether it has ended ``within`` so many seconds."""
        return self.returncode is not None or bool(readable(self._told, within=within))

    def wait(self, timeout: float = SECONDS) -> int:
        """Return its status when it has ended, as subprocess has it."""
        if self.returncode is None:
            if not self.has_ended(timeout):
                raise subprocess.TimeoutExpired("with_lock", timeout)
            with self._told:
                self.returncode = int(self._told.readline())
        return self.returncode

    def poll(self) -> int | None:
        return self.wait() if self.has_ended(0) else None

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, text: str = "", timeout: float = SECONDS) -> tuple[str, str]:
        with contextlib.suppress(BrokenPipeError):
            if self.stdin is not None and not self.stdin.closed:
                self.stdin.write(text)
                self.stdin.close()
        with ThreadPoolExecutor(2) as pool:
            reading = [pool.submit(read_rest, pipe) for pipe in (self.stdout, self.stderr)]
            self.wait(timeout)
        return reading[0].result(), reading[1].result()

    def end(self) -> tuple[int, str, str]:
        """Return its status, what is left of stdout, and of stderr, when it has ended."""
        out, err = self.communicate()
        return self.wait(), out, err


def read_rest(pipe: IO[str] | None) -> str:
    if pipe is None or pipe.closed:
        return ""
    with pipe:
        return pipe.read()


class Forking:
    """Forks with_lock processes. Use it in a ``with`` block."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._asks, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._running: list[Forked] = []
        self._environment = environment
        with its_end:
            self._process = subprocess.Popen(
                [sys.executable, "-c", FORKS, str(its_end.fileno())],
                stdout=subprocess.PIPE,
                env={**os.environ, **environment},
                pass_fds=[its_end.fileno()],
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def start(
        self,
        *arguments: str,
        terminal: int | None = None,
        first: str = "",
        environment: Mapping[str, str] | None = None,
        **files: Any,
    ) -> Forked:
        """Start with_lock: at a terminal, or with these ``files``, as subprocess has them.

        ``first`` is what it runs before, to take a guarantee out; ``environment`` is what it has
        beside that of the test.
        """
        order = {
            "arguments": arguments,
            "terminal": terminal is not None,
            "first": first,
            "environment": {**self._environment, **os.environ, **(environment or {})},
        }
        told, tells = os.pipe()
        ours: dict[str, IO[str]] = {}
        theirs = []
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, tells)
            for name in ("stdin", "stdout", "stderr"):
                given = files.get(name, subprocess.DEVNULL) if terminal is None else terminal
                if given == subprocess.PIPE:
                    ends = os.pipe()
                    mine, given = ends if name != "stdin" else ends[::-1]
                    ours[name] = os.fdopen(mine, "w" if name == "stdin" else "r")
                    stack.callback(os.close, given)
                elif given == subprocess.DEVNULL:
                    given = os.open(os.devnull, os.O_RDWR)
                    stack.callback(os.close, given)
                theirs.append(given if isinstance(given, int) else given.fileno())
            socket.send_fds(self._asks, [json.dumps(order).encode()], [*theirs, tells])
        self._running.append(Forked(told, ours))
        return self._running[-1]

    def close_all(self) -> None:
        """Kill what still runs."""
        while self._running:
            forked = self._running.pop()
            forked.kill()
            forked.communicate()

    def __enter__(self) -> Forking:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close_all()
        self._asks.close()
        self._process.kill()
        self._process.communicate(timeout=20)


def lines(log: Path, count: int) -> list[str]:
    """Return the lines of a file when there are so many of them."""
    return eventually(lambda: (found := log.read_text().splitlines())[count - 1 :] and found)
