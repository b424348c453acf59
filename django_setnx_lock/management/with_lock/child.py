"""The command: what is run, its environment, and the process, which does not outlive us."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import select
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

from django.conf import settings
from django.core.management import CommandError

from django_setnx_lock.core.errors import LockUnsupported
from django_setnx_lock.core.locks import parent
from django_setnx_lock.core.locks.layered import LockHandle
from django_setnx_lock.management import statuses

from . import guard

_PYTHON = re.compile(r"(python|pypy)[\d.]*(\.exe)?\Z")
# The options of Python that have a value, also behind others in one word.
_WITH_VALUE = re.compile(r"--check-hash-based-pycs\Z|-(?!-)[^cmWX]*([cmWX])(.*)", re.DOTALL)
_DJANGO = frozenset({"manage.py", "django-admin", "django"})
# Beyond what a caller is likely to have open, so that nobody's file is replaced by ours.
_HIGH = 10
_SHORT = 0.01
# Python ignores these; what we start is to start as if there were no Python in between.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class CannotRun(CommandError):
    """The command cannot be started; its ``returncode`` is 126 or 127, as in a shell."""


def locate(program: str) -> str:
    """Return the file to execute for ``program``. Raises CannotRun."""
    found = shutil.which(program)
    if found is not None:
        return found
    if os.sep in program and os.path.isdir(program):
        raise CannotRun(f"{program} is a directory", returncode=statuses.CANNOT_EXECUTE)
    if shutil.which(program, mode=os.F_OK) is not None:
        raise CannotRun(f"{program} is not executable", returncode=statuses.CANNOT_EXECUTE)
    raise CannotRun(f"{program} is not found", returncode=statuses.NOT_FOUND)


def label_for(command: Sequence[str]) -> str:
    """Return what the holder record calls ``command``: its program, without what may be secret.

    For Python it is the script or module, and for Django's utilities the subcommand too.
    """
    program, *rest = command
    words = [os.path.basename(program)]
    if _PYTHON.match(words[0]):
        words, rest = _script(words, rest)
    if words[-1] in _DJANGO and rest and not rest[0].startswith("-"):
        words.append(rest[0])
    return " ".join(["with_lock", *words])


def _script(words: list[str], arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the name and arguments of what Python runs; its own when that is no file or module."""
    rest = iter(arguments)
    for word in rest:
        if not word.startswith("-"):
            return [os.path.basename(word)], list(rest)
        if option := _WITH_VALUE.match(word):
            letter, value = option[1], option[2] or next(rest, "")
            if letter == "m" and value:
                return [value], list(rest)
            if letter in ("c", "m"):
                break
    return words, []


def environment_for(held: LockHandle, *, is_program: bool) -> dict[str, str]:
    """Return the environment of a command under ``held``."""
    environment = dict(os.environ)
    if is_program:
        # A shell has called us, for whom the command is to run as without us.
        _undo_settings(environment)
    environment |= {
        "SETNX_LOCK_KEY": held.key,
        "SETNX_LOCK_TOKEN": held.token,
        parent.VARIABLE: parent.described(held.grant, os.environ),
    }
    # The fence of another lock, under which we run.
    environment.pop("SETNX_LOCK_FENCE", None)
    if (fence := fence_of(held)) is not None:
        environment["SETNX_LOCK_FENCE"] = str(fence)
    return environment


def fence_of(held: LockHandle) -> int | None:
    """Return the fencing number; None for a lock on several masters, which has none."""
    try:
        return held.fence
    except LockUnsupported:
        return None


def _undo_settings(environment: dict[str, str]) -> None:
    """Put back what Django and Python have set for themselves."""
    # What this process was started with; nothing where the system does not tell.
    before: dict[str, str] = {}
    with contextlib.suppress(OSError), open("/proc/self/environ", "rb") as file:
        words = os.fsdecode(file.read()).split("\0")
        before = dict(word.split("=", 1) for word in words if "=" in word)
    own = {"TZ": settings.TIME_ZONE}
    # Python sets it where there would be no UTF-8 otherwise (PEP 538).
    if before and "LC_CTYPE" not in before:
        own["LC_CTYPE"] = "C.UTF-8"
    for name, value in own.items():
        if value and environment.get(name) == value:
            del environment[name]
            if name in before:
                environment[name] = before[name]


