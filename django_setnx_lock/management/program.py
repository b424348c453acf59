"""What the commands have in common as programs: statuses for errors, which take one line each."""

from __future__ import annotations

import argparse
import sys
import traceback
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_setnx_lock.management import statuses
from django_setnx_lock.management.wording import say


class ProgramParser(CommandParser):
    """A CommandParser whose errors are status 64.

    They end the program, or raise CommandError with that ``returncode`` when the command is called
    from code.
    """

    def error(self, message: str) -> NoReturn:
        if self.called_from_command_line:
            name = self.prog.split()[1]
            self.exit(statuses.USAGE, f"{name}: {message} (see {self.prog} --help)\n")
        raise CommandError(message, returncode=statuses.USAGE)


class Program(BaseCommand):
    """A command called ``name`` that says one line of what fails and exits with its status.

    ``usage`` and ``epilog``: shown by ``--help``.
    """

    name = ""
    usage: str | None = None
    epilog: str | None = None
    # A cron job should not pay for them every time, and not fail for a matter of another app.
    requires_system_checks = ()
    is_program = False
    # An error whose text stands on stdout.
    said_already: type[CommandError] | tuple[()] = ()

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        base = super().create_parser(prog_name, subcommand, add_help=False)
        # Django knows it for commands only that have the checks run. Here they never are.
        base.add_argument("--skip-checks", action="store_true", help=argparse.SUPPRESS)
        return ProgramParser(
            allow_abbrev=False,
            prog=base.prog,
            description=base.description,
            formatter_class=base.formatter_class,
            called_from_command_line=base.called_from_command_line,
            parents=[base],
            usage=self.usage,
            epilog=self.epilog,
        )

    def run_from_argv(self, argv: list[str]) -> None:
        self.is_program = True
        super().run_from_argv(argv)

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except CommandError as error:
            if not self.is_program:
                raise
            if options["traceback"]:
                traceback.print_exc()
            if not isinstance(error, self.said_already):
                self.say(str(error))
            sys.exit(error.returncode)

    def say(self, message: str) -> None:
        """Tell ``message`` on stderr, unless it is empty."""
        if message:
            say(self.stderr, message, self.name)
