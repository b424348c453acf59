"""The signals that come to with_lock, as events to wait for."""

from __future__ import annotations

import atexit
import contextlib
import os
import resource
import select
import signal
import socket
import sys
import threading
from types import FrameType
from typing import Any

from django_setnx_lock.core.errors import LockError
from django_setnx_lock.core.locks.layered import LockHandle, RedisLock

# These end a program that does not catch them; the rare ones are caught where nothing else has
# use for them.
_RARE = frozenset(
    getattr(signal, name)
    for name in ("SIGALRM", "SIGVTALRM", "SIGPROF", "SIGXCPU", "SIGPOLL", "SIGPWR", "SIGSTKFLT")
    if hasattr(signal, name)
)
_USUAL = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM}
ENDING = _RARE | _USUAL | {signal.SIGUSR1, signal.SIGUSR2}
# poll() refuses to wait for weeks.
_LONGEST_WAIT = 3600.0


class Interrupted(BaseException):
    """The signal ``signum`` asked to end before there was a child to pass it to."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"ended by {signal.Signals(signum).name} before the command was started")
        self.signum = signum


class Interrupts:
    """Catches the signals that ask to end, and those of children, in a ``with`` block.

    In the main thread only. A signal that was ignored stays ignored, as nohup wants it.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._guard = threading.Lock()
        self._is_raising = False

    def __enter__(self) -> Interrupts:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for signum in (*sorted(ENDING), signal.SIGCHLD):
            before = signal.getsignal(signum)
            is_used = signum in _RARE and before is not signal.SIG_DFL
            is_ignored = before is signal.SIG_IGN and signum != signal.SIGCHLD
            # None: not set from Python, so that it could not be put back.
            if before is not None and not is_used and not is_ignored:
                self._before[signum] = signal.signal(signum, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, before in self._before.items():
            signal.signal(signum, before)
        signal.set_wakeup_fd(self._wakeup_before)
        with self._guard:
            self._reader.close()
            self._writer.close()

    def wait(self, timeout: float, connection: socket.socket | None = None) -> list[int]:
        """Return the signals that came since the last call, each once.

        Waits up to ``timeout`` seconds for one, for :meth:`wake`, or for what ``connection`` says.
        """
        news = select.poll()
        for each in filter(None, (self._reader, connection)):
            news.register(each, select.POLLIN)
        news.poll(min(timeout, _LONGEST_WAIT) * 1000)
        came: dict[int, None] = {}
        with contextlib.suppress(BlockingIOError):
            while numbers := self._reader.recv(4096):
                came.update(dict.fromkeys(numbers))
        came.pop(0, None)
        return list(came)

    def wake(self) -> None:
        """Let :meth:`wait` return. For any thread, also when the block is over."""
        # A socket that is closed has no number that a file of others could have by now.
        with self._guard, contextlib.suppress(OSError):
            self._writer.send(b"\0")

    def check(self, timeout: float = 0) -> None:
        """Raise Interrupted if a signal asks to end within ``timeout`` seconds, or has asked."""
        for signum in self.wait(timeout):
            if signum in ENDING:
                raise Interrupted(signum)

    def take(self, lock: RedisLock, blocking_timeout: float | None) -> LockHandle:
        """Take ``lock`` as :meth:`RedisLock.take` does; upon a signal, raise Interrupted instead.

        A signal that comes as this returns is left to the next :meth:`check`.
        """
        granted: list[LockHandle] = []
        try:
            self._is_raising = True
            try:
                self.check()
                # map() and extend() are C, so no signal handler runs between grant and list.
                granted.extend(map(lock.take, [blocking_timeout]))
            finally:
                self._is_raising = False
        except BaseException:
            for held in granted:
                with contextlib.suppress(LockError):
                    held.release()
            raise
        return granted[0]

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if signum in ENDING and self._is_raising:
            # Another one would break off the undoing of the grant.
            self._is_raising = False
            raise Interrupted(signum)


def end_as_by(signum: int) -> None:
    """End this process by ``signum`` as if it were not caught, but without a core file.

    What is registered with ``atexit`` is called before. Returns where the kernel ends nobody, as in
    the first process of a container.
    """
    # There is no public way to have them called and then end by a signal: what atexit calls at the
    # interpreter's own end cannot be followed by anything of ours.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        # They may be closed, or None if they never were open.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    # KILL cannot be set.
    with contextlib.suppress(OSError):
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signum})
    os.kill(os.getpid(), signum)
