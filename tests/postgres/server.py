"""A private PostgreSQL for the tests."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support import programs

START_SECONDS = 30
# It is thrown away.
FAST = ("fsync=off", "full_page_writes=off", "listen_addresses=", "max_connections=40")


class PostgresError(Exception):
    """It does not start; the message has what it said."""


class PostgresServer:
    """A server on a unix socket in a directory of its own, which dies with its starter."""

    def __init__(self) -> None:
        initdb, _ = programs.need("initdb", "setpriv")
        self._binaries = Path(initdb).resolve().parent
        self.directory = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._as_user: tuple[str, ...] = ("setpriv", "--pdeathsig", "KILL")
        self.user = pwd.getpwuid(os.getuid()).pw_name
        if os.getuid() == 0:
            # It refuses to be root's.
            self.user = _somebody()
            self._as_user += ("--reuid", self.user, "--regid", self.user, "--clear-groups")
            shutil.chown(self.directory, self.user, self.user)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def database(self) -> dict[str, Any]:
        """What stands in DATABASES for it."""
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "postgres",
            "USER": self.user,
            "HOST": str(self.directory),
        }

    def start(self) -> None:
        """Return when it answers. Raises PostgresError with what it said if it does not."""
        data = self.directory / "data"
        self._run("initdb", "--no-sync", "--auth=trust", "--encoding=UTF8", "-D", str(data))
        options = [part for one in FAST for part in ("-c", one)]
        with open(self.directory / "log", "wb") as log:
            self._process = subprocess.Popen(
                [
                    *self._as_user,
                    str(self._binaries / "postgres"),
                    *("-D", str(data), "-k", str(self.directory), *options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
            )
        deadline = time.monotonic() + START_SECONDS
        ready = [str(self._binaries / "pg_isready"), "-q", "-h", str(self.directory)]
        while subprocess.run(ready, check=False).returncode:
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self.directory / "log").read_text(errors="replace")[-2000:]
                raise PostgresError(f"PostgreSQL does not answer. It said:\n{said}")
            time.sleep(0.05)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [*self._as_user, str(self._binaries / program), *arguments],
            capture_output=True,
            text=True,
            cwd=self.directory,
            check=False,
        )
        if done.returncode:
            raise PostgresError(f"{program} failed:\n{done.stderr[-2000:]}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> PostgresServer:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def _somebody() -> str:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise PostgresError("neither the user postgres nor nobody is on this machine")
