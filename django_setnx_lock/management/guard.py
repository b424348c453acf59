"""A process that kills the command when with_lock is gone without having seen to it itself."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal

# Beyond what a caller is likely to have open, so that nobody's file is replaced by ours.
_HIGH = 10
# It is told by its stdin whom to kill, and that we are gone by the end of its stdin. A request to
# end that goes to all processes, as of a service that is stopped, is not for it.
_SCRIPT = """
trap '' HUP INT QUIT TERM
read -r whom || exit 0
read -r never
kill -s KILL -- "$whom"
"""
_ENDED_BY_US = frozenset({signal.SIGPIPE, signal.SIGXFSZ})


def out_of_the_way(fd: int) -> int:
    """A copy of ``fd`` that is inherited, with a high number."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD, _HIGH)


class Guard:
    """Kills what it is told to :meth:`watch` as soon as this process is dead, however it died.

    It is a shell that waits for the end of a pipe which only we have open to write; it costs a
    millisecond. Raises OSError when it cannot be started.
    """

    def __init__(self) -> None:
        self._is_dead = False
        reader, self._writer = os.pipe()
        its_end = out_of_the_way(reader)
        os.close(reader)
        try:
            # Of a group of its own, so that nothing meant for the command's or ours reaches it.
            self.pid = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", _SCRIPT],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, its_end, 0),
                    (os.POSIX_SPAWN_CLOSE, its_end),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setpgroup=0,
                setsigdef=_ENDED_BY_US,
            )
        except OSError:
            os.close(self._writer)
            raise
        finally:
            os.close(its_end)

    def watch(self, target: int) -> None:
        """Kill ``target`` when we are gone: a process, or the group ``-target``."""
        # It may have been killed; then there is nothing to tell it.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._writer, b"%d\n" % target)

    def has_died(self) -> bool:
        """Whether somebody has killed it."""
        if not self._is_dead:
            try:
                self._is_dead = os.waitpid(self.pid, os.WNOHANG)[0] != 0
            except ChildProcessError:
                # A program that called us has taken note of it.
                self._is_dead = True
        return self._is_dead

    def dismiss(self) -> None:
        """End it without having it kill anybody."""
        if not self.has_died():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._writer)
