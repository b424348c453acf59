"""Take a lock and run a command under it: watch both, and end the one when the other is lost."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from django_setnx_lock.core import clock
from django_setnx_lock.core.errors import LockError, LockLost, LockUnsupported
from django_setnx_lock.core.locks import parent
from django_setnx_lock.core.locks.layered import LockHandle, RedisLock
from django_setnx_lock.management import statuses

from .guard import TYPED, Child

# What comes from a command may end by one that it does not expect.
_FOR_COMMAND_ALONE = frozenset({signal.SIGUSR1, signal.SIGUSR2})
# These end a program that does not catch them.
_ENDING = TYPED | _FOR_COMMAND_ALONE | {signal.SIGHUP, signal.SIGTERM}
# How often in a lease, and after how many seconds at the most, the lock is looked after; and how
# often it is looked whether a command that is killed has ended.
_LOOKS, _LONGEST_LOOK, _SHORTEST_LOOK = 60, 0.5, 0.01
# After how many seconds a signal is seen to again: its handler is not run before the end of a sleep
# that begins as it comes, and what that raises in a finalizer is lost.
_ALARM = 0.5
#: How long before the end of its lease a command is dead whose lock cannot be renewed; of a lease.
MARGIN = 0.1


class Supervisor:
    """Takes a lock, runs a command under it, and releases it when all of the command has ended.

    ``kill_after``: seconds from TERM to KILL. ``say``: tells a message. ``is_program``: whether
    this process does nothing else. In a ``with`` block, whose end releases the lock, it catches the
    signals that ask to end, in the main thread only. A signal that was ignored stays ignored, as
    nohup wants it. After the block, ``is_lost`` tells whether the lock was lost.
    """

    is_lost = False
    _is_taking = False
    # What was raised last for a signal.
    _ended_by: BaseException | None = None
    _child: Child | None = None
    # When the command is killed, once it was asked to end.
    _kill_at = math.inf
    # What was said of renewals that fail.
    _told_of: Exception | None = None

    def __init__(self, kill_after: float, say: Callable[[str], None], *, is_program: bool) -> None:
        self._kill_after = kill_after
        self._say = say
        self._is_program = is_program
        # The one lock, when it is taken.
        self._taken: list[LockHandle] = []
        # What signals did before, and those that came and were not passed on.
        self._before: dict[int, Any] = {}
        self._came: list[int] = []
        # Why the command was asked to end.
        self._reasons: list[str] = []

    def __enter__(self) -> Supervisor:
        for signum in sorted(_ENDING):
            # None: not set from Python, so that it could not be put back.
            if signal.getsignal(signum) not in (None, signal.SIG_IGN):
                self._before[signum] = signal.signal(signum, self._on_signal)
        # Else the timer is somebody's own, as of an alarm that was set before this program began.
        is_set = any(signal.getitimer(signal.ITIMER_REAL))
        if signal.getsignal(signal.SIGALRM) == signal.SIG_DFL and not is_set:
            self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._on_signal)
            signal.setitimer(signal.ITIMER_REAL, _ALARM, _ALARM)
        return self

    def __exit__(self, *_: object) -> None:
        for held in self._taken:
            self._release(held)
        if signal.SIGALRM in self._before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for signum, before in self._before.items():
            signal.signal(signum, before)

    def take(self, lock: RedisLock, blocking_timeout: float | None) -> None:
        """Take ``lock`` as :meth:`RedisLock.take` does.

        Upon a signal, raises KeyboardInterrupt or SystemExit. One that comes as this returns is
        left to :meth:`run`.
        """
        try:
            self._is_taking = True
            self._end_if_asked()
            # map() and extend() are C, so no signal handler runs between grant and list.
            self._taken.extend(map(lock.take, [blocking_timeout]))
        finally:
            self._is_taking = False

    def run(self, path: str, command: Sequence[str]) -> int | None:
        """Return the status of the command when it has ended, and all that it has started.

        Below zero, it is the signal that ended the command. It is None where the lock was lost
        before the command was started. Raises OSError where it cannot be, and as :meth:`take`.
        """
        held, self._program = self._taken[0], os.path.basename(path)
        # Unless the command is started.
        held.grant.was_in_vain = True
        # A loss is not logged where it is told of.
        held.on_trouble = lambda: None
        child = Child(path, command, environment_for(held), adopts=self._is_program)
        try:
            self._end_if_asked()
            if held.lost:
                self.is_lost = True
                self._say(f"the lease of {held.key!r} was over before the command was started")
            else:
                child.begin()
                held.grant.was_in_vain = False
                self._watch(held, child)
        finally:
            self._child = None
            child.close()
        held.grant.was_in_vain = child.status in (None, statuses.CANNOT_EXECUTE)
        return child.status

    def _release(self, held: LockHandle) -> None:
        try:
            held.release()
        except LockLost as error:
            if not self.is_lost:
                self._say(str(error))
            self.is_lost = True
        except LockError as error:
            left = max(held.grant.end - clock.now(), 0)
            message = f"cannot release the lock, which ends with its lease in {left:.1f} s: {error}"
            self._say(message)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if signum != signal.SIGALRM:
            self._came.append(signum)
        if self._is_taking:
            self._end_if_asked()
        elif self._child is not None:
            self._pass_on(self._taken[0], self._child)

    def _end_if_asked(self) -> None:
        """Raise for a signal that came, but do not break off what undoes the grant upon one."""
        error = sys.exc_info()[1]
        while error is not None and error is not self._ended_by:
            error = error.__context__
        if self._came and error is None:
            is_typed, status = self._came[0] == signal.SIGINT, statuses.killed_by(self._came[0])
            self._ended_by = KeyboardInterrupt() if is_typed else SystemExit(status)
            raise self._ended_by

    def _pass_on(self, held: LockHandle, child: Child) -> None:
        while self._came:
            signum = self._came.pop(0)
            # We may have been stopped until after the end of the lease. While the command lives, a
            # terminal sends what is typed to it as well.
            if not (held.lost or (signum in TYPED and child.status is None)):
                child.send(signum, to_all=signum not in _FOR_COMMAND_ALONE)

    def _watch(self, held: LockHandle, child: Child) -> None:
        look = min(held.timeout / _LOOKS, _LONGEST_LOOK)
        self._child = child
        self._pass_on(held, child)
        while not child.is_extinct:
            until_kill = max(self._kill_at - clock.now(), _SHORTEST_LOOK)
            child.wait(min(look, until_kill))
            if not self.is_lost:
                self._look_after_lock(held, child)
            if child.is_unguarded:
                self._end(child, f"what guards {self._program} was killed", 0)
            if clock.now() >= self._kill_at:
                child.kill()

    def _look_after_lock(self, held: LockHandle, child: Child) -> None:
        """End the command when its lock is lost, or an operator asks for that.

        Then the lock is kept until the command has ended.
        """
        grant, asked = held.grant, held.stop_requested
        to_kill = grant.end - MARGIN * held.timeout - clock.now()
        to_end = to_kill - self._kill_after
        if held.loss is not None or to_end <= 0:
            self.is_lost = True
            trouble = grant.trouble or "this process stood still, or Redis does not answer"
            why = f"the lock {held.key!r} could not be renewed in time: {trouble}"
            # The command ends in what is left of the lease, which nobody renews any more.
            loss = held.loss or grant.lose(LockLost(why, key=held.key))
            self._end(child, str(loss), max(min(to_kill, self._kill_after), 0))
        elif asked is not None:
            self._end(child, str(asked), self._kill_after)
        elif grant.trouble is not self._told_of:
            self._told_of = grant.trouble
            if grant.trouble is not None:
                self._say(f"cannot renew the lock, trying on for {to_end:.1f} s: {grant.trouble}")

    def _end(self, child: Child, why: str, seconds: float) -> None:
        """Ask the command to end, once for each ``why``, and have it killed after ``seconds``.

        It is killed no later than was said before.
        """
        if why not in self._reasons:
            self._reasons.append(why)
            self._say(f"{why}; {self._program} is terminated, and killed after {seconds:.1f} s")
            self._kill_at = min(self._kill_at, clock.now() + seconds)
            child.send(signal.SIGTERM)


def environment_for(held: LockHandle) -> dict[str, str]:
    """Return the environment of a command under ``held``."""
    environment = {
        **os.environ,
        "SETNX_LOCK_KEY": held.key,
        "SETNX_LOCK_TOKEN": held.token,
        parent.VARIABLE: parent.described(held.grant, os.environ),
    }
    # The fence of another lock, under which we run.
    environment.pop("SETNX_LOCK_FENCE", None)
    # A lock on several masters has none.
    with contextlib.suppress(LockUnsupported):
        environment["SETNX_LOCK_FENCE"] = str(held.fence)
    return environment
