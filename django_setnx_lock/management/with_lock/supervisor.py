"""Run a command under a lock that is held: watch both, and end the one when the other is lost."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence

from django_setnx_lock.core import clock
from django_setnx_lock.core.errors import LockError, LockLost
from django_setnx_lock.core.locks.layered import LockHandle

from .arguments import Terms
from .child import Child, environment_for
from .interrupts import ENDING, Interrupts
from .messages import Messages

# The keys of a terminal that end a program: it sends them to the command as well.
_TYPED = frozenset({signal.SIGINT, signal.SIGQUIT})
_INSISTING = frozenset({signal.SIGINT, signal.SIGTERM})
# What comes from it may end by one that it does not expect.
_FOR_COMMAND_ALONE = frozenset({signal.SIGUSR1, signal.SIGUSR2})
# A signal that comes sooner is a copy of the same, as timeout(1) sends them.
_ANOTHER_AFTER = 0.2
# All are stopped for a signal. For so long one may believe that another one has been stopped by a
# user, and stop itself, as su(1) does.
_STOPPING = 2.0
# For so long the rest of a killed group is waited for, if there is no lock to keep for it.
_DYING = 1.0
# How often in a lease, and after how many seconds at the most, the lock is looked after.
_LOOKS, _LONGEST_LOOK = 60, 0.5
# How long the first attempt to renew has after a pause of the whole machine.
_LONGEST_CHANCE = 10.0


class Supervisor:
    """Runs a command under the lock ``held``, and releases that when the command has ended.

    Then ``child`` tells how it ended, and ``is_lost`` whether the lock was lost.
    """

    child: Child
    is_lost = False
    # When it is killed, once it was asked to end, and when it was.
    _kill_at = math.inf
    _killed_at: float | None = None
    # By INT or TERM, and when it was first asked to end by one of them.
    _asked: tuple[int, float] | None = None
    _has_heard_request = _has_told_of_guard = False
    # Until when all are continued.
    _continues_until = 0.0
    # Since when it is tried in vain to renew it, and why in vain, if that was said.
    _tried_since: float | None = None
    _told_of: object = None

    def __init__(
        self, held: LockHandle, interrupts: Interrupts, said: Messages, terms: Terms
    ) -> None:
        self._held = held
        self._interrupts = interrupts
        self._said = said
        self._terms = terms
        held.on_trouble = interrupts.wake

    def run(self, command: Sequence[str], *, is_program: bool) -> None:
        """Return when the command has ended, and all that it has started.

        ``is_program``: whether this process does nothing else. Where the command is not started,
        raises CannotRun, Interrupted when a signal came, LockLost when the lease was over by then.
        """
        held = self._held
        # Unless the command is started.
        held.grant.was_in_vain = True
        try:
            if held.lost:
                self.is_lost = True
                message = f"the lease of {held.key!r} was over before the command was started"
                raise LockLost(message, key=held.key)
            environment = environment_for(held, is_program=is_program)
            self.child = Child(command, environment, adopts=is_program)
            try:
                self._interrupts.check()
                self.child.begin()
                held.grant.was_in_vain = False
                self._watch()
            except BaseException:
                self.child.kill()
                self.child.wait()
                raise
            finally:
                self.child.close()
            if self.child.failure is not None:
                held.grant.was_in_vain = True
                raise self.child.failure
        finally:
            self._let_go()

    def _let_go(self) -> None:
        held = self._held
        try:
            held.release()
        except LockLost as error:
            if not self.is_lost:
                self._said.say(str(error))
            self.is_lost = True
        except LockError as error:
            left = max(held.grant.end - clock.now(), 0)
            message = f"cannot release the lock, which ends with its lease in {left:.1f} s: {error}"
            self._said.say(message)

    def _watch(self) -> None:
        look = min(self._held.timeout / _LOOKS, _LONGEST_LOOK)
        while not self._has_ended():
            until_kill = max(self._kill_at - clock.now(), 0)
            came = self._interrupts.wait(min(look, until_kill), self.child.connection)
            # First of all: we may have been stopped until after the end of the lease.
            self._look_after_lock()
            self._look_at_request()
            if clock.now() >= self._kill_at:
                self._kill("did not end in time and ")
            for signum in came:
                self._pass_on(signum)
            if clock.now() < self._continues_until:
                self.child.send_to_all(signal.SIGCONT)

    def _has_ended(self) -> bool:
        child = self.child
        child.look()
        if child.was_unguarded and not self._has_told_of_guard:
            self._has_told_of_guard = True
            what = f"what guards {child.program} was killed, and so is all that it has started"
            self._said.say(what)
        if child.status is None:
            return False
        killed_at = self._killed_at
        if self.is_lost and killed_at is not None and clock.now() > killed_at + _DYING:
            return True
        return child.is_extinct()

    def _gives_up_at(self, now: float) -> float:
        """Return when, on ``clock``, the command is asked to end unless that is renewed before.

        That is as the terms say before the lease's end; but the first attempt to renew after a
        pause of the whole machine has until shortly before it.
        """
        grant, terms = self._held.grant, self._terms
        early, latest = grant.end - terms.notice, grant.end - terms.margin
        if grant.trouble is None and now < grant.due:
            self._tried_since = None
            return early if now < early else latest
        if self._tried_since is None:
            # This process may have stood still until now.
            self._tried_since = now
        chance = min(grant.lease / 6, _LONGEST_CHANCE)
        return min(max(early, self._tried_since + chance), latest)

    def _pass_on(self, signum: int) -> None:
        """Pass it on as is due."""
        if signum not in ENDING or (signum in _TYPED and self.child.status is None):
            return
        if signum in _INSISTING:
            if self._asked is not None:
                before, at = self._asked
                if signum != before or clock.now() >= at + _ANOTHER_AFTER:
                    self._kill()
                return
            self._asked = (signum, clock.now())
        if signum not in _FOR_COMMAND_ALONE:
            self._send_to_all(signum)
        elif self._kill_at == math.inf:
            # One that is to end hears of nothing else.
            self.child.send(signum)

    def _send_to_all(self, signum: int) -> None:
        self.child.send_to_all(signum)
        self._continues_until = clock.now() + _STOPPING

    def _look_after_lock(self) -> None:
        now, held, grant = clock.now(), self._held, self._held.grant
        if self.is_lost:
            return
        if held.loss is not None or now >= self._gives_up_at(now):
            self.is_lost = True
            trouble = grant.trouble or "Redis does not answer"
            why = f"the lock {held.key!r} could not be renewed before its lease ends: {trouble}"
            loss = held.loss
            if loss is None:
                # The command ends in what is left of the lease, which nobody renews any more.
                loss = grant.lose(grant.ran_out() if held.lost else LockLost(why, key=held.key))
            kill_at = min(now + self._terms.kill_after, grant.end - self._terms.margin)
            self._ask_to_end(str(loss), kill_at)
        elif grant.trouble is not self._told_of:
            self._told_of = grant.trouble
            left = self._gives_up_at(now) - now
            if grant.trouble is not None:
                self._said.say(
                    f"cannot renew the lock, trying on for {left:.1f} s: {grant.trouble}"
                )

    def _look_at_request(self) -> None:
        """End the command, once, if an operator asks for that. The lock is kept until it ends."""
        asked = self._held.stop_requested
        if asked is not None and not self._has_heard_request and not self.is_lost:
            self._has_heard_request = True
            self._ask_to_end(str(asked), clock.now() + self._terms.kill_after)

    def _ask_to_end(self, why: str, kill_at: float) -> None:
        """Ask it to end, and have it killed at ``kill_at``; never later than said before."""
        self._said.say(f"{why}; {self.child.program} is terminated")
        if self._killed_at is not None:
            return
        if self._kill_at == math.inf:
            self._send_to_all(signal.SIGTERM)
        self._kill_at = min(self._kill_at, kill_at)

    def _kill(self, why: str = "") -> None:
        """Kill it now; tell ``why``, unless nothing is said, or what is left are its children."""
        if self._killed_at is not None:
            return
        self._kill_at, self._killed_at = math.inf, clock.now()
        allowed = self.child.kill()
        if self.child.status is not None or (allowed and not why):
            return
        end = "is killed" if allowed else "may not be killed by us: it runs on"
        self._said.say(f"{self.child.program} {why}{end}")
