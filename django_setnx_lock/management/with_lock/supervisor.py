"""Run a command under a lock that is held: watch both, and end the one when the other is lost."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django_setnx_lock.core import clock
from django_setnx_lock.core.errors import LockError, LockLost
from django_setnx_lock.core.locks.layered import LockHandle
from django_setnx_lock.management import statuses

from .arguments import Terms
from .child import Child, environment_for
from .interrupts import ENDING, RARE, Interrupts
from .messages import Messages

# A shell does the same: a stopped process could not react.
_CONTINUING = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM})
# The keys of a terminal that end a program: it sends them to the command as well.
_TYPED = frozenset({signal.SIGINT, signal.SIGQUIT})
_INSISTING = frozenset({signal.SIGINT, signal.SIGTERM})
# A signal that comes sooner is a copy of the same, as timeout(1) sends them.
_ANOTHER_AFTER = 0.2
# For so long the rest of a killed group is waited for, if there is no lock to keep for it.
_DYING = 1.0
_SHORTEST_LOOK, _LONGEST_LOOK = 0.01, 0.5
# How long the first attempt to renew has after a pause of the whole machine.
_LONGEST_CHANCE = 10.0
# The release is waited for until the lease ends, but for so long at the most and at the least.
_RELEASE_WITHIN, _RELEASE_AT_LEAST = 10.0, 0.5


@dataclass(frozen=True)
class Outcome:
    """How it went."""

    # That of with_lock; that of the command differs when it was ended for us.
    status: int
    child_status: int = 0
    # The signal that gave it, or 0.
    ended_by: int = 0
    is_lost: bool = False


def supervise(
    command: Sequence[str],
    held: LockHandle,
    interrupts: Interrupts,
    said: Messages,
    terms: Terms,
    *,
    is_program: bool,
) -> Outcome:
    """Run ``command`` under the lock ``held``, and release that when the command has ended.

    ``is_program``: whether this process does nothing else. Before the command is started, raises
    CannotRun, Interrupted when a signal came, LockLost when the lease was over by then.
    """
    held.on_trouble = interrupts.wake
    watch: Watch | None = None
    is_lost = False
    try:
        if held.lost:
            is_lost = True
            message = f"the lease of {held.key!r} was over before the command was started"
            raise LockLost(message, key=held.key)
        environment = environment_for(held, is_program=is_program)
        child = Child(command, environment, adopts=is_program, before_start=interrupts.check)
        try:
            watch = Watch(child, held, interrupts, said, terms)
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
            held.grant.was_in_vain = True
        is_lost = _let_go(held, interrupts, said, is_lost=is_lost)
    child_status = child.status or 0
    if is_lost:
        return Outcome(statuses.LOST, child_status, is_lost=True)
    return Outcome(child_status, child_status, child.ended_by)


def _let_go(held: LockHandle, interrupts: Interrupts, said: Messages, *, is_lost: bool) -> bool:
    """Release the lock; return whether it is lost, or was found to be."""
    release = Release(held, interrupts.wake)
    release.start()
    now, end = clock.now(), held.grant.end
    limit = max(min(now + _RELEASE_WITHIN, end), now + _RELEASE_AT_LEAST)
    while not release.is_over.is_set() and clock.now() < limit:
        if ENDING.intersection(interrupts.wait(limit - clock.now())):
            limit = min(limit, clock.now() + _RELEASE_AT_LEAST)
    if is_lost:
        return True
    if isinstance(release.error, LockLost):
        said.say(str(release.error))
        return True
    if release.error is not None or not release.is_over.is_set():
        left = max(end - clock.now(), 0)
        why = release.error or "Redis does not answer"
        said.say(f"cannot release the lock, which ends with its lease in {left:.1f} s: {why}")
    return False


@dataclass(eq=False)
class Watch:
    """Watches a command and its lock, until all that it has started has ended."""

    _child: Child
    _held: LockHandle
    _interrupts: Interrupts
    _said: Messages
    _terms: Terms
    is_lost: bool = False
    # When it is killed, once it was asked to end, and when it was.
    _kill_at: float = math.inf
    _killed_at: float | None = None
    _look_again: float = _SHORTEST_LOOK
    # By INT or TERM, and when it was first asked to end by one of them.
    _asked: tuple[int, float] | None = None
    _has_told_of_guard: bool = False
    _has_heard_request: bool = False
    # Since when it is tried in vain to renew it, and when that was said before.
    _tried_since: float | None = None
    _told_of: float | None = None

    def until_extinct(self) -> None:
        """Return when the command has ended, and all that it has started."""
        while not self._has_ended():
            came = self._interrupts.wait(self._pause(), self._child.connections)
            # First of all: we may have been stopped until after the end of the lease.
            self._look_after_lock()
            self._look_at_request()
            for signum in came:
                self._pass_on(signum)
            self._kill_if_due()

    def _has_ended(self) -> bool:
        self._child.look()
        if self._child.was_unguarded and not self._has_told_of_guard:
            self._has_told_of_guard = True
            self._said.say(
                f"what guards {self._child.program} was killed, and so is all that it has started"
            )
        if self._child.status is None:
            return False
        killed_at = self._killed_at
        if self.is_lost and killed_at is not None and clock.now() > killed_at + _DYING:
            return True
        return self._child.is_extinct()

    def _pause(self) -> float:
        now = clock.now()
        until = self._kill_at
        if not self.is_lost:
            until = min(until, self._gives_up_at(now))
            if now < self._held.grant.due:
                # To see since when it is renewed in vain.
                until = min(until, self._held.grant.due)
        if self._child.status is not None:
            # Nothing tells of the end of what is left when the guard was killed.
            until = min(until, now + self._look_again)
            self._look_again = min(self._look_again * 1.5, _LONGEST_LOOK)
        return max(until - now, 0)

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
        if signum not in ENDING or (signum in _TYPED and self._child.status is None):
            return
        if signum in _INSISTING and self._asked is not None:
            before, at = self._asked
            if signum != before or clock.now() >= at + _ANOTHER_AFTER:
                self._kill()
            return
        if signum in _INSISTING:
            self._asked = (signum, clock.now())
        if signum in _CONTINUING or signum in RARE:
            self._child.send_to_all(signum, signal.SIGCONT)
        elif self._kill_at == math.inf:
            # One that is to end hears of nothing else.
            self._child.send(signum)

    def _look_after_lock(self) -> None:
        now, grant = clock.now(), self._held.grant
        if self.is_lost:
            return
        if self._held.loss is not None or now >= self._gives_up_at(now):
            self.is_lost = True
            self._on_loss(now)
        elif grant.trouble is not None and self._told_of != self._tried_since:
            self._told_of = self._tried_since
            left = self._gives_up_at(now) - now
            self._said.say(f"cannot renew the lock, trying on for {left:.1f} s: {grant.trouble}")

    def _look_at_request(self) -> None:
        """End the command, once, if an operator asks for that. The lock is kept until it ends."""
        asked = self._held.stop_requested
        if asked is None or self._has_heard_request or self.is_lost:
            return
        self._has_heard_request = True
        self._said.say(f"{asked}; {self._child.program} is terminated")
        self._ask_to_end(clock.now() + self._terms.kill_after)

    def _on_loss(self, now: float) -> None:
        terms, held = self._terms, self._held
        if held.lost:
            why = str(held.loss or held.grant.ran_out())
        else:
            trouble = self._held.grant.trouble or "Redis does not answer"
            why = f"the lock {held.key!r} could not be renewed before its lease ends: {trouble}"
        self._said.say(f"{why}; {self._child.program} is terminated")
        self._ask_to_end(min(now + terms.kill_after, self._held.grant.end - terms.margin))
        self._kill_if_due()

    def _ask_to_end(self, kill_at: float) -> None:
        """Ask it to end, and have it killed at ``kill_at``; never later than said before."""
        if self._killed_at is not None:
            return
        if self._kill_at == math.inf:
            self._child.send_to_all(signal.SIGTERM, signal.SIGCONT)
        self._kill_at = min(self._kill_at, kill_at)

    def _kill_if_due(self) -> None:
        if clock.now() >= self._kill_at:
            self._kill("did not end in time and ")

    def _kill(self, why: str = "") -> None:
        """Kill it now; tell ``why``, unless nothing is said, or what is left are its children."""
        if self._killed_at is not None:
            return
        self._kill_at, self._killed_at = math.inf, clock.now()
        allowed = self._child.kill()
        if self._child.status is not None or (allowed and not why):
            return
        end = "is killed" if allowed else "may not be killed by us: it runs on"
        self._said.say(f"{self._child.program} {why}{end}")


class Release(threading.Thread):
    """Lets ``held`` go, then calls ``changed``; ``error``: why it could not.

    A server that does not answer is not to keep the main thread from signals.
    """

    def __init__(self, held: LockHandle, changed: Callable[[], object]) -> None:
        super().__init__(name="with_lock-release", daemon=True)
        self.is_over = threading.Event()
        self.error: LockError | None = None
        self._held = held
        self._changed = changed

    def start(self) -> None:
        """Begin; where no thread can be started, do all of it now."""
        try:
            super().start()
        except RuntimeError:
            self.run()

    def run(self) -> None:
        try:
            self._held.release()
        except LockError as error:
            self.error = error
        finally:
            self.is_over.set()
            self._changed()
