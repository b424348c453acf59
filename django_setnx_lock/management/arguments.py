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
_INSTEAD_OF_CMD = {"-c": "shell_line", "-m": "manage"}


class WithLockParser(CommandParser):
    """Parses ``[options] KEY [--] CMD [ARG...]``, and ``-c LINE`` or ``-m NAME`` in place of CMD.

    Gives ``key`` and ``command`` beside the options; of ``-m NAME`` the latter has the arguments.
    These two may stand before or behind KEY. What else follows KEY is never taken for an
    option, nor is anything after the first ``--``. Errors end the program with status 64, or
    raise CommandError with that ``returncode`` when the command is called from code.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            allow_abbrev=False,
            usage=(
                "%(prog)s [options] KEY [--] CMD [ARG...]\n"
                "       %(prog)s [options] KEY -c LINE\n"
                "       %(prog)s [options] KEY -m NAME [ARG...]"
            ),
            **kwargs,
        )
        self.add_argument(
            "-c",
            "--command",
            dest="shell_line",
            metavar="LINE",
            help="Run LINE in a shell: /bin/sh -c LINE. In place of CMD, also behind KEY.",
        )
        self.add_argument(
            "-m",
            "--manage",
            dest="manage",
            metavar="NAME",
            help=(
                "Run the management command NAME with these settings, as a process of its own; "
                "its arguments follow. In place of CMD, also behind KEY."
            ),
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
            options.command = tail or []
        elif options.command[0] in _INSTEAD_OF_CMD:
            self._take_instead(options, options.command, tail)
        else:
            self._refuse_misplaced(options.command)
            options.command += [SEPARATOR, *tail] if tail is not None else []
        if options.key is None:
            self.error("KEY and CMD are missing")
        if options.shell_line is not None and options.manage is not None:
            self.error("-c and -m exclude one another")
        if options.shell_line is not None and options.command:
            self.error(f"with -c LINE there is no CMD, so {options.command[0]!r} cannot be one")
        if not options.command and options.shell_line is None and options.manage is None:
            self.error(f"CMD is missing: what is to run while {options.key!r} is locked?")
        return options

    def _take_instead(
        self, options: argparse.Namespace, words: Sequence[str], tail: Sequence[str] | None
    ) -> None:
        """Read ``-c LINE`` or ``-m NAME [ARG...]`` that stands behind KEY."""
        option, *rest = words
        name = _INSTEAD_OF_CMD[option]
        if getattr(options, name) is not None:
            self.error(f"{option} is given twice")
        if not rest:
            self.error(f"argument {option}: expected one argument")
        self._refuse_misplaced(rest, may_begin_with_dash=True)
        setattr(options, name, rest[0])
        options.command = rest[1:]
        if tail is not None:
            options.command += [SEPARATOR, *tail] if options.command else tail

    def _refuse_misplaced(
        self, command: Sequence[str], *, may_begin_with_dash: bool = False
    ) -> None:
        if command[0].startswith("-") and not may_begin_with_dash:
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
