"""Runs a command under a lock that is held, and ends it when the lock is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence

from django_setnx_lock.core import clock, inheritance
from django_setnx_lock.core.errors import LockLost, LockUnsupported
from django_setnx_lock.core.held import Held

from . import statuses
from .child import Child
from .giving_up import Release, gives_up_at
from .interrupts import ENDING, Interrupts, stop_as_by
from .terminal import Terminal

_KILL_AFTER = 10.0
_RELEASE_WITHIN = 10.0
_RELEASE_AT_LEAST = 0.5
_JOB_CONTROL = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})


class Supervisor:
    """Runs one command under the lock ``held``, which is released when the command has ended.

    ``held`` is renewed by the watchdog, which wakes us by ``interrupts`` when it cannot. ``say``
    takes messages for the operator, a line each.
    """

    def __init__(self, held: Held, interrupts: Interrupts, say: Callable[[str], None]) -> None:
        self._held = held
        self._interrupts = interrupts
        self._say = say
        self._terminal = Terminal()
        self._is_lost = self._is_killed = False
        self._kill_at = 0.0
        # Since when what we have told of has been tried in vain.
        self._told_of: float | None = None
        held.on_trouble = interrupts.wake

    def run(self, command: Sequence[str]) -> int:
        """Run ``command``. Gives its exit status, or 76 when the lock was lost.

        Before it is started: raises CannotRun, Interrupted when a signal came, LockLost when
        the lease was over by then.
        """
        child: Child | None = None
        try:
            self._interrupts.check()
            # From here on, Ctrl-Z has to stop the command first.
            self._interrupts.catch(signal.SIGTSTP)
            if self._held.lost:
                self._is_lost = True
                message = f"the lease of {self._held.key!r} was over before the command was started"
                raise LockLost(message, key=self._held.key)
            child = Child(command, self._environment())
            try:
                self._watch(child)
            finally:
                if child.status is None:
                    child.kill()
        finally:
            self._terminal.close()
            if child is None:
                self._held.forgo_min_hold()
            self._let_go()
        return statuses.LOST if self._is_lost else child.status or 0

    def _fence(self) -> dict[str, str]:
        try:
            return {"SETNX_LOCK_FENCE": str(self._held.fence)}
        except LockUnsupported:
            # A lock on several masters has none.
            return {}

    def _environment(self) -> dict[str, str]:
        return os.environ | {
            "SETNX_LOCK_KEY": self._held.key,
            "SETNX_LOCK_TOKEN": self._held.token,
            **self._fence(),
            inheritance.VARIABLE: inheritance.described(self._held, os.environ),
        }

    def _watch(self, child: Child) -> None:
        if not self._terminal.is_shared() and self._terminal.lend(child.pid):
            # It may have been stopped for reading before the terminal was lent.
            child.send(signal.SIGCONT)
        while not self._has_ended(child):
            for signum in self._interrupts.wait(self._pause(child)):
                if signum in ENDING:
                    # As kill(1) in a shell: a stopped process could not react.
                    child.send(signum, signal.SIGCONT)
                elif signum == signal.SIGTSTP:
                    child.send(signum)
            self._look_after_lock(child)

    def _has_ended(self, child: Child) -> bool:
        stopped_by = child.look()
        if stopped_by in _JOB_CONTROL:
            self._on_stop(child, stopped_by)
        if child.status is None:
            return False
        # What runs on without the lock is given the same time to end as the child itself.
        return not self._is_lost or self._is_killed or not child.has_descendants()

    def _pause(self, child: Child) -> float:
        if self._is_lost and child.status is not None:
            return 0.05
        if self._is_killed:
            return 1.0
        now = clock.now()
        until = self._kill_at if self._is_lost else gives_up_at(self._held.lease, now)
        return max(until - now, 0)

    def _look_after_lock(self, child: Child) -> None:
        now, lease = clock.now(), self._held.lease
        if self._is_lost:
            if now >= self._kill_at and not self._is_killed:
                self._is_killed = True
                self._kill(child)
        elif self._held.loss is not None or now >= gives_up_at(lease, now):
            self._is_lost = True
            self._kill_at = min(now + _KILL_AFTER, lease.end)
            self._say(f"{self._why_lost()}; {child.program} is terminated")
            child.send(signal.SIGTERM, signal.SIGCONT)
        elif lease.trouble is not None and self._told_of != lease.tried_since:
            self._told_of = lease.tried_since
            left = gives_up_at(lease, now) - now
            self._say(f"cannot renew the lock, trying on for {left:.1f} s: {lease.trouble}")

    def _kill(self, child: Child) -> None:
        allowed = child.send(signal.SIGKILL)
        end = "is killed" if allowed else "may not be killed by us: it runs on without the lock"
        if child.status is None:
            self._say(f"{child.program} did not end in time and {end}")

    def _why_lost(self) -> str:
        held = self._held
        if held.lost:
            return str(held.loss or held.ran_out())
        why = held.lease.trouble or "Redis does not answer"
        return f"the lock {held.key!r} could not be renewed before its lease ends: {why}"

    def _on_stop(self, child: Child, signum: int) -> None:
        if signum == signal.SIGTSTP or not self._terminal.lend(child.pid):
            self._terminal.take_back()
            stop_as_by(signum, -os.getpgrp())
            if self._held.lost:
                return
            self._terminal.lend(child.pid)
        child.send(signal.SIGCONT)

    def _let_go(self) -> None:
        release = Release(self._held, self._interrupts.wake)
        release.start()
        now, end = clock.now(), self._held.lease.end
        limit = max(min(now + _RELEASE_WITHIN, end), now + _RELEASE_AT_LEAST)
        while not release.is_over.is_set() and clock.now() < limit:
            if ENDING.intersection(self._interrupts.wait(limit - clock.now())):
                limit = min(limit, clock.now() + _RELEASE_AT_LEAST)
        if self._is_lost:
            return
        if isinstance(release.error, LockLost):
            self._is_lost = True
            self._say(str(release.error))
        elif release.error is not None or not release.is_over.is_set():
            left = max(end - clock.now(), 0)
            why = release.error or "Redis does not answer"
            self._say(f"cannot release the lock, which ends with its lease in {left:.1f} s: {why}")
