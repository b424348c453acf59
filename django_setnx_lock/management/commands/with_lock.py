"""``manage.py with_lock [options] KEY [--] CMD [ARG...]``: run a command under a lock."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from typing import Any, NoReturn

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_setnx_lock.core import clock
from django_setnx_lock.core.errors import (
    LockBusy,
    LockError,
    LockLost,
    LockUnavailable,
    LockUnsupported,
)
from django_setnx_lock.core.held import Held
from django_setnx_lock.core.lock import RedisLock
from django_setnx_lock.core.redlock import Redlock
from django_setnx_lock.locks import inspector, key_prefix, lock
from django_setnx_lock.management import messages, statuses
from django_setnx_lock.management.arguments import WithLockParser
from django_setnx_lock.management.child import CannotRun, locate
from django_setnx_lock.management.interrupts import Interrupted, Interrupts
from django_setnx_lock.management.messages import Messages
from django_setnx_lock.management.options import STATUSES, add_options, check, terms_of
from django_setnx_lock.management.running import Program, program_of
from django_setnx_lock.management.supervisor import Supervisor
from django_setnx_lock.management.terms import Terms
from django_setnx_lock.management.wording import holding, user_name


class ChildFailed(CommandError):
    """The command ran under the lock, and did not end with status 0."""


class Command(BaseCommand):
    help = (
        "Runs CMD while holding the lock KEY, and exits as CMD does; waits for the lock if "
        "somebody else has it."
    )
    # A cron job should not pay for them every time, and not fail for a matter of another app.
    requires_system_checks = ()
    _is_program = False

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
        super().run_from_argv(argv)

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except CommandError as error:
            if not self._is_program:
                raise
            if not isinstance(error, ChildFailed):
                if options["traceback"]:
                    traceback.print_exc()
                self._messages(options).say(
                    str(error), messages.ERROR, key=options["key"], status=error.returncode
                )
            sys.exit(error.returncode)

    def handle(self, *args: Any, **options: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            refuse("with_lock works in the main thread only; elsewhere use `with lock(...)`")
        try:
            status, name = self._run(options)
        except (CannotRun, Interrupted, LockError) as error:
            raise CommandError(str(error), returncode=_status_of(error)) from error
        if status:
            raise ChildFailed(f"{name} ended with status {status}", returncode=status)

    def _run(self, options: dict[str, Any]) -> tuple[int, str]:
        try:
            prefix = key_prefix()
        except ImproperlyConfigured as error:
            raise CommandError(str(error), returncode=statuses.MISCONFIGURED) from error
        try:
            check(options, prefix)
        except (TypeError, ValueError) as error:
            refuse(str(error))
        program = program_of(options, is_program=self._is_program)
        lock, terms = self._lock(program, options)
        # Not only after a wait, which would be for nothing.
        locate(program.command[0])
        said, name = self._messages(options), os.path.basename(program.command[0])
        with Interrupts() as interrupts:
            held = self._take(lock, interrupts, options)
            # When the command must end is reckoned from the whole lease.
            held.lease.settle()
            began = clock.now()
            key, fence = held.key, _fence(held)
            with_fence = f" with fence {fence}" if fence is not None else ""
            said.say(f"has taken {key!r}{with_fence}", messages.TAKEN, key=key, fence=fence)
            status = Supervisor(held, interrupts, said, terms, is_program=self._is_program).run(
                program.command
            )
        held_for = round(clock.now() - began, 3)
        said.say(
            f"has let go of {held.key!r} after {held_for:.1f} s; {name} ended with status {status}",
            messages.ENDED,
            key=held.key,
            status=status,
            held_for=held_for,
        )
        return status, name

    def _lock(self, program: Program, options: dict[str, Any]) -> tuple[RedisLock, Terms]:
        try:
            made = lock(
                options["key"],
                timeout=options["timeout"],
                min_hold=options["min_hold"],
                replicas=options["replicas"],
                using=_aliases(options["using"]),
                label=program.label,
                user=user_name(),
                note=options["note"],
                # Whatever RENEW says: the command may take longer than the lease.
                renew=True,
                shared=options["shared"],
                limit=options["limit"],
            )
        except (ImproperlyConfigured, TypeError, ValueError) as error:
            # What was given here is checked, so that the fault is in the settings.
            raise CommandError(str(error), returncode=statuses.MISCONFIGURED) from error
        try:
            return made, terms_of(options, made.timeout)
        except ValueError as error:
            refuse(str(error))

    def _take(self, lock: RedisLock, interrupts: Interrupts, options: dict[str, Any]) -> Held:
        limit: float | None = 0 if options["nonblock"] else options["wait"]
        try:
            return interrupts.take(lock, limit or 0)
        except LockBusy as busy:
            seen = None
            with interrupts.raising(), contextlib.suppress(LockUnavailable):
                if not isinstance(lock, Redlock):
                    seen = inspector(options["using"]).get(lock.name)
            whom = holding(busy, seen)
            if limit is not None:
                message = f"{lock.key!r} is {whom}"
                raise CommandError(message, returncode=options["busy_code"]) from busy
        self._messages(options).say(
            f"waiting for {lock.key!r}, {whom}", messages.WAITING, key=lock.key
        )
        return interrupts.take(lock, None)

    def _messages(self, options: dict[str, Any]) -> Messages:
        return Messages(self.stderr, as_json=options["json"], verbosity=options["verbosity"])


def _aliases(using: str | None) -> str | list[str] | None:
    return using.split(",") if using and "," in using else using


def _fence(held: Held) -> int | None:
    """The fencing number; None for a lock on several masters, which has none."""
    try:
        return held.fence
    except LockUnsupported:
        return None


def refuse(message: str) -> NoReturn:
    raise CommandError(message, returncode=statuses.USAGE)


def _status_of(error: CannotRun | Interrupted | LockError) -> int:
    if isinstance(error, CannotRun):
        return error.status
    if isinstance(error, Interrupted):
        return statuses.killed_by(error.signum)
    if isinstance(error, LockLost):
        return statuses.LOST
    # Else it was asked for in a way in which it cannot be had, as alone by one who reads.
    return statuses.UNAVAILABLE if isinstance(error, LockUnavailable) else statuses.USAGE
