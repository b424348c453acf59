"""``manage.py locks list|show|release|doctor``: who holds what, and what Redis may do to it."""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import traceback
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser, no_translations

from django_setnx_lock.core.inspection import Outcome, State
from django_setnx_lock.management import doctor, redrawing, releasing, statuses
from django_setnx_lock.management.doctor.finding import Severity
from django_setnx_lock.management.doctor.workers import Workers
from django_setnx_lock.management.listing import Found, aliases, as_json, gather
from django_setnx_lock.management.locks_parser import LocksParser, add_subcommands
from django_setnx_lock.management.printing import printable

# What was asked about is not so.
NOT_HELD = 1
# What the doctor found.
WARNINGS = 1
ERRORS = 2


class Command(BaseCommand):
    help = "Shows the locks, takes one from its holder, examines the Redis that they are in."
    # It is for times of trouble, and for projects that are not right yet.
    requires_system_checks = ()
    _is_program = False

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        base = super().create_parser(prog_name, subcommand, add_help=False, **kwargs)
        parser = LocksParser(
            prog=base.prog,
            description=base.description,
            formatter_class=base.formatter_class,
            called_from_command_line=base.called_from_command_line,
            parents=[base],
        )
        add_subcommands(parser)
        return parser

    def run_from_argv(self, argv: list[str]) -> None:
        self._is_program = True
        super().run_from_argv(argv)

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except CommandError as error:
            if not self._is_program:
                raise
            if options["traceback"]:
                traceback.print_exc()
            self._say(str(error))
            sys.exit(error.returncode)
        except BrokenPipeError:
            if not self._is_program:
                raise
            # Who read it has read enough. Python would try to write the rest at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(statuses.killed_by(signal.SIGPIPE))

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        run = {
            "list": self.list,
            "show": self.show,
            "release": self.release,
            "doctor": self.doctor,
        }
        try:
            run[options["subcommand"]](options)
        except ImproperlyConfigured as error:
            raise CommandError(str(error), returncode=statuses.MISCONFIGURED) from error

    def list(self, options: dict[str, Any]) -> None:
        """Write the list once, or until Ctrl-C."""
        pause = options["watch"]
        if pause is not None:
            if not (math.isfinite(pause) and pause > 0):
                message = f"--watch takes a number of seconds above 0, not {pause:g}"
                raise CommandError(message, returncode=statuses.USAGE)
            is_terminal = self.stdout.isatty()
            redrawing.watch(options, self._write, is_terminal=is_terminal)
            return
        found, troubles = redrawing.read(options)
        for line in redrawing.draw(found, troubles, options):
            self._write(line)
        _raise_unavailable(troubles)

    def show(self, options: dict[str, Any]) -> None:
        """Write one lock in full."""
        found, troubles = _look(options)
        if options["json"]:
            self._write(json.dumps(as_json(found, troubles), indent=2))
        else:
            for number, one in enumerate(found):
                self._write("\n" * bool(number) + "\n".join(releasing.in_full(one)))
        _raise_unavailable(troubles)
        if all(one.info.state is State.FREE for one in found):
            raise CommandError(f"nobody holds {options['key']!r}", returncode=NOT_HELD)

    def release(self, options: dict[str, Any]) -> None:
        """Take a lock from the holder that is named, if the answer is yes."""
        found, troubles = _look(options)
        wanted, others = releasing.seen_by(options["fingerprint"], found)
        for one in others:
            self._say(f"changed hands: {releasing.whom(one)}")
        for one in wanted:
            self._write(releasing.whom(one))
        if not wanted:
            _raise_unavailable(troubles)
            problem = "changed hands" if others else "is held by nobody"
            message = f"{options['key']!r} {problem}: nothing was released"
            raise CommandError(message, returncode=NOT_HELD)
        if not options["yes"]:
            self._ask()
        outcomes = []
        for one in wanted:
            outcome, trouble = releasing.release(one, options["reason"], self._write)
            outcomes.append(outcome)
            troubles += [trouble] if trouble else []
        _raise_unavailable(troubles)
        if any(outcome is not Outcome.RELEASED for outcome in outcomes):
            raise CommandError(f"{options['key']!r} was not released", returncode=NOT_HELD)

    def doctor(self, options: dict[str, Any]) -> None:
        """Write what was found where the locks are."""
        timeout = options["worker_timeout"]
        if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
            message = f"--worker-timeout takes a number of seconds above 0, not {timeout:g}"
            raise CommandError(message, returncode=statuses.USAGE)
        workers = Workers.known(timeout, os.environ)
        report = doctor.examine(aliases(options["using"]), workers)
        if options["json"]:
            self._write(json.dumps(report.as_json(), indent=2))
        else:
            self._write("\n".join(map(printable, report.as_text())))
        if not report.is_complete:
            raise CommandError("not all could be reached", returncode=statuses.UNAVAILABLE)
        if report.worst is Severity.ERROR:
            raise CommandError("there are errors", returncode=ERRORS)
        if report.worst is Severity.WARNING and options["strict"]:
            raise CommandError("there are warnings", returncode=WARNINGS)

    def _ask(self) -> None:
        """Return if the answer is yes. Raises CommandError when it is not, or nobody can say."""
        if not sys.stdin or not sys.stdin.isatty():
            message = "there is no terminal to ask on: give --yes if it is to be released"
            raise CommandError(message, returncode=statuses.USAGE)
        self.stdout.write("Release it? Its holder is not stopped by that. [y/N] ", ending="")
        self.stdout.flush()
        try:
            answer = sys.stdin.readline()
        except KeyboardInterrupt:
            answer = ""
            self.stdout.write("")
        if answer.strip().lower() not in {"y", "yes"}:
            raise CommandError("nothing was released", returncode=NOT_HELD)

    def _write(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()

    def _say(self, text: str) -> None:
        self.stderr.write(f"locks: {printable(text)}", lambda plain: plain)


def _look(options: dict[str, Any]) -> tuple[list[Found], list[str]]:
    try:
        name = releasing.name_of(options["key"])
    except ValueError as error:
        raise CommandError(str(error), returncode=statuses.USAGE) from error
    return gather(options["using"], lambda look: [look.get(name)])


def _raise_unavailable(troubles: list[str]) -> None:
    if troubles:
        raise CommandError(" ".join(troubles), returncode=statuses.UNAVAILABLE)
