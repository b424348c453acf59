"""The guard: a process between with_lock and its command, and all that comes from it.

It is forked from with_lock, and starts the command. On Linux it adopts whatever the command leaves
behind, so that it knows when the last one has ended, however far that one went. When with_lock is
gone, the guard kills all that is left. When the guard is gone, with_lock does.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from django_setnx_lock.management import statuses

# What ps calls it: 15 characters at most.
_NAME = b"with_lock-guard"
# Linux alone: that a process dies with its parent, and that orphans come to us.
_PDEATHSIG, _SUBREAPER = 1, 36
# What the guard says, each with a pid or a status: the command began, it ended, all are gone.
_STARTED, _ENDED, _GONE = range(3)
_RECORD = struct.Struct("ii")
_SHORTEST_LOOK, _LONGEST_LOOK, _MOST_LOOKS = 0.005, 0.5, 10
# All are stopped for a signal. For so long one may believe that another one has been stopped by a
# user, and stop itself, as su(1) does.
_STOPPING = 2.0
# The keys of a terminal that end a program go to the whole process group.
TYPED = frozenset({signal.SIGINT, signal.SIGQUIT})
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class Child:
    """A command, and all that comes from it. It stays in our process group.

    ``path``: the file to execute. With ``adopts`` this process has no other children, and so knows
    whom to kill when the guard was killed. What is typed at the terminal once this is made reaches
    the command, once; :meth:`begin` starts it. Raises OSError if there can be no guard.
    """

    #: Below zero, the signal that ended it. None while it lives.
    status: int | None = None
    #: Whether the guard was killed, and whether nothing that comes from the command lives any more.
    is_unguarded = is_extinct = False
    _pid = 0
    # Until when all are continued.
    _continues_until = 0.0

    def __init__(
        self, path: str, words: Sequence[str], environment: Mapping[str, str], *, adopts: bool
    ) -> None:
        self._adopts = adopts and _prctl(_SUBREAPER, 1)
        self._control, its_end = socket.socketpair()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            with its_end, warnings.catch_warnings():
                # The guard needs nothing that another thread may be in the midst of.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._guard = os.fork()
                if not self._guard:
                    self._control.close()
                    _guard(its_end, partial(_execute, path, words, environment, mask))
        except OSError:
            self._control.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def begin(self) -> None:
        """Start it."""
        # A guard that was killed does not listen.
        with contextlib.suppress(ConnectionError):
            self._control.send(b"\n")
        while not self._pid and self.status is None:
            self.wait(_LONGEST_LOOK)

    def wait(self, seconds: float) -> None:
        """Take note of what the guard says within ``seconds``."""
        news = select.poll()
        if not self.is_unguarded:
            news.register(self._control, select.POLLIN)
        news.poll(seconds * 1000)
        self._receive()
        if time.monotonic() < self._continues_until and not self.is_unguarded:
            _send(signal.SIGCONT, _family(self._guard))

    def send(self, signum: int, *, to_all: bool = True) -> None:
        """Send the signal to all that comes from it, or to the command alone."""
        self._receive()
        main = [self._pid] if self.status is None else []
        if not to_all:
            _send(signum, main)
        elif not self.is_unguarded:
            _send_to_all(signum, self._guard, main)
            self._continues_until = time.monotonic() + _STOPPING
        elif self._adopts:
            _send_to_all(signum, os.getpid(), [])

    def kill(self) -> None:
        """Kill all that comes from it; to be called again until that is extinct."""
        self.send(signal.SIGKILL)
        if self.is_unguarded:
            self.is_extinct = not self._adopts or _has_no_children()

    def close(self) -> None:
        """Have what is left of it killed, and return when that is done."""
        self._control.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._guard, 0)
        if self._adopts:
            _prctl(_SUBREAPER, 0)

    def _receive(self) -> None:
        """Take note of what the guard has said."""
        while not (self.is_unguarded or self.is_extinct):
            try:
                record = self._control.recv(_RECORD.size, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionError:
                record = b""
            what, number = _RECORD.unpack(record) if record else (_ENDED, -signal.SIGKILL)
            if what == _STARTED:
                self._pid = number
            elif what == _ENDED and self.status is None:
                self.status = number
            # Meanwhile the handler of a signal may have read what comes after it.
            if what == _GONE:
                self.is_unguarded, self.is_extinct = False, True
            elif not (record or self.is_extinct):
                self.is_unguarded = True


def _guard(control: socket.socket, execute: Callable[[], None]) -> None:  # pragma: no cover
    """Be the guard: start the command when with_lock says so, and exit when all of it is gone.

    All signals are blocked, as what asks to end is not for the guard. ``control``: the connection
    to with_lock. ``execute``: becomes the command.
    """
    try:
        # Nothing of with_lock's is to be cleaned up here.
        gc.disable()
        # Where it is ignored, nobody hears of a status.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _hide()
        _prctl(_SUBREAPER, 1)
        if control.recv(1):
            _look_after(control, execute)
    finally:
        os._exit(0)


def _look_after(control: socket.socket, execute: Callable[[], None]) -> None:  # pragma: no cover
    try:
        guard, (ready, to_begin) = os.getpid(), os.pipe()
        # The command, until it has ended.
        main = [os.fork()]
        if main[0]:
            threading.Thread(target=_outlive_with_lock, args=(control, main), daemon=True).start()
    except (OSError, RuntimeError) as error:
        # What was forked begins nothing once we have ended.
        os.write(2, f"with_lock: the command cannot be started: {error}\n".encode())
        _say(control, _ENDED, statuses.CANNOT_EXECUTE)
        _say(control, _GONE)
        return
    if not main[0]:
        os.close(to_begin)
        _prctl(_PDEATHSIG, signal.SIGKILL)
        # Nothing comes from a guard that has ended.
        if os.read(ready, 1) and os.getppid() == guard:
            execute()
        return
    _say(control, _STARTED, main[0])
    # What was typed before there was a command has come to us, and later to both. It waits with all
    # signals blocked, so that none comes to it twice.
    for number in signal.sigpending() & TYPED:
        os.kill(main[0], number)
    os.write(to_begin, b"\n")
    # What ends the group of with_lock is not to end us. A session, as a parent in another group of
    # the same one would make the kernel believe that we continue what Ctrl-Z has stopped.
    os.setsid()
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.wait()
            if pid in main:
                main.clear()
                _say(control, _ENDED, os.waitstatus_to_exitcode(status))
    _say(control, _GONE)


def _say(control: socket.socket, what: int, number: int = 0) -> None:  # pragma: no cover
    # with_lock may be gone.
    with contextlib.suppress(ConnectionError):
        control.send(_RECORD.pack(what, number))


def _outlive_with_lock(control: socket.socket, main: list[int]) -> None:  # pragma: no cover
    """Kill all that is left, again and again, when with_lock is gone."""
    with contextlib.suppress(ConnectionError):
        control.recv(1)
    pause = _SHORTEST_LOOK
    while True:
        _send_to_all(signal.SIGKILL, os.getpid(), main)
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_LOOK)


def _execute(
    path: str, words: Sequence[str], environment: Mapping[str, str], mask: Iterable[int]
) -> None:  # pragma: no cover
    """Become the command, which starts as if there were no Python in between."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)) or number in _IGNORED_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execve(path, [*words], environment)  # noqa: S606 - it is what was asked for
    except OSError as error:
        os.write(2, f"with_lock: {path} cannot be executed: {error.strerror}\n".encode())
        os._exit(statuses.CANNOT_EXECUTE)


