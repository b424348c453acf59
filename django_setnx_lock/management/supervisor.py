"""Runs a command under a lock that is held, and ends it when the lock is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from django_setnx_lock.core import clock, inheritance
from django_setnx_lock.core.errors import LockLost, LockUnsupported
from django_setnx_lock.core.held import Held

from . import messages, statuses
from .child import Child
from .giving_up import Release
from .interrupts import ENDING, Interrupts
from .messages import Messages
from .terms import Terms
from .watching import Watch

_RELEASE_WITHIN = 10.0
_RELEASE_AT_LEAST = 0.5


class Supervisor:
    """Runs one command under the lock ``held``, which is released when the command has ended.

    ``held`` is renewed by the watchdog, which wakes us by ``interrupts`` when it cannot.
    ``is_program``: whether this process does nothing else.
    """

    def __init__(
        self,
        held: Held,
        interrupts: Interrupts,
        messages: Messages,
        terms: Terms,
        *,
        is_program: bool = False,
    ) -> None:
        self._held = held
        self._is_program = is_program
        self._interrupts = interrupts
        self._messages = messages
        self._terms = terms
        held.on_trouble = interrupts.wake

    def run(self, command: Sequence[str]) -> int:
        """Run ``command``. Gives its exit status, 76 when the lock was lost, or 124 when it had
        no more time.

        Before it is started: raises CannotRun, Interrupted when a signal came, LockLost when
        the lease was over by then.
        """
        watch: Watch | None = None
        is_lost = False
        try:
            self._interrupts.check()
            # From here on, Ctrl-Z has to stop the command first, and who goes on has to look.
            self._interrupts.catch(signal.SIGTSTP)
            self._interrupts.catch(signal.SIGCONT)
            if self._held.lost:
                is_lost = True
                message = f"the lease of {self._held.key!r} was over before the command was started"
                raise LockLost(message, key=self._held.key)
            terms = self._terms
            child = Child(
                command,
                self._environment(),
                foreground=terms.foreground,
                stdin=terms.stdin,
                adopts=self._is_program,
            )
            try:
                watch = Watch(child, self._held, self._interrupts, self._messages, terms)
                watch.until_extinct()
            except BaseException:
                child.kill()
                child.wait()
                raise
            finally:
                is_lost = watch is not None and watch.is_lost
                child.close()
        finally:
            if watch is None:
                self._held.forgo_min_hold()
            is_lost = self._let_go(is_lost)
        if is_lost:
            return statuses.LOST
        return statuses.TIMED_OUT if watch.has_timed_out else child.status or 0

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

    def _let_go(self, is_lost: bool) -> bool:
        """Release the lock; gives whether it is lost, or was found to be."""
        release = Release(self._held, self._interrupts.wake)
        release.start()
        now, end = clock.now(), self._held.lease.end
        limit = max(min(now + _RELEASE_WITHIN, end), now + _RELEASE_AT_LEAST)
        while not release.is_over.is_set() and clock.now() < limit:
            if ENDING.intersection(self._interrupts.wait(limit - clock.now())):
                limit = min(limit, clock.now() + _RELEASE_AT_LEAST)
        if is_lost:
            return True
        if isinstance(release.error, LockLost):
            self._messages.say(str(release.error), messages.LOST, key=self._held.key)
            return True
        if release.error is not None or not release.is_over.is_set():
            left = max(end - clock.now(), 0)
            why = release.error or "Redis does not answer"
            self._messages.say(
                f"cannot release the lock, which ends with its lease in {left:.1f} s: {why}"
            )
        return False