class Child:
    """A command, and all that comes from it. Raises CannotRun.

    It stays in our process group. With ``adopts`` this process has no other children, and so knows
    which to end when the guard was killed. What is typed at the terminal once this is made reaches
    the command, once; :meth:`begin` starts it.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, adopts: bool = False
    ) -> None:
        self.program = os.path.basename(command[0])
        # 128+N when the signal N ended it, which is ``ended_by`` then. None while it lives.
        self.status: int | None = None
        self.ended_by = 0
        # Why it could not be executed.
        self.failure: CannotRun | None = None
        # Whether it is being killed as the guard was.
        self.was_unguarded = False
        self.pid = 0
        self._command = command
        self._is_gone = False
        self._said = b""
        # Python sets it in the guard as well.
        unset = "" if "LC_CTYPE" in environment else "LC_CTYPE"
        self._asked = b"\0".join(map(os.fsencode, [unset, locate(command[0]), *command]))
        self._adopts = adopts and guard.adopt_orphans()
        try:
            self._guard, self._control = _start_guard(environment)
        except OSError as error:
            raise self._cannot("started", error) from error
        #: Where :meth:`look` has news to read when there are any.
        self.connection: socket.socket | None = self._control

    def begin(self) -> None:
        """Start it. Raises CannotRun; but :attr:`failure` is known only when it has ended."""
        # A guard that was killed does not listen.
        with contextlib.suppress(ConnectionError):
            self._control.sendall(b"%d\n" % len(self._asked) + self._asked)
        while not (self.pid or self._is_gone or self.connection is None):
            self.look(_SHORT)
        if not self.pid:
            raise self.failure or self._cannot("started", "what is to guard it was killed")

    def look(self, seconds: float = 0) -> None:
        """Take note of what the guard says, within ``seconds``; let one that was stopped go on."""
        news = select.poll()
        if self.connection is not None:
            news.register(self.connection, select.POLLIN)
        news.poll(seconds * 1000)
        self._receive()
        # A program that called us may have taken note of its end.
        with contextlib.suppress(ProcessLookupError):
            if self.connection is not None:
                os.kill(self._guard, signal.SIGCONT)

    def send(self, signum: int) -> None:
        """Send the signal to the command itself."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.status is None:
                os.kill(self.pid, signum)

    def send_to_all(self, signum: int) -> bool:
        """Send the signal to all that comes from it; False when we may not signal some."""
        self._receive()
        main = self.pid if self.status is None else 0
        return self._is_gone or guard.send(signum, self._roots(), main)

    def kill(self) -> bool:
        """Kill all that comes from it; return False when we may not signal some."""
        allowed = self.send_to_all(signal.SIGKILL)
        # The guard goes on until none is left, however many are started meanwhile.
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        return allowed

    def wait(self) -> None:
        """Return when nothing that comes from it lives any more."""
        while not self.is_extinct():
            self.look(_SHORT)

    def is_extinct(self) -> bool:
        """Whether nothing that comes from it lives any more."""
        if self._is_gone or self.connection is not None:
            return self._is_gone
        # The guard was killed, so that nobody else does it.
        guard.send(signal.SIGKILL, self._roots(), 0)
        return not guard.family(self._roots())

    def close(self) -> None:
        """Have what is left of it killed, if anything is, without waiting for that."""
        is_over = self._is_gone or self.connection is None
        self._hang_up()
        if self._adopts:
            guard.adopt_orphans(adopts=False)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._guard, 0 if is_over else os.WNOHANG)

    def _roots(self) -> set[int]:
        """Return the processes of which all descendants come from the command."""
        if self.connection is not None:
            return {self._guard}
        return {os.getpid()} if self._adopts else set()

    def _receive(self) -> None:
        """Take note of what the guard has said."""
        while self.connection is not None:
            try:
                said = self.connection.recv(4096, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionError:
                said = b""
            *lines, self._said = (self._said + said).split(b"\n")
            for line in lines:
                what, number = line.decode().split()
                self._note(what, int(number))
            if not said:
                self._hang_up()
                if not self._is_gone:
                    self.was_unguarded = True
                    self._note("ended", -signal.SIGKILL)

    def _hang_up(self) -> None:
        self.connection = None
        self._control.close()

    def _note(self, what: str, number: int) -> None:
        if what == "started":
            self.pid = number
        elif what == "failed":
            why = os.strerror(number)
            if number == errno.ENOENT:
                why = "the interpreter named in its first line is not found"
            self.failure = self._cannot("executed", why)
        elif what == "ended" and self.status is None:
            self.ended_by = max(-number, 0)
            self.status = number if number >= 0 else statuses.killed_by(-number)
        elif what == "gone":
            self._is_gone = True

    def _cannot(self, be: str, why: object) -> CannotRun:
        message = f"{self._command[0]} cannot be {be}: {why}"
        return CannotRun(message, returncode=statuses.CANNOT_EXECUTE)


def _start_guard(environment: Mapping[str, str]) -> tuple[int, socket.socket]:
    """Start it; return its pid and the connection to it. Raises OSError."""
    control, its_end = socket.socketpair()
    with its_end:
        inherited = fcntl.fcntl(its_end, fcntl.F_DUPFD, _HIGH)
    python = _python()
    blocked = ",".join(str(int(number)) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    try:
        # Unlike subprocess, this passes on the open files that were to be inherited.
        pid = os.posix_spawn(
            python,
            [python, "-IS", guard.__file__, str(inherited), blocked],
            environment,
            # It is in our group at first, where Ctrl-C would end it.
            setsigmask=signal.valid_signals(),
            setsigdef=_IGNORED_BY_PYTHON,
        )
    except OSError:
        control.close()
        raise
    finally:
        os.close(inherited)
    return pid, control


def _python() -> str:
    """Return this Python; another where it is a part of a server, which would start instead."""
    if _PYTHON.match(os.path.basename(sys.executable or "")):
        return sys.executable
    return shutil.which("python3") or sys.executable