def _send_to_all(signum: int, root: int, main: Sequence[int]) -> None:
    """Send a signal to all that descends from ``root``, also to what is stopped.

    ``main``: whom to send it to where the system tells of nobody. But for KILL, all are stopped
    before, so that nobody escapes by a fork, and no script goes on to its next line. They go on
    after it, children first, so that parents find them so.
    """
    members: list[int] = []
    # What starts others faster than we look is not waited for.
    for _ in range(_MOST_LOOKS):
        new = [pid for pid in _family(root) if pid not in members]
        members += new
        if not new or signum == signal.SIGKILL:
            break
        _send(signal.SIGSTOP, new)
    members = members or [*main]
    _send(signum, members)
    _send(signal.SIGCONT, members[::-1])


def _send(signum: int, pids: Sequence[int]) -> None:
    for pid in pids:
        # It may have ended, or be of another user.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)


def _family(root: int) -> list[int]:
    """Find all that descends from ``root``, parents before their children.

    Those that have ended lead to others: the table is not read at a single moment. Finds nobody
    where the system does not tell, or numbers the processes of another PID namespace.
    """
    children = defaultdict(list)
    with contextlib.suppress(OSError):
        here = os.readlink("/proc/self") == str(os.getpid())
        for pid in filter(str.isdigit, os.listdir("/proc") if here else ()):
            with contextlib.suppress(OSError):
                children[int(_stat(pid)[1])].append(int(pid))
    found = [root]
    for parent in found:
        found += [pid for pid in children[parent] if pid not in found]
    return found[1:]


def _stat(pid: str) -> list[bytes]:
    """Return what /proc tells of a process, from its state on."""
    return Path("/proc", pid, "stat").read_bytes().rpartition(b")")[2].split()


def _has_no_children() -> bool:
    """Take note of the children that have ended; say whether none is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _hide() -> None:  # pragma: no cover
    """Have another name than with_lock, and other words, by which somebody may kill that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_bytes(_NAME)
        begin, end = map(int, _stat("self")[45:47])
        ctypes.memmove(begin, _NAME.ljust(end - begin, b"\0"), end - begin)


def _prctl(option: int, value: int) -> bool:
    """Ask it of Linux; return False elsewhere."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0)
