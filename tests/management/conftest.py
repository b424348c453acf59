"""with_lock as a program of its own, on the real server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, cast

import pytest

from tests.management.forking import Forking
from tests.servers import RealServer, server_kinds

CHECKOUT = Path(__file__).resolve().parent.parent.parent
SECONDS = 30

COMMAND = (sys.executable, "-m", "django", "with_lock")


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


class Program(Speaks, subprocess.Popen[str]):
    """A running with_lock, with pipes; it is the first of its process group and session."""

    def __init__(self, *arguments: str, command: tuple[str, ...] = COMMAND, **options: Any) -> None:
        super().__init__(
            [*command, *arguments],
            **{
                "cwd": CHECKOUT,
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
                "text": True,
                "start_new_session": True,
                **options,
            },
        )

    def end(self) -> tuple[int, str, str]:
        """Return its status, what is left of stdout, and of stderr, when it has ended."""
        out, err = self.communicate(timeout=SECONDS)
        return self.returncode, out, err


class ForkedProgram(Speaks):
    """The same, forked: it starts in a tenth of the time. It has what the tests use of Popen."""

    def __init__(
        self,
        forking: Forking,
        arguments: tuple[str, ...],
        *,
        is_at_terminal: bool = False,
        first: str = "",
        **files: Any,
    ) -> None:
        self.returncode: int | None = None
        ours: dict[str, IO[str] | None] = {}
        with contextlib.ExitStack() as stack:
            theirs = []
            for name, usual in (("stdin", subprocess.DEVNULL), ("stdout", -1), ("stderr", -1)):
                given = files.get(name, usual)
                ours[name] = None
                if given == subprocess.PIPE:
                    ends = os.pipe()
                    mine, given = ends if name != "stdin" else ends[::-1]
                    ours[name] = os.fdopen(mine, "w" if name == "stdin" else "r")
                    stack.callback(os.close, given)
                elif given == subprocess.DEVNULL:
                    given = os.open(os.devnull, os.O_RDWR)
                    stack.callback(os.close, given)
                theirs.append(given if isinstance(given, int) else given.fileno())
            self._forked = forking.start(
                *arguments,
                terminal=theirs[0] if is_at_terminal else None,
                first=first,
                files=(theirs[0], theirs[1], theirs[2]),
            )
        self.stdin, self.stdout, self.stderr = ours["stdin"], ours["stdout"], ours["stderr"]
        self.pid = self._forked.pid

    def poll(self) -> int | None:
        if self.returncode is None and self._forked.has_ended(0):
            self.returncode = self._forked.end()
        return self.returncode

    def wait(self, timeout: float = SECONDS) -> int:
        if self.returncode is None:
            if not self._forked.has_ended(timeout):
                raise subprocess.TimeoutExpired("with_lock", timeout)
            self.returncode = self._forked.end()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            self._forked.send(number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, text: str = "", timeout: float = SECONDS) -> tuple[str, str]:
        with contextlib.suppress(BrokenPipeError):
            if self.stdin is not None and not self.stdin.closed:
                self.stdin.write(text)
                self.stdin.close()
        pipes = (self.stdout, self.stderr)
        with ThreadPoolExecutor(2) as pool:
            reading = [pool.submit(read_rest, pipe) for pipe in pipes]
            self.wait(timeout)
        return reading[0].result(), reading[1].result()

    def end(self) -> tuple[int, str, str]:
        out, err = self.communicate()
        return self.wait(), out, err


def read_rest(pipe: IO[str] | None) -> str:
    if pipe is None or pipe.closed:
        return ""
    with pipe:
        return pipe.read()


@pytest.fixture
def start(
    real_cache: RealServer, forks: Forking, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Program]]:
    """Give a function that starts with_lock with these arguments on the real server.

    It is forked, unless ``options`` are more than what it has for stdin, stdout and stderr.
    """
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.settings")
    running: list[Program] = []

    def start(*arguments: str, **options: Any) -> Program:
        if options.keys() <= {"stdin", "stdout", "stderr"}:
            running.append(cast("Program", ForkedProgram(forks, arguments, **options)))
        else:
            running.append(Program(*arguments, **options))
        return running[-1]

    yield start
    for program in running:
        # Its guard kills the command.
        program.kill()
        program.communicate()


@pytest.fixture
def run(start: Callable[..., Program]) -> Callable[..., tuple[int, str, str]]:
    """Give a function that runs with_lock to its end; it returns status, stdout and stderr."""
    return lambda *arguments, **options: start(*arguments, **options).end()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """Give the file in which commands write their pids; what still runs is killed."""
    log = tmp_path / "log"
    log.touch()
    yield log
    for word in filter(str.isdecimal, log.read_text().split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(word), signal.SIGKILL)


@pytest.fixture(scope="session")
def forks(running_server: Callable[[str], RealServer]) -> Iterator[Forking]:
    """Give what forks with_lock processes on the real server, which all have in common."""
    url = running_server(server_kinds()[0]).url
    environment = {"DJANGO_SETTINGS_MODULE": "tests.settings", "TEST_SERVER_URL": url}
    with Forking(environment) as forks:
        yield forks


@pytest.fixture
def forking(forks: Forking, real_cache: RealServer) -> Iterator[Forking]:
    """Give what forks with_lock processes; those that still run are killed after the test."""
    yield forks
    forks.close_all()
