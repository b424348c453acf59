"""Renews all locks of this process from one thread, and checks what was handed on."""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from redis import exceptions as redis_exceptions

from .. import clock
from ..connections import execute
from ..connections.backends import BLOCKING, run
from ..connections.connection import Command, Connection
from ..connections.primitives import CONNECTING, in_thread
from ..connections.sentinel import follow
from ..events import Apart
from ..process import after_fork, notice_fork
from .requests import AnyRequest
from .scheduler import EXIT_WITHIN, LINGER, LONGEST_SLEEP, RenewalRegistry, RenewalScheduler

if TYPE_CHECKING:
    from ..connections.endpoints import Target
    from .requests import Renewable

logger = logging.getLogger("django_setnx_lock.renewal")

# While locks are handed on the thread wakes this often by itself: to wake it for each check would
# take a core at the very moment when waiters need it.
_BUSY_SLEEP = 0.05
_BUSY_FOR = 1.0
_FORK_WITHIN = 0.2
# How long sending, and the rest of an answer that has begun to come, may keep the other servers.
_BRIEF = 0.05
# So many commands, and bytes, a socket takes at once when nothing else is under way on it.
_FEW, _SHORT = 40, 16_000


class ThreadIO:
    """Sends and reads for one thread. ``make_connection``: what connects to a server.

    What may take long, as connecting or sending to a server that takes in nothing, is done in a
    thread of its own.
    """

    def __init__(self, make_connection: Callable[..., Connection]) -> None:
        self._make_connection = make_connection

    def connection(self, client: Any, connect_timeout: float) -> Connection:
        """See :class:`RenewalIO`, as for the others."""
        return self._make_connection(client, connect_timeout=connect_timeout)

    async def follow(self, client: Any) -> None:
        follow(client)

    def connect(self, connection: Connection) -> Future[None]:
        return in_thread(connection.connect)

    async def wait(self, work: Future[None], seconds: float) -> bool:
        return bool(wait([work], seconds).done)

    async def send(
        self, connection: Connection, commands: Sequence[Command], seconds: float
    ) -> Future[None] | None:
        size = sum(len(part) for command in commands for part in command)
        if len(commands) > _FEW or size > _SHORT:
            return in_thread(partial(_send, connection, commands, max(seconds, _BRIEF)))
        _send(connection, commands, _BRIEF)
        return None

    async def read(self, connection: Connection, seconds: float) -> Any:
        if not connection.wait(seconds):
            return None
        try:
            with connection.within(_BRIEF):
                return connection.read()
        except redis_exceptions.ResponseError as error:
            return error
        except redis_exceptions.TimeoutError:
            # Only its beginning has come.
            return None

    async def call(self, client: Any, request: AnyRequest, key: str) -> Any:
        return run(execute.call(BLOCKING, client, request, key))


def _send(connection: Connection, commands: Sequence[Command], seconds: float) -> None:
    with connection.within(seconds):
        connection.send(*commands)


