"""A command run as a child, in a process group of its own."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping, Sequence

from . import statuses

# Python ignores these two; the child is to start as if there were no Python in between.
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
    """A running command. Raises CannotRun when it cannot be started.

    ``program`` is its name without directories. ``status`` is its exit status, 128+N when
    signal N killed it, and None while it lives.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.program = os.path.basename(command[0])
        self.status: int | None = None
        path = locate(command[0])
        try:
            # Unlike subprocess, this runs no Python between fork and exec, which is not safe
            # beside other threads, and it passes on the open files that were to be inherited.
            self.pid = os.posix_spawn(
                path, [*command], environment, setpgroup=0, setsigdef=_IGNORED_BY_PYTHON
            )
        except OSError as error:
            why = error.strerror
            if isinstance(error, FileNotFoundError):
                why = "the interpreter named in its first line is not found"
            message = f"{command[0]} cannot be executed: {why}"
            raise CannotRun(message, statuses.CANNOT_EXECUTE) from error

    def look(self) -> int | None:
        """Take note of its end. Gives the signal that stopped it, if one just has."""
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
        try:
            for signum in signums:
                os.killpg(self.pid, signum)
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

    def has_descendants(self) -> bool:
        """Whether processes of its group outlived it."""
        try:
            os.killpg(self.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _note(self, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        self.status = code if code >= 0 else statuses.killed_by(-code)
