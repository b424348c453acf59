"""Renews all locks of this process from one thread, and looks after what was handed on."""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from . import clock
from .courier import join_asides
from .events import Apart
from .line import Line
from .patrol import LINGER, Patrol
from .watchlist import EXIT_WITHIN, LONGEST_SLEEP, WatchList

if TYPE_CHECKING:
    from .target import Target

logger = logging.getLogger("django_setnx_lock.renewal")

# While locks are being handed on it looks this often, so that nobody need wake it for it: that
# would be at the very moment when somebody waits for the other cores.
_BUSY_SLEEP = 0.05
_BUSY_FOR = 1.0
_FORK_WITHIN = 0.2


def _clock() -> float:
    return clock.now()


class Watchdog(WatchList):
    """Keeps locks alive until they are forgotten, lost, or nobody is left to hold them.

    Its thread starts with the first lock and ends some seconds after the last. Who adds or
    removes something neither waits for it nor holds anything it needs, so that an interrupt
    anywhere, or a call from a handler of a signal, leaves it working.

    ``now``: the clock. ``line``: what connects to a server. ``has_thread`` False leaves the
    work to calls of :meth:`tick`.
    """

    _look_slack = _BUSY_SLEEP

    def __init__(
        self,
        *,
        now: Callable[[], float] = _clock,
        line: Callable[..., Line] = Line,
        has_thread: bool = True,
    ) -> None:
        super().__init__(now)
        self._line = line
        self._has_thread = has_thread
        self._begin()

    def _begin(self) -> None:
        self._clear()
        self._thread: threading.Thread | None = None
        self._patrol = self._new_patrol()
        self._wakes_at = math.inf
        # When there is something to do, looks apart, as far as the thread knows.
        self._due_at = -math.inf
        self._busy_until = -math.inf
        self._set_alarm()

    def _set_alarm(self) -> None:
        # Locked while there is no reason to wake up. Anybody may unlock it.
        self._alarm = threading.Lock()
        self._alarm.acquire()
        # gevent and eventlet may replace it after the import, and the thread that waits for it.
        self._kind_of_alarm = threading.Lock

    def _new_patrol(self) -> Patrol:
        return Patrol(self._held, self._looks, self._now, self._line, has_threads=self._has_thread)

    def owe_look(self, target: Target, head: str) -> None:
        """As in :class:`WatchList`."""
        self._busy_until = self._now() + _BUSY_FOR
        super().owe_look(target, head)

    def tick(self) -> float:
        """Do what is due. Gives when there is more to do: a time, ``inf`` for never."""
        return self._patrol.go()

    def _attend(self, due: float) -> None:
        if self._thread is None or self._kind_of_alarm is not threading.Lock:
            self._start()
        elif due < self._wakes_at:
            self._wake()
        elif due < self._due_at:
            self._due_at = due

    def _start(self) -> None:
        if not self._has_thread:
            return
        thread = threading.Thread(target=self._run, name="setnx-lock-watchdog", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # As when the interpreter is about to end. The next lock tries again.
            logger.warning("locks are not renewed: %s", error)

    def _wake(self) -> None:
        with suppress(RuntimeError):
            self._alarm.release()

    def _run(self) -> None:
        self._set_alarm()
        alarm = self._alarm
        self._thread = me = threading.current_thread()
        # Its own, as for a moment there may be two threads, of which this one is to stay.
        self._patrol = patrol = self._new_patrol()
        needed_at = self._now()
        is_woken = True
        try:
            while self._thread is me:
                # Whoever adds something from here on wakes the thread, or is seen by it.
                self._wakes_at = math.inf
                now = self._now()
                if is_woken or now >= self._due_at or self._is_look_due(now):
                    next_at = self._go(patrol)
                    now = self._now()
                    self._due_at = min(next_at, now + LONGEST_SLEEP)
                if self._held or self._looks:
                    needed_at = now
                elif now - needed_at >= LINGER and self._retire(me):
                    return
                longest = _BUSY_SLEEP if now < self._busy_until else LONGEST_SLEEP
                self._wakes_at = min(self._due_at, now + longest)
                is_woken = alarm.acquire(timeout=max(self._wakes_at - now, 0))
        finally:
            patrol.close()
            if self._thread is me:
                self._thread = None
                if self._held or self._looks:
                    # Whatever has ended it, the locks are held still.
                    self._start()

    def _is_look_due(self, now: float) -> bool:
        return any(look.due <= now for look in tuple(self._looks.values()))

    def _go(self, patrol: Patrol) -> float:
        with Apart(logger, "the renewal of locks stumbled, and goes on"):
            return patrol.go()
        return self._now() + LONGEST_SLEEP

    def _retire(self, me: threading.Thread) -> bool:
        """Whether ``me`` may end: nobody has added anything before seeing that it is no more."""
        self._thread = None
        if not self._held and not self._looks:
            return True
        self._thread = me
        return False

    def finish(self) -> None:
        """Send at the exit of the process what looks are owed. Takes half a second at most.

        Ends the thread: a sub-interpreter that ends with one running takes the process with it.
        """
        self._hasten_looks()
        self._wake()
        give_up_at = time.monotonic() + EXIT_WITHIN
        while self._looks and self._thread is not None and time.monotonic() < give_up_at:
            time.sleep(0.002)
        self._end_thread(give_up_at - time.monotonic())

    def _end_thread(self, seconds: float) -> None:
        """Have the thread end, and those that connect; wait for it for so long at the most."""
        give_up_at = time.monotonic() + seconds
        thread, self._thread = self._thread, None
        self._wake()
        if thread is not None:
            thread.join(max(seconds, 0))
        join_asides(give_up_at - time.monotonic())

    def catch_up(self, within: float) -> bool:
        """Wait until nothing is due, for tests that set the clock. Gives whether that is so.

        ``within``: how many seconds to wait at most.
        """
        give_up_at = time.monotonic() + within
        self._due_at = -math.inf
        self._wake()
        while (self._held or self._thread is not None) and self._due_at <= self._now():
            if time.monotonic() > give_up_at:
                return False
            time.sleep(0.0005)
        return True

    def before_fork(self) -> None:
        """End the thread: a fork while it works could leave the child with what it had locked."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._end_thread(_FORK_WITHIN)

    def after_fork_in_parent(self) -> None:
        """Go on."""
        if self._thread is None and (self._held or self._looks):
            self._start()

    def after_fork_in_child(self) -> None:
        """Forget everything: the child owns none of it."""
        patrol = self._patrol
        self._begin()
        patrol.close()


WATCHDOG = Watchdog()


def owe_look(target: Target, head: str) -> None:
    """See :meth:`Watchdog.owe_look`."""
    WATCHDOG.owe_look(target, head)


atexit.register(WATCHDOG.finish)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=WATCHDOG.before_fork,
        after_in_parent=WATCHDOG.after_fork_in_parent,
        after_in_child=WATCHDOG.after_fork_in_child,
    )
