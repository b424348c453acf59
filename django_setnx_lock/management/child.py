"""A command run as a child, in a process group of its own, that does not outlive us."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import statuses
from .guard import Guard
from .launcher import Launcher


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
    """A running command. Raises CannotRun when it cannot be started.

    ``program`` is its name without directories. ``status`` is its exit status, 128+N when
    signal N killed it, and None while it lives. With ``foreground`` it stays in our process
    group, and is alone meant by all that is else done to its group. Without ``stdin`` it has
    /dev/null to read.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        foreground: bool = False,
        stdin: bool = True,
    ) -> None:
        self.program = os.path.basename(command[0])
        self.status: int | None = None
        path = locate(command[0])
        try:
            self._guard = Guard()
        except OSError as error:
            raise _cannot_start(command, error) from error
        try:
            launcher = Launcher(path, command, environment, group=not foreground, stdin=stdin)
            self.pid = launcher.pid
            self._target = self.pid if foreground else -self.pid
            self._guard.watch(self._target)
            _go(launcher, command)
        except BaseException as error:
            self._guard.dismiss()
            if isinstance(error, OSError):
                raise _cannot_start(command, error) from error
            raise

    def look(self) -> int | None:
        """Take note of its end. Gives the signal that stopped it, if one just has."""
        if self._guard.has_died():
            self._guard_anew()
        if self.status is not None:
            return None
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
        if not pid:
            return None
        if os.WIFSTOPPED(status):
            return os.WSTOPSIG(status)
        self._note(status)
        return None

    def send(self, *signums: int) -> bool:
        """Send the signals to its process group, if any is left; False when we may not."""
        if self.status is not None and self._target > 0:
            return True
        try:
            for signum in signums:
                os.kill(self._target, signum)
        except PermissionError:
            return False
        except ProcessLookupError:
            pass
        return True

    def kill(self) -> None:
        """Kill its group; return when it is gone."""
        self.send(signal.SIGKILL)
        if self.status is None:
            self._note(os.waitpid(self.pid, 0)[1])

    def is_extinct(self) -> bool:
        """Whether no process of its group lives any more."""
        if self.status is None:
            return False
        if self._target > 0:
            return True
        # Those of it whose parents have died are our children where there is no other init.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(self._target, os.WNOHANG)[0]:
                pass
        try:
            os.kill(self._target, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        # Dead ones that nobody takes note of, as in a container without an init, are in it, too.
        return sys.platform == "linux" and not _lives(self.pid)

    def close(self) -> None:
        """Leave what is left of it alone, now and when we end."""
        self._guard.dismiss()

    def _guard_anew(self) -> None:
        # When there can be none now, we look again when something happens.
        with contextlib.suppress(OSError):
            guard = Guard()
            guard.watch(self._target)
            self._guard.dismiss()
            self._guard = guard

    def _note(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self.status = code if code >= 0 else statuses.killed_by(-code)


def _go(launcher: Launcher, command: Sequence[str]) -> None:
    try:
        launcher.go()
    except OSError as error:
        why = error.strerror
        if isinstance(error, FileNotFoundError):
            why = "the interpreter named in its first line is not found"
        message = f"{command[0]} cannot be executed: {why}"
        raise CannotRun(message, statuses.CANNOT_EXECUTE) from error


def _cannot_start(command: Sequence[str], error: OSError) -> CannotRun:
    """What to raise when it failed at what we start beside or before the command."""
    return CannotRun(f"{command[0]} cannot be started: {error}", statuses.CANNOT_EXECUTE)


def _lives(group: int) -> bool:
    """Whether a process of the group is no zombie, as /proc tells it."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group, *_ = file.read_text().rpartition(")")[2].split()
            if int(its_group) == group and state not in "ZX":
                return True
    return False
