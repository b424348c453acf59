"""``manage.py with_lock [options] KEY [--] CMD [ARG...]``: run a command under a lock."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from io import UnsupportedOperation
from typing import Any, NoReturn

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_setnx_lock.core import protocol
from django_setnx_lock.core.errors import LockBusy, LockError, LockLost, LockUnavailable
from django_setnx_lock.core.held import Held
from django_setnx_lock.core.keys import lock_keys, name_for
from django_setnx_lock.core.lock import RedisLock
from django_setnx_lock.core.redlock import Redlock
from django_setnx_lock.core.replicas import checked
from django_setnx_lock.core.shared import chosen
from django_setnx_lock.locks import inspector, key_prefix, lock
from django_setnx_lock.management import statuses
from django_setnx_lock.management.arguments import WithLockParser
from django_setnx_lock.management.child import CannotRun, locate
from django_setnx_lock.management.interrupts import Interrupted, Interrupts
from django_setnx_lock.management.supervisor import Supervisor
from django_setnx_lock.management.terminal import unstoppable
from django_setnx_lock.management.wording import holding, label_for, user_name


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
            epilog=(
                "Exit status: that of CMD; 64 wrong usage, 69 Redis unreachable, 75 busy, 76 lock "
                "lost, 78 misconfigured, 126 CMD cannot be executed, 127 CMD not found, 128+N "
                "ended by signal N."
            ),
        )

    def add_arguments(self, parser: CommandParser) -> None:
        waiting = parser.add_mutually_exclusive_group()
        waiting.add_argument(
            "-n",
            "--nonblock",
            action="store_true",
            help="Do not wait: exit with status 75 if somebody else holds the lock.",
        )
        waiting.add_argument(
            "-w",
            "--wait",
            type=float,
            metavar="SEC",
            help="Wait at most so many seconds, then exit with status 75. Default: no limit.",
        )
        parser.add_argument(
            "--timeout",
            type=float,
            metavar="SEC",
            help=(
                "The lease: how long the lock outlives a with_lock that cannot renew it. It is "
                "renewed as long as CMD runs. Default: TIMEOUT of SETNX_LOCK, 30."
            ),
        )
        parser.add_argument(
            "--min-hold",
            type=float,
            metavar="SEC",
            help=(
                "How long nobody else gets the lock, from when it was taken, even if CMD ends "
                "sooner. Default: not at all."
            ),
        )
        sharing = parser.add_mutually_exclusive_group()
        sharing.add_argument(
            "-s",
            "--shared",
            action="store_true",
            help=(
                "Hold it together with others who give --shared. Whoever does not waits for all of "
                "them, and they for him."
            ),
        )
        sharing.add_argument(
            "--limit",
            type=int,
            metavar="N",
            help=(
                "Hold it together with others who give --limit, N of them at most. All are to give "
                "the same N."
            ),
        )
        parser.add_argument(
            "--replicas",
            type=int,
            metavar="N",
            help=(
                "How many replicas have to acknowledge the lock before CMD is started. Default: "
                "REPLICAS of SETNX_LOCK, 0."
            ),
        )
        parser.add_argument(
            "--using",
            metavar="ALIAS",
            help=(
                "The cache to lock in, or several for a Redlock, as r1,r2,r3. "
                "Default: CACHE of SETNX_LOCK."
            ),
        )
        parser.add_argument(
            "--note", default="", metavar="TEXT", help="Shown to operators beside the holder."
        )

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
                self.say(str(error))
            sys.exit(error.returncode)

    def handle(self, *args: Any, **options: Any) -> None:
        key: str = options["key"]
        command: list[str] = options["command"]
        if threading.current_thread() is not threading.main_thread():
            refuse("with_lock works in the main thread only; elsewhere use `with lock(...)`")
        lock = self._lock(key, command, options)
        try:
            # Not only after a wait, which would be for nothing.
            locate(command[0])
            with Interrupts() as interrupts:
                held = self._take(lock, interrupts, options)
                # When the command must end is reckoned from the whole lease.
                held.lease.settle()
                status = Supervisor(held, interrupts, self.say).run(command)
        except (CannotRun, Interrupted, LockError) as error:
            raise CommandError(str(error), returncode=_status_of(error)) from error
        if status:
            name = os.path.basename(command[0])
            raise ChildFailed(f"{name} ended with status {status}", returncode=status)

    def _lock(self, key: str, command: Sequence[str], options: dict[str, Any]) -> RedisLock:
        try:
            _check(key, command, options)
            return lock(
                key,
                timeout=options["timeout"],
                min_hold=options["min_hold"],
                replicas=options["replicas"],
                using=_aliases(options["using"]),
                label=label_for(command),
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
                raise CommandError(message, returncode=statuses.BUSY) from busy
        self.say(f"waiting for {lock.key!r}, {whom}")
        return interrupts.take(lock, None)

    def say(self, message: str) -> None:
        """Write one line to stderr, without what could play tricks on a terminal."""
        line = "".join(
            letter if letter.isprintable() else letter.encode("unicode_escape").decode()
            for letter in message
        )
        text = f"with_lock: {line}\n"
        # A stderr that is closed or broken (None, if it never was open) must not stop the work.
        with unstoppable(), contextlib.suppress(OSError, ValueError, AttributeError):
            try:
                descriptor = self.stderr.fileno()
            except UnsupportedOperation:
                self.stderr.write(text, str)
            else:
                # Past Python's buffer: what a broken pipe leaves there makes the status 120.
                os.write(descriptor, text.encode(errors="backslashreplace"))


def _check(key: str, command: Sequence[str], options: dict[str, Any]) -> None:
    """Refuse what the parser could not know, or never saw as it was given by code."""
    if options["nonblock"] and options["wait"] is not None:
        refuse("nonblock and wait exclude one another")
    if any("\0" in word for word in (key, *command)):
        refuse("neither KEY nor CMD can have a NUL character in it")
    prefix = key_prefix()
    try:
        protocol.waiting_time(options["wait"], "--wait")
        if options["timeout"] is not None:
            protocol.milliseconds(options["timeout"], "--timeout")
        if options["min_hold"] is not None:
            protocol.milliseconds(options["min_hold"], "--min-hold")
        checked(options["replicas"])
        chosen(protocol, options["shared"], options["limit"], min_hold=options["min_hold"])
        lock_keys(name_for(prefix, key))
    except (TypeError, ValueError) as error:
        refuse(str(error))


def _aliases(using: str | None) -> str | list[str] | None:
    return using.split(",") if using and "," in using else using


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
