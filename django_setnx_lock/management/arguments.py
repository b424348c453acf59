"""The arguments of with_lock: its own options, then KEY, then a command that is left untouched."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from django.core.management.base import CommandError, CommandParser

from . import statuses

SEPARATOR = "--"
# django.core.management looks for these in the whole command line, up to the first "--".
_READ_BY_DJANGO = ("--settings", "--pythonpath")


class WithLockParser(CommandParser):
    """Parses ``[options] KEY [--] CMD [ARG...]``.

    Gives ``key`` and ``command`` beside the options. What follows KEY is never taken for an
    option, nor is anything after the first ``--``. Errors end the program with status 64, or
    raise CommandError with that ``returncode`` when the command is called from code.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            allow_abbrev=False, usage="%(prog)s [options] KEY [--] CMD [ARG...]", **kwargs
        )
        self.add_argument(
            "key", nargs="?", metavar="KEY", help="What to lock, e.g. nightly-import."
        )
        self.add_argument(
            "command",
            nargs=argparse.REMAINDER,
            metavar="CMD",
            help="The command to run and its arguments; no shell comes between.",
        )

    def parse_args(  # type: ignore[override]  # Django never gives a namespace
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        # argparse never sees a "--": what it does with one differs between Python versions.
        head, tail = _cut(args or [])
        options = super().parse_args(head)
        if options.key is None:
            words = tail or []
            options.key = words[0] if words else None
            options.command = words[2:] if words[1:2] == [SEPARATOR] else words[1:]
        elif not options.command:
            options.command = tail
        else:
            self._refuse_misplaced(options.command)
            options.command += [SEPARATOR, *tail] if tail is not None else []
        if options.key is None:
            self.error("KEY and CMD are missing")
        if not options.command:
            self.error(f"CMD is missing: what is to run while {options.key!r} is locked?")
        return options

    def _refuse_misplaced(self, command: Sequence[str]) -> None:
        if command[0].startswith("-"):
            self.error(f"options go before KEY, so {command[0]} must stand before it")
        if not self.called_from_command_line:
            return
        for word in command:
            option = word.partition("=")[0]
            if option in _READ_BY_DJANGO:
                self.error(
                    f"Django takes {option} for its own here: "
                    f"write -- before CMD, or before KEY if it is meant for Django"
                )

    def error(self, message: str) -> NoReturn:
        if self.called_from_command_line:
            self.exit(statuses.USAGE, f"with_lock: {message} (see with_lock --help)\n")
        raise CommandError(message, returncode=statuses.USAGE)


def _cut(args: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """What stands before the first ``--`` and what after it; None when there is no such."""
    if SEPARATOR not in args:
        return list(args), None
    at = list(args).index(SEPARATOR)
    return list(args[:at]), list(args[at + 1 :])
