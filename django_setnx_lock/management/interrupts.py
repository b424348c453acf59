"""The signals that come to with_lock, as events to wait for."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from types import FrameType, TracebackType
from typing import Any

from django_setnx_lock.core import clock
from django_setnx_lock.core.errors import LockError
from django_setnx_lock.core.held import Held
from django_setnx_lock.core.lock import RedisLock

#: These end a program that does not catch them.
ENDING = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
    }
)
_CAUGHT = (*sorted(ENDING), signal.SIGCHLD)
# So many seconds after a first signal, another one breaks off even the undoing of a grant.
_PATIENCE = 1.0

_POSTPONED = 0.005
# Selectors refuse to wait for weeks.
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
        self._is_open = False
        self._is_raising = False
        self._first: float | None = None

    def __enter__(self) -> Interrupts:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._reader, selectors.EVENT_READ)
        self._is_open = True
        self._thread = threading.get_ident()
        self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for signum in _CAUGHT:
            self.catch(signum)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for signum, before in self._before.items():
            signal.signal(signum, before)
        signal.set_wakeup_fd(self._wakeup_before)
        with self._guard:
            self._is_open = False
            self._selector.close()
            os.close(self._reader)
            os.close(self._writer)

    def catch(self, signum: int) -> None:
        """Catch this signal, too, until the end of the block."""
        before = signal.getsignal(signum)
        is_ignored = before is signal.SIG_IGN and signum != signal.SIGCHLD
        # None: not set from Python, so that it could not be put back.
        if before is not None and not is_ignored:
            self._before[signum] = signal.signal(signum, self._on_signal)

    def wait(self, timeout: float, connections: Iterable[socket.socket] = ()) -> list[int]:
        """The signals that came since the last call, each once.

        Waits up to ``timeout`` seconds for one; may give none sooner, as after :meth:`wake`, or
        when there is something to read from ``connections``.
        """
        for connection in connections:
            self._selector.register(connection, selectors.EVENT_READ)
        self._selector.select(min(timeout, _LONGEST_WAIT))
        for connection in connections:
            self._selector.unregister(connection)
        came: dict[int, None] = {}
        with contextlib.suppress(BlockingIOError):
            while numbers := os.read(self._reader, 4096):
                came.update(dict.fromkeys(numbers))
        came.pop(0, None)
        return list(came)

    def wake(self) -> None:
        """Let :meth:`wait` return. For any thread, also when the block is over."""
        with self._guard, contextlib.suppress(BlockingIOError):
            if self._is_open:
                os.write(self._writer, b"\0")

    def check(self) -> None:
        """Raise Interrupted if a signal asked to end since the last look."""
        for signum in self.wait(0):
            if signum in ENDING:
                raise Interrupted(signum)

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Raise Interrupted inside the block when a signal asks to end, or has asked."""
        self._is_raising = True
        try:
            self.check()
            yield
        finally:
            self._is_raising = False

    def take(self, lock: RedisLock, blocking_timeout: float | None) -> Held:
        """Take ``lock`` as :meth:`RedisLock.take` does; raise Interrupted upon a signal.

        The lock is not held then, and nobody waits for it. A signal that comes as this
        returns is left to the next :meth:`check`.
        """
        granted: list[Held] = []
        try:
            with self.raising():
                # map() and extend() are C, so no signal handler runs between grant and list.
                granted.extend(map(lock.take, [blocking_timeout]))
        except BaseException:
            for held in granted:
                with contextlib.suppress(LockError):
                    held.release()
            raise
        return granted[0]

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if signum not in ENDING or not self._is_raising:
            return
        if _is_packing(frame):
            threading.Timer(_POSTPONED, self._send_again, [signum]).start()
            return
        now = clock.now()
        if self._first is None:
            self._first = now
        elif now < self._first + _PATIENCE:
            return
        raise Interrupted(signum)

    def _send_again(self, signum: int) -> None:
        if self._is_raising:
            signal.pthread_kill(self._thread, signum)


def _is_packing(frame: FrameType | None) -> bool:
    """Whether redis-py is packing a command: hiredis (3.5) crashes if a handler raises then."""
    if frame is None or frame.f_code.co_name != "pack":
        return False
    return str(frame.f_globals.get("__name__")).startswith("redis.")


def stop_as_by(signum: int, pid: int) -> None:
    """Stop the process ``pid``, or the group ``-pid``, by ``signum`` as if it were not caught.

    It is our own process or group; returns when it was continued. Where there is no shell
    that could do that, the kernel stops nobody.
    """
    before = signal.signal(signum, signal.SIG_DFL)
    os.kill(pid, signum)
    # Where nobody is stopped, a child that insists on the terminal must not keep us spinning.
    time.sleep(0.1)
    if before is not None:
        signal.signal(signum, before)
