"""A PostgreSQL server of its own for the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

START_SECONDS = 30
# The server refuses to be root's, so then it is that of the account which its package makes.
ACCOUNT = "postgres"


def find_postgres() -> Path | None:
    """Return the folder with the server's programs, that of the newest one; None without any."""
    on_path = shutil.which("postgres")
    if on_path:
        return Path(on_path).resolve().parent
    found = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    return max((one.parent for one in found), key=lambda folder: folder.parent.name, default=None)


class PostgresServer:
    """A server process with an empty database, on a unix socket; nothing outlives it.

    It also ends with the thread that started it. ``database`` is what it is in DATABASES.
    """

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._directory = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def database(self) -> dict[str, Any]:
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "postgres",
            "USER": "tests",
            "HOST": str(self._directory),
        }

    def start(self) -> None:
        """Return when the server answers."""
        data, log = self._directory / "data", self._directory / "log"
        if os.geteuid() == 0:
            shutil.chown(self._directory, ACCOUNT, ACCOUNT)
        make = ("--username=tests", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
        subprocess.run(
            self._command("initdb", *make, f"--pgdata={data}"),
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=START_SECONDS,
            cwd="/",
        )
        quick = ("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
        options = ("-c", "listen_addresses=", "-k", str(self._directory), *quick)
        with open(log, "wb") as said:
            self._process = subprocess.Popen(
                self._command("postgres", "-D", str(data), *options),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd="/",
            )
        deadline = time.monotonic() + START_SECONDS
        while b"ready to accept connections" not in log.read_bytes():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said_last = log.read_text(errors="replace")[-2000:]
                self.stop()
                raise RuntimeError(f"PostgreSQL does not start. It said:\n{said_last}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the process, whoever is connected, and remove its files."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=10)
            self._process.kill()
            self._process.wait(timeout=10)
            self._process = None
        shutil.rmtree(self._directory, ignore_errors=True)

    def _command(self, program: str, *arguments: str) -> list[str]:
        command = [str(self._programs / program), *arguments]
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            return command
        account = (f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--init-groups")
        whose = account if os.geteuid() == 0 else ()
        return [setpriv, *whose, "--pdeathsig=QUIT", *command]

    def __enter__(self) -> PostgresServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
