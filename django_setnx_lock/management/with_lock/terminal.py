"""The terminal that with_lock was started from, lent to the process group of its child."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import termios
from collections.abc import Iterator
from typing import Any


class Terminal:
    """The controlling terminal, if there is one. Use it in a ``with`` block, which opens it.

    Its keys go to the one process group in its foreground, and no other may read from it.
    """

    def __init__(self) -> None:
        self._fd = -1
        # The process group that is in the foreground in our place.
        self.borrower = 0
        self._modes: list[Any] | None = None

    def __enter__(self) -> Terminal:
        with contextlib.suppress(OSError):
            self._fd = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        return self

    def __exit__(self, *_: object) -> None:
        self.take_back()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def is_shared(self) -> bool:
        """Whether others of our process group use it: a calling script, the rest of a pipeline."""
        # They must go on to hear of Ctrl-C.
        return os.getpid() != os.getpgrp() or _in_pipeline()

    def has_us(self) -> bool:
        """Whether our process group is in its foreground."""
        return self._foreground() == os.getpgrp()

    def lend(self, group: int) -> bool:
        """Put ``group`` in the foreground in our place; False when we are not there ourselves."""
        if not self.has_us():
            return False
        self.remember()
        self.borrower = group
        self._put_in_front(group)
        return True

    def take_back(self) -> bool:
        """Return to the foreground; False if it was not lent, or somebody else has come there."""
        is_lent = bool(self.borrower) and self._foreground() == self.borrower
        if is_lent:
            self._put_in_front(os.getpgrp())
        self.borrower = 0
        return is_lent

    def remember(self) -> None:
        """Take note of its modes, as echo, unless that was done before."""
        # The others in a pipeline may set them as they need them.
        if self._modes is None and self.has_us() and not _in_pipeline():
            with contextlib.suppress(termios.error):
                self._modes = termios.tcgetattr(self._fd)

    def restore(self) -> None:
        """Put it back into the modes that were noted, if it is ours; once."""
        modes, self._modes = self._modes, None
        if modes is not None and self.has_us():
            with unstoppable(), contextlib.suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSANOW, modes)

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


def _in_pipeline() -> bool:
    for fd in (0, 1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                return True
    return False
