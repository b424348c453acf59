"""Looks after a command that runs under a lock, and after the lock, until both are done with."""

from __future__ import annotations

import math
import os
import signal
from typing import Literal

from django_setnx_lock.core import clock
from django_setnx_lock.core.held import Held

from . import messages
from .child import Child
from .ending import Ending
from .giving_up import gives_up_at
from .interrupts import ENDING, Interrupts, stop_as_by
from .messages import Messages
from .terminal import Terminal
from .terms import IGNORE, KILL, Terms

_JOB_CONTROL = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
# As kill(1) in a shell: a stopped process could not react.
_CONTINUING = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})
_INSISTING = frozenset({signal.SIGINT, signal.SIGTERM})
# One that comes sooner is another copy of the same, as timeout(1) sends them.
_ANOTHER_AFTER = 0.2
# What is left of a killed group is waited for so long, if there is no lock to keep for it.
_DYING = 1.0
# What ends so soon after the command is not told of.
_SETTLING = 1.0
_SHORTEST_LOOK, _LONGEST_LOOK = 0.01, 0.5


class Watch:
    """Watches ``child``. ``is_lost``: whether the lock was lost while it ran; ``has_timed_out``:
    whether it was ended as it had run for long enough.
    """

    def __init__(
        self, child: Child, held: Held, interrupts: Interrupts, messages: Messages, terms: Terms
    ) -> None:
        self.is_lost = self.has_timed_out = False
        self._child = child
        self._held = held
        self._interrupts = interrupts
        self._messages = messages
        self._terms = terms
        self._ending = Ending(child, messages.say)
        self._terminal = Terminal()
        self._time_is_up = math.inf if terms.max_time is None else clock.now() + terms.max_time
        self._look_again = _SHORTEST_LOOK
        # By INT or TERM, and when it was first asked to end by one of them.
        self._asked: tuple[int, float] | None = None
        self._ended_at: float | None = None
        self._has_told_of_guard = self._has_told_of_rest = False
        # Since when what we have told of has been tried in vain.
        self._told_of: float | None = None

    def until_extinct(self) -> None:
        """Return when the command has ended, and all that it has started."""
        try:
            if not self._terms.foreground and not self._terminal.is_shared():
                self._lend()
            while not self._has_ended():
                came = self._interrupts.wait(self._pause(), self._child.connections)
                # First of all: we may have been stopped until after the end of the lease.
                self._look_after_lock()
                for signum in came:
                    self._pass_on(signum)
                self._look_at_time()
        finally:
            self._terminal.close()

    def _has_ended(self) -> bool:
        stopped_by = self._child.look()
        if stopped_by in _JOB_CONTROL:
            self._on_stop(stopped_by)
        if self._child.was_unguarded and not self._has_told_of_guard:
            self._has_told_of_guard = True
            self._messages.say(
                f"what guards {self._child.program} was killed, and so is all that it has started"
            )
        if self._child.status is None:
            return False
        # As a shell does. What is left gets the keys from us, in whatever group it is.
        self._terminal.take_back()
        if self._terms.main_only:
            self._child.leave()
            return True
        killed_at = self._ending.killed_at
        if self.is_lost and killed_at is not None and clock.now() > killed_at + _DYING:
            return True
        return self._child.is_extinct() or self._tell_of_rest()

    def _tell_of_rest(self) -> Literal[False]:
        """Tell once what the lock is kept for, when the command has ended for a while."""
        now = clock.now()
        if self._ended_at is None:
            self._ended_at = now
        if not self._has_told_of_rest and now >= self._ended_at + _SETTLING:
            self._has_told_of_rest = True
            left = self._child.left()
            whom = ", ".join(f"{each.name.decode(errors='replace')} ({each.pid})" for each in left)
            self._messages.say(
                f"{self._child.program} ended with status {self._child.status}; what it has "
                f"started has not, and keeps the lock: {whom}",
                messages.KEPT,
                key=self._held.key,
                pids=[each.pid for each in left],
            )
        return False

    def _pause(self) -> float:
        now = clock.now()
        until = min(self._ending.next, self._time_is_up)
        if not self.is_lost:
            until = min(until, self._gives_up_at(now))
        if self._child.status is not None:
            # Nothing tells of the end of what is left when both guards were killed.
            until = min(until, now + self._look_again)
            self._look_again = min(self._look_again * 1.5, _LONGEST_LOOK)
        return max(until - now, 0)

    def _gives_up_at(self, now: float) -> float:
        return gives_up_at(self._held.lease, now, self._terms.notice, self._terms.margin)

    def _pass_on(self, signum: int) -> None:
        if signum not in ENDING and signum != signal.SIGTSTP:
            return
        if signum in _INSISTING and self._asked is not None:
            before, at = self._asked
            if signum != before or clock.now() >= at + _ANOTHER_AFTER:
                self._ending.kill()
            return
        if signum in _INSISTING:
            self._asked = (signum, clock.now())
        if self._terms.foreground and self._is_typed(signum):
            return
        if signum in _CONTINUING:
            self._child.send_to_all(signum, signal.SIGCONT)
        else:
            self._child.send(signum)

    def _is_typed(self, signum: int) -> bool:
        """Whether it is one of a terminal's keys, which has sent it to the child as well."""
        typed = {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP}
        return signum in typed and self._terminal.has_us()

    def _look_at_time(self) -> None:
        now = clock.now()
        if now >= self._time_is_up:
            self._time_is_up = math.inf
            self.has_timed_out = True
            self._messages.say(f"{self._child.program} has run for long enough and is terminated")
            self._ending.ask(now + self._terms.kill_after)
        self._ending.look()

    def _look_after_lock(self) -> None:
        now, lease = clock.now(), self._held.lease
        if self.is_lost:
            return
        if self._held.loss is not None or now >= self._gives_up_at(now):
            self.is_lost = True
            self._on_loss(now)
        elif lease.trouble is not None and self._told_of != lease.tried_since:
            self._told_of = lease.tried_since
            left = self._gives_up_at(now) - now
            self._messages.say(
                f"cannot renew the lock, trying on for {left:.1f} s: {lease.trouble}"
            )

    def _on_loss(self, now: float) -> None:
        on_lost, terms = self._terms.on_lost, self._terms
        what = {IGNORE: "runs on without the lock", KILL: "is killed"}.get(on_lost, "is terminated")
        self._messages.say(
            f"{self._why_lost()}; {self._child.program} {what}",
            messages.LOST,
            key=self._held.key,
        )
        if on_lost == KILL:
            self._ending.kill()
        elif on_lost != IGNORE:
            self._ending.ask(min(now + terms.kill_after, self._held.lease.end - terms.margin))
            self._ending.look()

    def _why_lost(self) -> str:
        held = self._held
        if held.lost:
            return str(held.loss or held.ran_out())
        why = held.lease.trouble or "Redis does not answer"
        return f"the lock {held.key!r} could not be renewed before its lease ends: {why}"

    def _lend(self) -> None:
        if self._terminal.lend(self._child.pid):
            # It may have been stopped for reading before the terminal was lent.
            self._child.send(signal.SIGCONT)

    def _on_stop(self, signum: int) -> None:
        lends = not self._terms.foreground
        if signum == signal.SIGTSTP or not (lends and self._terminal.lend(self._child.pid)):
            self._terminal.take_back()
            stop_as_by(signum, -os.getpgrp())
            if self._held.lost and self._terms.on_lost != IGNORE:
                return
            if lends:
                self._terminal.lend(self._child.pid)
        self._child.send(signal.SIGCONT)
