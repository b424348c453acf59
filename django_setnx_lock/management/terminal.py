"""The terminal that with_lock was started from, lent to the process group of its child."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from collections.abc import Iterator


class Terminal:
    """The controlling terminal, if there is one.

    One process group is in its foreground: Ctrl-C and Ctrl-Z go to that group, and no other
    may read from the terminal.
    """

    def __init__(self) -> None:
        self._fd = -1
        self._borrower = 0
        with contextlib.suppress(OSError):
            self._fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)

    def is_shared(self) -> bool:
        """Whether others of our process group use it: a calling script, the rest of a pipeline.

        They must go on to hear of Ctrl-C, so that the child is not to have it unasked.
        """
        return os.getpid() != os.getpgrp() or any(map(_is_pipe, (0, 1, 2)))

    def has_us(self) -> bool:
        """Whether our process group is in its foreground."""
        return self._foreground() == os.getpgrp()

    def lend(self, group: int) -> bool:
        """Put ``group`` in the foreground in our place; False when we are not there ourselves."""
        if not self.has_us():
            return False
        self._borrower = group
        self._put_in_front(group)
        return True

    def take_back(self) -> None:
        """Return to the foreground, unless somebody else has come there meanwhile."""
        if self._borrower and self._foreground() == self._borrower:
            self._put_in_front(os.getpgrp())
        self._borrower = 0

    def close(self) -> None:
        """Take it back and close it."""
        self.take_back()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _foreground(self) -> int:
        try:
            return os.tcgetpgrp(self._fd)
        except OSError:
            # There is none, or it was hung up.
            return -1

    def _put_in_front(self, group: int) -> None:
        with unstoppable(), contextlib.suppress(OSError):
            os.tcsetpgrp(self._fd, group)


@contextlib.contextmanager
def unstoppable() -> Iterator[None]:
    """Keep the terminal from stopping us when we write to it or change it from the background."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_pipe(fd: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False
