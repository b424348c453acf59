"""Programs that listen on a port of this machine, and what they answer."""

from __future__ import annotations

import http.client
import os
import subprocess
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator


class WebServer:
    """What listens on a port of this machine. ``front``: a path that it answers when it is up."""

    front = "/"

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str) -> tuple[int, str]:
        """Return the status and the text of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=45)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def is_up(self) -> bool:
        try:
            return self.get(self.front)[0] == 200
        except OSError:
            return False

    @contextmanager
    def started(
        self, command: list[str], output: IO[str] | None = None, /, **environment: str
    ) -> Iterator[None]:
        """Run the program that listens there until the block is left.

        ``output``: the file that has what it says (None: where the tests say it).
        """
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=output, stderr=output
        )
        try:
            assert eventually(lambda: process.poll() is not None or self.is_up())
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
