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
from collections.abc import Callable, Mapping, Sequence

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
    """A running command, and all that comes from it. Raises CannotRun when it cannot be started.

    It stays in our process group. With ``adopts`` this process has no other children, and so knows
    which to end when the guard was killed. What is typed at the terminal after ``before_start`` was
    called reaches the command once; what that raises keeps the command from being started.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        adopts: bool = False,
        before_start: Callable[[], object] = lambda: None,
    ) -> None:
        self.program = os.path.basename(command[0])
        # 128+N when the signal N ended it, which is ``ended_by`` then. None while it lives.
        self.status: int | None = None
        self.ended_by = 0
        # Whether it is being killed as the guard was.
        self.was_unguarded = False
        self.pid = 0
        #: Where :meth:`look` has news to read when there are any.
        self.connections: list[socket.socket] = []
        self._error: int | None = None
        self._is_gone = False
        self._said = b""
        path = locate(command[0])
        self._adopts = adopts and guard.adopt_orphans()
        try:
            self._guard, self._control = _start_guard(environment)
        except OSError as error:
            raise _cannot("started", command, error) from error
        self.connections = [self._control]
        # Else it has that of the guard, where Python has set it.
        options = "" if "LC_CTYPE" in environment else "no LC_CTYPE"
        try:
            before_start()
            self._start([options, path, *command])
        except BaseException:
            try:
                if self._error is None:
                    # It may have been started by a guard that was killed before it said so.
                    self.kill()
                    self.wait()
            finally:
                self.close()
            raise

    def look(self, seconds: float = 0) -> None:
        """Take note of what the guard says, within ``seconds``; let one that was stopped go on."""
        news = select.poll()
        for control in self.connections:
            news.register(control, select.POLLIN)
        news.poll(seconds * 1000)
        self._receive()
        if self._guard:
            # A program that called us may have taken note of its end.
            ended, status = self._guard, 0
            with contextlib.suppress(ChildProcessError):
                ended, status = os.waitpid(self._guard, os.WNOHANG | os.WUNTRACED)
            if os.WIFSTOPPED(status):
                os.kill(self._guard, signal.SIGCONT)
            elif ended:
                self._guard = 0

    def send(self, signum: int) -> None:
        """Send the signal to the command itself."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.status is None:
                os.kill(self.pid, signum)

    def send_to_all(self, *signums: int) -> bool:
        """Send the signals to all that comes from it; False when we may not signal some."""
        self._receive()
        # What another with_lock among them runs gets only what that one passes on.
        return self._is_gone or guard.send(signums, self._roots(), self._main())

    def kill(self) -> bool:
        """Kill all that comes from it; return False when we may not signal some."""
        allowed = self.send_to_all(signal.SIGKILL)
        if self._guard:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._guard, signal.SIGCONT)
        # It goes on until none is left, however many are started meanwhile.
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        return allowed

    def wait(self) -> None:
        """Return when nothing that comes from it lives any more."""
        while not self.is_extinct():
            self.look(_SHORT)

    def is_extinct(self) -> bool:
        """Whether nothing that comes from it lives any more."""
        if self._is_gone or self.connections:
            return self._is_gone
        # The guard was killed, so that nobody else does it.
        guard.send([signal.SIGKILL], self._roots(), 0)
        return not guard.family(self._roots())[0]

    def close(self) -> None:
        """Kill what is left of it, if anything is, without waiting for that."""
        self._hang_up()
        if self._adopts:
            guard.adopt_orphans(adopts=False)
        if self._guard:
            with contextlib.suppress(ChildProcessError, ProcessLookupError):
                os.kill(self._guard, signal.SIGCONT)
                os.waitpid(self._guard, 0 if self._is_gone or not self.pid else os.WNOHANG)

    def _roots(self) -> set[int]:
        """Return the processes of which all descendants come from the command."""
        if self.connections:
            return {self._guard} - {0}
        return {os.getpid()} if self._adopts else set()

    def _main(self) -> int:
        return self.pid if self.status is None else 0

    def _start(self, words: Sequence[str]) -> None:
        asked = b"\0".join(map(os.fsencode, words))
        # A guard that was killed does not answer.
        with contextlib.suppress(ConnectionError):
            self._control.sendall(b"%0*d" % (guard.LENGTH, len(asked)) + asked)
        while not self.pid:
            if self._error is not None:
                why = os.strerror(self._error)
                if self._error == errno.ENOENT:
                    why = "the interpreter named in its first line is not found"
                raise _cannot("executed", words[2:], why)
            if self._is_gone or not self.connections:
                raise _cannot("started", words[2:], "what is to guard it was killed")
            self.look(_SHORT)

    def _receive(self) -> None:
        """Take note of what the guard has said."""
        for control in self.connections:
            try:
                said = control.recv(4096, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionError:
                said = b""
            *lines, self._said = (self._said + said).split(b"\n")
            for line in lines:
                self._note(*line.decode().split())
            if not said:
                self._hang_up()
                if not self._is_gone:
                    self._note("killed")
                    self._note("ended", str(-signal.SIGKILL))

    def _hang_up(self) -> None:
        self.connections = []
        self._control.close()

    def _note(self, what: str, *numbers: str) -> None:
        if what == "started":
            self.pid = int(numbers[0])
        elif what == "failed":
            self._error = int(numbers[0])
        elif what == "ended" and self.status is None:
            code = int(numbers[0])
            self.ended_by = max(-code, 0)
            self.status = code if code >= 0 else statuses.killed_by(-code)
        elif what == "killed":
            self.was_unguarded = True
        elif what == "gone":
            self._is_gone = True


def _start_guard(environment: Mapping[str, str]) -> tuple[int, socket.socket]:
    """Start it; return its pid and the connection to it. Raises OSError."""
    control, its_end = socket.socketpair()
    with its_end:
        inherited = fcntl.fcntl(its_end, fcntl.F_DUPFD, _HIGH)
    python = _python()
    blocked = ",".join(str(int(number)) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    try:
        # Unlike subprocess, this runs no Python between fork and exec, which is not safe
        # beside other threads, and it passes on the open files that were to be inherited.
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


def _cannot(be: str, command: Sequence[str], why: object) -> CannotRun:
    message = f"{command[0]} cannot be {be}: {why}"
    return CannotRun(message, returncode=statuses.CANNOT_EXECUTE)
