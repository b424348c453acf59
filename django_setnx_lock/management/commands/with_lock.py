"""``manage.py with_lock [options] KEY [--] CMD [ARG...]``: run a command under a lock."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_setnx_lock.core import clock
from django_setnx_lock.core.errors import LockBusy, LockError, LockLost, LockUnavailable
from django_setnx_lock.core.inspection.lock_info import LockInfo
from django_setnx_lock.core.locks.layered import LockHandle, RedisLock
from django_setnx_lock.core.locks.redlock import Redlock
from django_setnx_lock.locks import inspector, key_prefix, make_one
from django_setnx_lock.management import statuses
from django_setnx_lock.management.with_lock.arguments import (
    STATUSES,
    WithLockParser,
    add_options,
    check,
    lock_options,
    terms_of,
)
from django_setnx_lock.management.with_lock.child import fence_of, label_for, locate
from django_setnx_lock.management.with_lock.interrupts import Interrupted, Interrupts, end_as_by
from django_setnx_lock.management.with_lock.messages import Messages
from django_setnx_lock.management.with_lock.supervisor import Supervisor
from django_setnx_lock.management.wording import holding, user_name

# Causes that may pass while one waits.
_PASSING = frozenset({"unreachable", "timeout", "readonly"})
# Between two tries of a caller that waits while Redis is away, in seconds.
_PAUSE = 0.5


class ChildFailed(CommandError):
    """The command ran under the lock, and did not end with status 0."""


class Busy(CommandError):
    """Somebody else has the lock."""


class Command(BaseCommand):
    help = (
        "Runs CMD while holding the lock KEY, and exits as CMD does; waits for the lock if "
        "somebody else has it."
    )
    # A cron job should not pay for them every time, and not fail for a matter of another app.
    requires_system_checks = ()
    # What the parser makes of the words of the line.
    stealth_options = ("key", "command")
    _is_program = False
    # The signal that gave our status, or 0.
    _ended_by = 0

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        base = super().create_parser(prog_name, subcommand, add_help=False, **kwargs)
        return WithLockParser(
            prog=base.prog,
            description=base.description,
            formatter_class=base.formatter_class,
            called_from_command_line=base.called_from_command_line,
            parents=[base],
            epilog=STATUSES,
        )

    def add_arguments(self, parser: CommandParser) -> None:
        add_options(parser)

    def run_from_argv(self, argv: list[str]) -> None:
        self._is_program = True
        try:
            super().run_from_argv(argv)
        except SystemExit:
            # A shell stops a script or a loop at Ctrl-C only for what the signal itself has ended.
            # Other code that calls us with a line of its own is not to end.
            if self._ended_by and argv == sys.argv:
                end_as_by(self._ended_by)
            raise

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except CommandError as error:
            if not self._is_program:
                raise
            if not isinstance(error, ChildFailed):
                if options["traceback"]:
                    traceback.print_exc()
                verbosity = 1 if isinstance(error, Busy) else 0
                Messages(self.stderr, options).say(str(error), verbosity)
            sys.exit(error.returncode)

    def handle(self, *args: Any, **options: Any) -> None:
        self._ended_by = 0
        try:
            self._run(options, Messages(self.stderr, options))
        except Interrupted as error:
            self._ended_by = error.signum
            status = statuses.killed_by(error.signum)
            raise CommandError(str(error), returncode=status) from error
        except LockError as error:
            if isinstance(error, LockLost):
                status = statuses.LOST
            elif isinstance(error, LockUnavailable):
                status = statuses.UNAVAILABLE
            else:
                # It was asked for in a way in which it cannot be had, as alone by one who reads.
                status = statuses.USAGE
            raise CommandError(str(error), returncode=status) from error

    def _run(self, options: dict[str, Any], said: Messages) -> None:
        if threading.current_thread() is not threading.main_thread():
            message = "with_lock works in the main thread only; elsewhere use `with lock(...)`"
            raise CommandError(message, returncode=statuses.USAGE)
        with statuses.given_for(ImproperlyConfigured, statuses.MISCONFIGURED):
            prefix = key_prefix()
        with statuses.given_for(ValueError, statuses.USAGE):
            check(options, prefix)
            command = options["command"]
            given = lock_options(options, label_for(command))
        # The options given here are checked by now, so the fault is in the settings.
        faults = (ImproperlyConfigured, TypeError, ValueError)
        with statuses.given_for(faults, statuses.MISCONFIGURED):
            # It says itself whom it waits for.
            made = make_one(options["key"], given, user=user_name(), wait_warning=None)
        with statuses.given_for(ValueError, statuses.USAGE):
            terms = terms_of(options, made.timeout)
        # Not only after a wait, which would be for nothing.
        locate(command[0])
        name = os.path.basename(command[0])
        with Interrupts() as interrupts:
            held = _take(made, interrupts, options, said)
            began, key, fence = clock.now(), held.key, fence_of(held)
            with_fence = f" with fence {fence}" if fence is not None else ""
            said.say(f"has taken {key!r}{with_fence}", verbosity=2)
            supervisor = Supervisor(held, interrupts, said, terms)
            supervisor.run(command, is_program=self._is_program)
        child, held_for = supervisor.child, clock.now() - began
        how = "lost" if supervisor.is_lost else "let go of"
        said.say(
            f"has {how} {key!r} after {held_for:.1f} s; {name} ended with status {child.status}",
            verbosity=2,
        )
        self._ended_by = 0 if supervisor.is_lost else child.ended_by
        if status := statuses.LOST if supervisor.is_lost else child.status:
            raise ChildFailed(f"{name} ended with status {status}", returncode=status)


def _take(
    lock: RedisLock, interrupts: Interrupts, options: Mapping[str, Any], said: Messages
) -> LockHandle:
    """Take ``lock``; a wait goes on while Redis is away for a part of its time."""
    limit: float | None = 0 if options["nonblock"] else options["wait"]
    end = math.inf if limit is None else clock.now() + limit
    blocking_timeout: float | None = 0
    has_waited = is_told = False
    while True:
        try:
            return interrupts.take(lock, blocking_timeout)
        except LockBusy as busy:
            is_over = has_waited or limit == 0
            whom = holding(busy, _look(lock, options)) if is_over or limit is None else ""
            if is_over:
                message = f"{lock.key!r} is {whom}"
                raise Busy(message, returncode=options["busy_code"]) from busy
            if whom:
                said.say(f"waiting for {lock.key!r}, {whom}", verbosity=1)
        except LockUnavailable as error:
            left = end - clock.now()
            if not has_waited or error.cause not in _PASSING or left <= 0:
                raise
            if not is_told:
                is_told = True
                said.say(f"still waiting for {lock.key!r}: {error}")
            interrupts.check(min(_PAUSE, left))
        has_waited = True
        blocking_timeout = None if limit is None else max(end - clock.now(), 0)


def _look(lock: RedisLock, options: Mapping[str, Any]) -> LockInfo | None:
    """Look at the lock in Redis; return None where that cannot be done."""
    with contextlib.suppress(LockUnavailable):
        if not isinstance(lock, Redlock):
            return inspector(options["using"]).get(lock.name)
    return None
