"""A command run as a child, under guard, that does not outlive us; nor does what it has started."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from . import guard, statuses

_PYTHON = re.compile(r"(python|pypy)[\d.]*\Z")
# Beyond what a caller is likely to have open, so that nobody's file is replaced by ours.
_HIGH = 10
_SHORT = 0.01
# Python ignores these; what we start is to start as if there were no Python in between.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class CannotRun(Exception):
    """The command cannot be started; ``status`` is 126 or 127, as in a shell."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def locate(program: str) -> str:
    """The file to execute for ``program``. Raises CannotRun."""
    found = shutil.which(program)
    if found is not None:
        return found
    if os.sep in program and os.path.isdir(program):
        raise CannotRun(f"{program} is a directory", statuses.CANNOT_EXECUTE)
    if shutil.which(program, mode=os.F_OK) is not None:
        raise CannotRun(f"{program} is not executable", statuses.CANNOT_EXECUTE)
    raise CannotRun(f"{program} is not found", statuses.NOT_FOUND)


class Child:
    """A running command, and all that comes from it. Raises CannotRun when it cannot be started.

    ``program`` is its name without directories. ``status`` is its exit status, 128+N when
    signal N killed it, and None while it lives. With ``foreground`` it stays in our process
    group, else it leads one of its own. Without ``stdin`` it has /dev/null to read. With
    ``adopts`` this process has no other children, and so knows which to end when both guards
    were killed. ``was_unguarded``: whether it is being killed as a guard was.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        foreground: bool = False,
        stdin: bool = True,
        adopts: bool = False,
    ) -> None:
        self.program = os.path.basename(command[0])
        self.status: int | None = None
        self.was_unguarded = False
        self.pid = self._inner = self._group = 0
        self._stopped_by: int | None = None
        self._error: int | None = None
        self._is_gone = False
        self._said = b""
        path = locate(command[0])
        self._adopts = adopts and guard.adopt_orphans()
        try:
            self._outer, self._control = _start_guards(environment, own_group=not foreground)
        except OSError as error:
            raise _cannot_start(command, error) from error
        options = ("foreground " if foreground else "") + ("" if stdin else "no stdin")
        try:
            self._start([options, path, *command])
        except BaseException:
            if self._error is None:
                # It may have been started by guards that were killed before they said so.
                self.kill()
                self.wait()
            self.close()
            raise
        if not foreground:
            self._group = self.pid

    @property
    def connections(self) -> list[socket.socket]:
        """Where :meth:`look` has news to read when there are any."""
        return [self._control] if self._control.fileno() >= 0 else []

    def look(self) -> int | None:
        """Take note of what has become of it. Gives the signal that stopped it, if one just has."""
        self._receive(socket.MSG_DONTWAIT)
        if self._outer:
            # A program that called us may have taken note of its end.
            ended, status = self._outer, 0
            with contextlib.suppress(ChildProcessError):
                ended, status = os.waitpid(self._outer, os.WNOHANG | os.WUNTRACED)
            if os.WIFSTOPPED(status):
                os.kill(self._outer, signal.SIGCONT)
            elif ended:
                self._outer = 0
        stopped_by, self._stopped_by = self._stopped_by, None
        return stopped_by

    def send(self, *signums: int) -> None:
        """Send the signals to its process group, or to it alone in the foreground."""
        target = -self._group or (self.pid if self.status is None else 0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            for signum in signums if target and not self._is_gone else ():
                os.kill(target, signum)

    def send_to_all(self, *signums: int) -> bool:
        """Send the signals to all that comes from it; False when we may not signal some.

        What another with_lock among them runs gets only what that one passes on.
        """
        self._receive(socket.MSG_DONTWAIT)
        is_last = signal.SIGKILL in signums
        return self._is_gone or guard.send(signums, self._roots(), self._group, nested=is_last)

    def kill(self) -> bool:
        """Have all that comes from it killed; False when we may not signal some."""
        allowed = self.send_to_all(signal.SIGKILL)
        for pid in filter(None, (self._outer, self._inner)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        # They go on until none is left, however many are started meanwhile.
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        return allowed

    def wait(self) -> None:
        """Return when nothing that comes from it lives any more."""
        while not self.is_extinct():
            self._receive()
            if not self.connections:
                time.sleep(_SHORT)

    def is_extinct(self) -> bool:
        """Whether nothing that comes from it lives any more."""
        if self._is_gone or self.connections:
            return self._is_gone
        # Both guards were killed, so that nobody else does it.
        guard.send([signal.SIGKILL], self._roots(), self._group)
        return not self.left()

    def left(self) -> list[guard.Process]:
        """What lives of all that comes from it."""
        return [] if self._is_gone else guard.family(self._roots(), self._group)[0]

    def leave(self) -> None:
        """Let what is left of it run on, also without us."""
        with contextlib.suppress(OSError):
            self._control.sendall(guard.LEAVE)
        self._is_gone = True

    def close(self) -> None:
        """Have what is left of it killed, if anything is, without waiting for that."""
        self._control.close()
        if self._adopts:
            guard.adopt_orphans(adopts=False)
        if self._outer:
            with contextlib.suppress(ChildProcessError, ProcessLookupError):
                os.kill(self._outer, signal.SIGCONT)
                os.waitpid(self._outer, 0 if self._is_gone or not self.pid else os.WNOHANG)

    def _roots(self) -> set[int]:
        """The processes of which all descendants come from the command."""
        if self.connections:
            return {self._outer, self._inner} - {0}
        return {os.getpid()} if self._adopts else set()

    def _start(self, words: Sequence[str]) -> None:
        asked = b"\0".join(map(os.fsencode, words))
        # Guards that were killed do not answer.
        with contextlib.suppress(ConnectionError):
            self._control.sendall(b"%0*d" % (guard.LENGTH, len(asked)) + asked)
        while not self.pid:
            if self._error is not None:
                why = os.strerror(self._error)
                if self._error == errno.ENOENT:
                    why = "the interpreter named in its first line is not found"
                raise CannotRun(f"{words[2]} cannot be executed: {why}", statuses.CANNOT_EXECUTE)
            if self._is_gone or not self.connections:
                raise _cannot_start(words[2:], "what is to guard it was killed")
            self._receive()

    def _receive(self, flags: int = 0) -> None:
        """Take note of what the guards say."""
        for control in self.connections:
            try:
                said = control.recv(4096, flags)
            except BlockingIOError:
                return
            except ConnectionError:
                said = b""
            *lines, self._said = (self._said + said).split(b"\n")
            for line in lines:
                self._note(*line.decode().split())
            if not said:
                control.close()
                if not self._is_gone:
                    self._note("killed")
                    self._note("ended", str(-signal.SIGKILL))

    def _note(self, what: str, *numbers: str) -> None:
        if what == "started":
            self._inner, self.pid = map(int, numbers)
        elif what == "failed":
            self._error = int(numbers[0])
        elif what == "stopped":
            self._stopped_by = int(numbers[0])
        elif what == "ended" and self.status is None:
            code = int(numbers[0])
            self.status = code if code >= 0 else statuses.killed_by(-code)
        elif what == "killed":
            self.was_unguarded, self._inner = True, 0
        elif what == "gone":
            self._is_gone = True
            # Where a guard cannot adopt, nobody has taken note of its end.
            self._note("ended", str(-signal.SIGKILL))


def _start_guards(environment: Mapping[str, str], *, own_group: bool) -> tuple[int, socket.socket]:
    """The pid of the outer guard, and the connection to both. Raises OSError."""
    control, its_end = socket.socketpair()
    with its_end:
        inherited = fcntl.fcntl(its_end, fcntl.F_DUPFD, _HIGH)
    group: dict[str, Any] = {"setpgroup": 0} if own_group else {}
    python = _python()
    try:
        # Unlike subprocess, this runs no Python between fork and exec, which is not safe
        # beside other threads, and it passes on the open files that were to be inherited.
        pid = os.posix_spawn(
            python,
            [python, "-IS", guard.__file__, str(inherited)],
            environment,
            setsigdef=_IGNORED_BY_PYTHON,
            **group,
        )
    except OSError:
        control.close()
        raise
    finally:
        os.close(inherited)
    return pid, control


def _python() -> str:
    """This Python; another one where it is a part of a server, which would start that."""
    if _PYTHON.match(os.path.basename(sys.executable or "")):
        return sys.executable
    return shutil.which("python3") or sys.executable


def _cannot_start(command: Sequence[str], why: object) -> CannotRun:
    """What to raise when it failed at what we start before the command."""
    return CannotRun(f"{command[0]} cannot be started: {why}", statuses.CANNOT_EXECUTE)
