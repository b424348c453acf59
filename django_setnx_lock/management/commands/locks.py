"""``manage.py locks``: who holds what, what is done to a holder, and is it well."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    DjangoHelpFormatter,
    OutputWrapper,
    no_translations,
)

from django_setnx_lock.core.inspection.lock_info import TROUBLES
from django_setnx_lock.interventions import ASK_TO_STOP, RELEASE
from django_setnx_lock.management import statuses
from django_setnx_lock.management.locks.checking import CheckFailed, check
from django_setnx_lock.management.locks.doctor import doctor
from django_setnx_lock.management.locks.listing import ENTRIES, STATES, history, list_locks, show
from django_setnx_lock.management.locks.releasing import intervene
from django_setnx_lock.management.wording import say


class _LocksParser(CommandParser):
    """A CommandParser whose errors are status 64, as those of with_lock are.

    They end the program, or raise CommandError with that ``returncode`` when the command is
    called from code.
    """

    def error(self, message: str) -> NoReturn:
        if self.called_from_command_line:
            self.exit(statuses.USAGE, f"locks: {message} (see {self.prog} --help)\n")
        raise CommandError(message, returncode=statuses.USAGE)


# The statuses that subcommands have in common.
_OTHERS = "64 wrong usage, 69 Redis unreachable, 78 misconfigured."
_READING: dict[str, Callable[[dict[str, Any], OutputWrapper], None]] = {
    "list": list_locks,
    "show": show,
    "history": history,
    "doctor": doctor,
    "check": check,
}
_CHANGING = {"ask-to-stop": ASK_TO_STOP, "release": RELEASE}


class Command(BaseCommand):
    help = "Shows the locks, asks a holder to stop, takes its lock, examines the Redis behind them."
    # It is for times of trouble, and for projects that are not right yet.
    requires_system_checks = ()
    _is_program = False

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        base = super().create_parser(prog_name, subcommand, add_help=False, **kwargs)
        parser = _LocksParser(
            prog=base.prog,
            description=base.description,
            formatter_class=base.formatter_class,
            called_from_command_line=base.called_from_command_line,
            parents=[base],
        )
        _add_subcommands(parser)
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
            if not isinstance(error, CheckFailed):
                say(self.stderr, str(error))
            sys.exit(error.returncode)
        except BrokenPipeError:
            if not self._is_program:
                raise
            # The reader of the pipe has read enough.
            sys.exit(statuses.killed_by(signal.SIGPIPE))

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        with statuses.given_for(ImproperlyConfigured, statuses.MISCONFIGURED):
            subcommand = options["subcommand"]
            if subcommand in _READING:
                _READING[subcommand](options, self.stdout)
            else:
                intervene(_CHANGING[subcommand], options, self.stdout, self.stderr)


def _add_subcommands(parser: CommandParser) -> None:
    """Add the subcommands; the chosen one is ``subcommand``."""
    # Django knows it for commands only that have the checks run. Here they never are.
    parser.add_argument("--skip-checks", action="store_true", help=argparse.SUPPRESS)
    commands = parser.add_subparsers(
        dest="subcommand", metavar="SUBCOMMAND", required=True, parser_class=_LocksParser
    )

    def add(
        name: str, text: str, ends: str, others: str = _OTHERS
    ) -> Callable[..., argparse.Action]:
        added: _LocksParser = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"Exit status: {ends} {others}",
            formatter_class=DjangoHelpFormatter,
            allow_abbrev=False,
        )
        added.add_argument(
            "--using",
            metavar="ALIAS",
            help="The cache to look at, or several, as r1,r2,r3. "
            "Default: what CACHE of SETNX_LOCK names.",
        )
        _add_djangos(added)
        return added.add_argument

    _add_list(add("list", "Lists who holds what.", "0 listed;"))
    shows = add("show", "Shows one lock in full.", "0 it is held, 1 it is free;")
    shows("key", **_KEY)
    shows("--json", **_JSON)
    _add_history(add("history", "Tells how holds of locks have ended.", "0 told;"))
    asks = add(
        "ask-to-stop",
        "Asks the holder of a lock to stop, and leaves it the lock.",
        "0 asked, 1 nobody holds it, it changed hands, or was asked before;",
    )
    _add_intervention(asks, "Ask only", "Logged, and told to the holder.")
    releases = add(
        "release",
        "Takes a lock from its holder, which this does not stop.",
        "0 released, 1 nobody holds it, it changed hands, or the answer was no;",
    )
    _add_intervention(
        releases, "Release it only from", "Logged, and told to the holder when it finds out."
    )
    releases("-y", "--yes", action="store_true", help="Do not ask. Needed where no terminal is.")
    examines = add(
        "doctor",
        "Connects to Redis and tells what there can cost a lock, and what to do about it.",
        "0 no error was found, 2 errors;",
    )
    examines("--json", **_JSON)
    _add_check(
        add(
            "check",
            "Tells monitoring whether any lock is held or waited for too long, or in a bad state.",
            "0 OK, 1 WARNING, 2 CRITICAL or Redis unreachable, 3 UNKNOWN: misconfigured;",
            "64 wrong usage.",
        )
    )


def _add_search(add: Callable[..., argparse.Action]) -> None:
    """Add which locks to look at."""
    add("--search", default="", **_TEXT, help="Only locks with TEXT in their keys.")
    add(
        "--everything",
        action="store_true",
        help="Look through the whole keyspace with SCAN, which takes a while, and also finds locks "
        "of other programs. Implied by their states: foreign, never-expires, not-a-lock.",
    )


def _add_list(add: Callable[..., argparse.Action]) -> None:
    _add_search(add)
    add("--json", **_JSON)
    add(
        "--state",
        action="append",
        choices=STATES,
        metavar="STATE",
        help=f"Only those in this state: {', '.join(STATES)}. Can be given several times.",
    )
    add(
        "--sort",
        choices=["key", "worst"],
        default="key",
        metavar="ORDER",
        help="key, or worst: what needs attention first. Default: key.",
    )


def _add_history(add: Callable[..., argparse.Action]) -> None:
    add("key", nargs="?", **{**_KEY, "help": "The key of one lock. Default: all locks."})
    add(
        "--limit",
        type=_count,
        default=ENTRIES,
        metavar="N",
        help=f"How many at most, the newest first. Default: {ENTRIES}.",
    )
    add("--json", **_JSON)


def _add_intervention(add: Callable[..., argparse.Action], what: str, told: str) -> None:
    """Add to which lock and holder it is done, and why.

    ``what``: what is done, before "the holder of this fingerprint". ``told``: who hears the reason.
    """
    add("key", **_KEY)
    add("--reason", default="", **_TEXT, help=told)
    add(
        "--fingerprint",
        metavar="HEX",
        help=f"{what} the holder of this fingerprint, as list --json and show tell it; of several "
        "who hold it together, that one alone.",
    )
    add(
        "--state",
        choices=[state.slug for state in TROUBLES],
        metavar="STATE",
        help=f"{what} a holder in this state: {', '.join(state.slug for state in TROUBLES)}.",
    )


def _add_check(add: Callable[..., argparse.Action]) -> None:
    seconds: dict[str, Any] = {"type": _seconds, "metavar": "SEC"}
    state: dict[str, Any] = {"action": "append", "choices": STATES, "metavar": "STATE"}
    _add_search(add)
    add("--max-held", **seconds, help="Critical: a lock has been held for more than SEC.")
    add("--warn-held", **seconds, help="A warning, likewise.")
    add("--max-wait", **seconds, help="Critical: a caller has waited for more than SEC.")
    add("--warn-wait", **seconds, help="A warning, likewise.")
    add(
        "--state",
        **state,
        help=f"Critical: a lock is in this state: {', '.join(STATES)}. Can be given several times.",
    )
    add("--warn-state", **state, help="A warning, likewise.")


def _seconds(given: str) -> float:
    try:
        found = float(given)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found >= 0):
        raise argparse.ArgumentTypeError(f"{given!r} is no number of seconds")
    return found


def _count(given: str) -> int:
    if not (given.isascii() and given.isdecimal() and int(given)):
        raise argparse.ArgumentTypeError(f"{given!r} is no number above 0")
    return int(given)


def _text(given: str) -> str:
    """Return what was given, as UTF-8 where the locale does not tell Python what it is."""
    try:
        given.encode()
    except UnicodeEncodeError:
        try:
            return os.fsencode(given).decode()
        except UnicodeError:
            raise argparse.ArgumentTypeError("it is not UTF-8") from None
    return given


_TEXT: dict[str, Any] = {"type": _text, "metavar": "TEXT"}
_KEY = {"type": _text, "metavar": "KEY", "help": "The key as the code writes it: order:42."}
_JSON: dict[str, Any] = {"action": "store_true", "help": "Write one JSON document."}


def _add_djangos(parser: argparse.ArgumentParser) -> None:
    """Accept Django's usual options behind the subcommand, too."""
    # An option given before the subcommand must not be reset.
    absent: dict[str, Any] = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
    for option in ("--settings", "--pythonpath"):
        parser.add_argument(option, **absent)
    parser.add_argument("-v", "--verbosity", type=int, choices=range(4), **absent)
    for option in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
        parser.add_argument(option, action="store_true", **absent)
