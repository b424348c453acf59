"""with_lock as a program of its own, on the real server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.management.forking import Forking
from tests.servers import RealServer, server_binaries

CHECKOUT = Path(__file__).resolve().parent.parent.parent
SECONDS = 30

COMMAND = (sys.executable, "-m", "django", "with_lock")


class Program(subprocess.Popen[str]):
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

    def line(self) -> str:
        """Return the next line that the command under the lock prints."""
        assert self.stdout is not None
        return self.stdout.readline().rstrip("\n")

    def message(self) -> str:
        """Return the next line on stderr."""
        assert self.stderr is not None
        return self.stderr.readline().rstrip("\n")

    def end(self) -> tuple[int, str, str]:
        """Return its status, what is left of stdout, and of stderr, when it has ended."""
        out, err = self.communicate(timeout=SECONDS)
        return self.returncode, out, err


@pytest.fixture
def start(
    real_cache: RealServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Program]]:
    """Give a function that starts with_lock with these arguments on the real server."""
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.settings")
    running: list[Program] = []

    def start(*arguments: str, **options: Any) -> Program:
        running.append(Program(*arguments, **options))
        return running[-1]

    yield start
    for program in running:
        if program.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(program.pid, signal.SIGCONT)
                program.terminate()
            try:
                program.communicate(timeout=5)
            except subprocess.TimeoutExpired:
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
    for word in log.read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(word), signal.SIGKILL)


@pytest.fixture(scope="module")
def forks(running_server: Callable[[str], RealServer]) -> Iterator[Forking]:
    """Give what forks with_lock processes on the real server, which a module has in common."""
    url = running_server(next(iter(server_binaries()), "valkey")).url
    environment = {"DJANGO_SETTINGS_MODULE": "tests.settings", "TEST_SERVER_URL": url}
    with Forking(environment) as forks:
        yield forks


@pytest.fixture
def forking(forks: Forking, real_cache: RealServer) -> Iterator[Forking]:
    """Give what forks with_lock processes; those that still run are killed after the test."""
    yield forks
    forks.close_all()
