"""Starts a program in two steps: first its process, and the program when it is told to go on.

Between the two, who is to look after the process can be told of it: there is no moment at which
the program runs and nobody would end it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from .guard import out_of_the_way

_PYTHON = re.compile(r"(python|pypy)[\d.]*\Z")
# Python ignores these two; the program is to start as if there were no Python in between.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
# Becomes the program upon a byte from us, and nothing without: then we are gone. What keeps it
# from that is sent back as an errno; else we see the end of the connection, as exec closes it.
_LAUNCHER = f"""
import _signal, os, sys
control = int(sys.argv[1])
os.set_inheritable(control, False)
for number in {[int(number) for number in _IGNORED_BY_PYTHON]}:
    _signal.signal(number, _signal.SIG_DFL)
if os.read(control, 1):
    try:
        os.execv(sys.argv[2], sys.argv[3:])
    except OSError as error:
        os.write(control, b"%d" % error.errno)
"""


class Launcher:
    """The process ``pid``, which becomes the program ``path`` by :meth:`go`, or ends with us.

    ``group``: whether it is to be the first of a process group of its own. Raises OSError.
    """

    def __init__(
        self,
        path: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        group: bool = True,
        stdin: bool = True,
    ) -> None:
        self._control, its_end = socket.socketpair()
        with its_end:
            inherited = out_of_the_way(its_end.fileno())
        own_group: dict[str, Any] = {"setpgroup": 0} if group else {}
        nothing_to_read = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        try:
            # Unlike subprocess, this runs no Python between fork and exec, which is not safe
            # beside other threads, and it passes on the open files that were to be inherited.
            self.pid = os.posix_spawn(
                _python(),
                ["python", "-ISc", _LAUNCHER, str(inherited), path, *command],
                environment,
                file_actions=[] if stdin else nothing_to_read,
                setsigdef=_IGNORED_BY_PYTHON,
                **own_group,
            )
        except OSError:
            self._control.close()
            raise
        finally:
            os.close(inherited)

    def go(self) -> None:
        """Let it become the program. Raises OSError when it cannot; it has ended by then."""
        number = b""
        # One that was killed meanwhile does not answer.
        with self._control, contextlib.suppress(ConnectionError):
            self._control.send(b"!")
            number = self._control.recv(16)
        if number:
            os.waitpid(self.pid, 0)
            raise OSError(int(number), os.strerror(int(number)))


def _python() -> str:
    """This Python; another one where it is a part of a server, which would start that."""
    if _PYTHON.match(os.path.basename(sys.executable or "")):
        return sys.executable
    return shutil.which("python3") or sys.executable