class Watchdog(RenewalRegistry):
    """Keeps locks alive until they are forgotten, lost, or nobody is left to hold them.

    Its thread starts with the first lock and ends some seconds after the last. To add or remove a
    lock takes no lock of the thread's and does not wait for it. So an interrupt anywhere, or a call
    from a signal handler, leaves it working.

    ``connection``: what connects to a server.
    """

    _check_slack = _BUSY_SLEEP
    _new_scheduler: type[RenewalScheduler] = RenewalScheduler

    def __init__(self, *, connection: Callable[..., Connection] = Connection) -> None:
        super().__init__()
        self._io = ThreadIO(connection)
        self._begin()

    def _begin(self) -> None:
        self._clear()
        self._thread: threading.Thread | None = None
        self._scheduler = self._new_scheduler(self, self._io)
        # When the thread wakes up by itself.
        self.wakes_at = math.inf
        # When something is due, checks aside, as far as the thread knows.
        self._due_at = -math.inf
        self._is_at_work = False
        self._busy_until = -math.inf
        self._set_alarm()

    def _set_alarm(self) -> None:
        # Locked while there is no reason to wake up. Anybody may unlock it.
        self._alarm = threading.Lock()
        self._alarm.acquire()
        # gevent and eventlet may replace it after the import, and the thread that waits for it.
        self._kind_of_alarm = threading.Lock

    def watch(self, held: Renewable) -> None:
        notice_fork()
        super().watch(held)

    def watch_unrenewed(self, held: Renewable) -> None:
        notice_fork()
        super().watch_unrenewed(held)

    def schedule_handoff_check(self, target: Target, head: str) -> None:
        """Check it, and wake often by itself for a second."""
        notice_fork()
        self._busy_until = clock.now() + _BUSY_FOR
        super().schedule_handoff_check(target, head)

    def next_due(self) -> float:
        """Return when the next renewal, check or end of a lease is due; ``inf`` for never.

        While the thread is at work that is now: what it found due is not done yet.
        """
        due = super().next_due()
        return -math.inf if self._is_at_work else due

    def _attend(self, due: float) -> None:
        if self._thread is None or self._kind_of_alarm is not threading.Lock:
            self._start()
        elif due < self.wakes_at:
            self.wake()
        elif due < self._due_at:
            self._due_at = due

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="setnx-lock-watchdog", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # No thread can be had, as when the interpreter ends. The next lock tries again.
            logger.warning("locks are not renewed: %s", error)

    def wake(self) -> None:
        """Do what is due now."""
        with suppress(RuntimeError):
            self._alarm.release()

    def _run(self) -> None:
        self._set_alarm()
        alarm = self._alarm
        self._thread = me = threading.current_thread()
        # For a moment there may be two threads: this one stays, with a scheduler of its own.
        self._scheduler = scheduler = self._new_scheduler(self, self._io)
        needed_at = clock.now()
        is_woken = True
        try:
            while self._thread is me:
                now = clock.now()
                # From here on, a lock that is added wakes the thread, or the pass sees it. One that
                # is due later need not wake it: woken by each of thousands of new locks, the thread
                # would look through all of them without a pause.
                self.wakes_at = now + 2 * LONGEST_SLEEP
                if (
                    is_woken
                    or now >= self._due_at
                    or any(check.due <= now for check in self.handoff_checks())
                ):
                    self._due_at = math.inf
                    next_at = self._run_once(scheduler)
                    now = clock.now()
                    self._due_at = min(self._due_at, next_at, now + LONGEST_SLEEP)
                if self.is_needed:
                    needed_at = now
                elif now - needed_at >= LINGER and self._retire(me):
                    return
                longest = _BUSY_SLEEP if now < self._busy_until else LONGEST_SLEEP
                self.wakes_at = min(self._due_at, now + longest)
                is_woken = alarm.acquire(timeout=max(self.wakes_at - now, 0))
        finally:
            scheduler.close()
            if self._thread is me:
                self._thread = None
                if self.is_needed:
                    # Whatever has ended the thread, the locks are still held.
                    self._start()

    def _run_once(self, scheduler: RenewalScheduler) -> float:
        self._is_at_work = True
        try:
            with Apart(logger, "the renewal of locks stumbled, and goes on"):
                return run(scheduler.run_once())
            return clock.now() + LONGEST_SLEEP
        finally:
            self._is_at_work = False

    def _retire(self, me: threading.Thread) -> bool:
        """Return whether ``me`` may end: nothing was added by a caller that still saw it."""
        self._thread = None
        if not self.is_needed:
            return True
        self._thread = me
        return False

    def finish(self) -> None:
        """Make at the exit of the process the checks that are left, in half a second at most.

        Ends the thread: a sub-interpreter that ends with one running takes the process with it.
        """
        notice_fork()
        self.hasten_checks()
        self.wake()
        give_up_at = time.monotonic() + EXIT_WITHIN
        while self._checks and self._thread is not None and time.monotonic() < give_up_at:
            time.sleep(0.002)
        self._end_thread(give_up_at - time.monotonic())

    def _end_thread(self, seconds: float) -> None:
        """End the thread, and those that connect; wait for them so long at the most."""
        give_up_at = time.monotonic() + seconds
        thread, self._thread = self._thread, None
        self.wake()
        if thread is not None:
            thread.join(max(seconds, 0))
        for one in threading.enumerate():
            if one.name == CONNECTING:
                # One whose start was interrupted cannot be waited for.
                with suppress(RuntimeError):
                    one.join(max(give_up_at - time.monotonic(), 0))

    def before_fork(self) -> None:
        """End the thread: a fork while it works could leave the child with what it had locked."""
        notice_fork()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._end_thread(_FORK_WITHIN)

    def after_fork_in_parent(self) -> None:
        """Start the thread again if it is needed."""
        if self._thread is None and self.is_needed:
            self._start()

    def belong_to_process(self) -> None:
        """Finish when the process ends, and begin anew where it is forked."""
        atexit.register(self.finish)
        # What the child owns of it is nothing. The connections are closed as they are thrown away:
        # a thread that is not in the child may have been at work on them.
        after_fork(self._begin)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self.before_fork, after_in_parent=self.after_fork_in_parent)


WATCHDOG = Watchdog()

WATCHDOG.belong_to_process()
