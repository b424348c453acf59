"""with_lock as a program of its own, on the real server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.management.forking import SECONDS, Forking, Speaks
from tests.servers import RealServer, server_kinds

CHECKOUT = Path(__file__).resolve().parent.parent.parent

COMMAND = (sys.executable, "-m", "django", "with_lock")


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
            files = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
            running.append(cast("Program", forks.start(*arguments, **files)))
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
