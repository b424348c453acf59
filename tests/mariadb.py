"""A MariaDB server of its own for the tests."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from example_project.server import TIED_TO_ITS_STARTER
from tests.support import programs

if TYPE_CHECKING:
    from types import TracebackType

START_SECONDS = 30


class MariaDBServer:
    """As :class:`tests.postgres.server.PostgresServer`."""

    def __init__(self) -> None:
        self._server, self._maker = programs.need("mariadbd", "mariadb-install-db")
        self._directory = Path(tempfile.mkdtemp(prefix="mariadb-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def database(self) -> dict[str, Any]:
        return {
            "ENGINE": "django.db.backends.mysql",
            "NAME": "test",
            "USER": "root",
            "HOST": str(self._directory / "socket"),
        }

    def start(self) -> None:
        """Return when the server answers."""
        data, log = self._directory / "data", self._directory / "log"
        whose = ("--no-defaults", f"--datadir={data}", f"--user={getpass.getuser()}")
        with open(log, "wb") as said:
            subprocess.run(
                [self._maker, *whose, "--auth-root-authentication-method=normal"],
                check=True,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=START_SECONDS,
            )
            socket = ("--skip-networking", f"--socket={self._directory / 'socket'}")
            quick = ("--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M")
            tie = (sys.executable, "-ISc", TIED_TO_ITS_STARTER, str(os.getpid()))
            self._process = subprocess.Popen(
                [*tie, self._server, *whose, *socket, *quick],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_SECONDS
        while b"ready for connections" not in log.read_bytes():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said_last = log.read_text(errors="replace")[-2000:]
                self.stop()
                raise RuntimeError(f"MariaDB does not start. It said:\n{said_last}")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the process and remove its files."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=10)
            self._process = None
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> MariaDBServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
