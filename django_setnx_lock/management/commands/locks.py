"""``manage.py locks``: who holds what, what is done to a holder, and is it well."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import (
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
from django_setnx_lock.management.locks.listing import STATES, history, list_locks, show
from django_setnx_lock.management.locks.releasing import intervene
from django_setnx_lock.management.program import Program


def seconds(given: str) -> float:
    """Return a number of seconds. Errors of the parser name this function, as the next two."""
    if not 0 <= float(given) < math.inf:
        raise ValueError(given)
    return float(given)


def number(given: str) -> int:
    if int(given) < 1:
        raise ValueError(given)
    return int(given)


def text(given: str) -> str:
    """Return what was given, as UTF-8 where the locale does not tell Python what it is."""
    try:
        given.encode()
    except UnicodeEncodeError:
        return os.fsencode(given).decode()
    return given


_OTHERS = "64 wrong usage, 69 Redis unreachable, 78 misconfigured."
_SECONDS: dict[str, Any] = {"type": seconds, "metavar": "SEC"}
_STATE: dict[str, Any] = {"action": "append", "default": [], "choices": STATES, "metavar": "STATE"}
_STATES = f"{', '.join(STATES)}. Can be given several times."
_TEXT: dict[str, Any] = {"type": text, "metavar": "TEXT", "default": ""}
_KEY: dict[str, Any] = {"type": text, "metavar": "KEY"}
# Several subcommands have these.
_COMMON: dict[str, dict[str, Any]] = {
    "key": {**_KEY, "help": "The key as the code writes it: order:42."},
    "--json": {"action": "store_true", "help": "Write one JSON document."},
    "--search": {**_TEXT, "help": "Only locks with TEXT in their keys."},
    "--everything": {
        "action": "store_true",
        "help": "Look through the whole keyspace with SCAN, which takes a while, and also finds "
        "locks of other programs. Implied by their states: foreign, never-expires, not-a-lock.",
    },
    "--reason": {**_TEXT, "help": "Logged, and shown to the holder."},
    "--fingerprint": {
        "metavar": "HEX",
        "help": "Only the holder of this fingerprint, as list --json and show give it; of several "
        "who hold it together, that one alone.",
    },
}
_RUN: dict[str, Callable[[dict[str, Any], OutputWrapper], None]] = {
    "list": list_locks,
    "show": show,
    "history": history,
    "doctor": doctor,
    "check": check,
}
_INTERVENTIONS = {"ask-to-stop": ASK_TO_STOP, "release": RELEASE}


class Command(Program):
    name = "locks"
    help = "Shows the locks, asks a holder to stop, takes its lock, examines the Redis behind them."
    said_already = CheckFailed

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        # Their errors are those of this parser.
        _add_subcommands(parser)
        return parser

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except BrokenPipeError:
            if not self.is_program:
                raise
            # The reader of the pipe has read enough.
            sys.exit(statuses.killed_by(signal.SIGPIPE))

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        name = options["subcommand"]
        with statuses.given_for(ImproperlyConfigured, statuses.MISCONFIGURED):
            if name in _RUN:
                _RUN[name](options, self.stdout)
            else:
                intervene(_INTERVENTIONS[name], options, self.stdout, self.stderr)


def _add_subcommands(parser: CommandParser) -> None:
    """Add the subcommands; the chosen one is ``subcommand``."""
    every = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)

    def add(
        name: str, about: str, ends: str, *common: str, others: str = _OTHERS
    ) -> Callable[..., argparse.Action]:
        added = every.add_parser(
            name,
            help=about,
            description=about,
            epilog=f"Exit status: {ends} {others}",
            formatter_class=DjangoHelpFormatter,
            allow_abbrev=False,
        )
        add_option = added.add_argument
        add_option(
            "--using",
            metavar="ALIAS",
            help="The cache to look at, or several, as r1,r2,r3. "
            "Default: what CACHE of SETNX_LOCK names.",
        )
        for option in common:
            add_option(option, **_COMMON[option])
        # Django's usual options may stand behind the subcommand. One before it is not to be reset.
        absent: dict[str, Any] = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
        for option in ("--settings", "--pythonpath"):
            add_option(option, **absent)
        add_option("-v", "--verbosity", type=int, choices=range(4), **absent)
        for option in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
            add_option(option, action="store_true", **absent)
        return add_option

    option = add("list", "Lists who holds what.", "0 listed;", "--search", "--everything", "--json")
    option("--state", **_STATE, help=f"Only those in this state: {_STATES}")
    orders = "key, or worst: what needs attention first. Default: key."
    option("--sort", choices=["key", "worst"], default="key", metavar="ORDER", help=orders)

    add("show", "Shows one lock in full.", "0 it is held, 1 it is free;", "key", "--json")

    option = add("history", "Shows how holds of locks have ended.", "0 shown;", "--json")
    option("key", nargs="?", **_KEY, help="The key of one lock. Default: all locks.")
    most = "How many at most, the newest first. Default: 20."
    option("--limit", type=number, default=20, metavar="N", help=most)

    add(
        "doctor",
        "Looks for what can cost a lock in Redis, and says what to do about it.",
        "0 no error was found, 2 errors;",
        "--json",
    )

    of_holder = ("key", "--reason", "--fingerprint")
    ask = add(
        "ask-to-stop",
        "Asks the holder of a lock to stop, and does not release the lock.",
        "0 asked, 1 nobody holds it, it changed hands, or was asked before;",
        *of_holder,
    )
    release = add(
        "release",
        "Takes a lock from its holder, which this does not stop.",
        "0 released, 1 nobody holds it, it changed hands, or the answer was no;",
        *of_holder,
    )
    ill = [state.slug for state in TROUBLES]
    for option in (ask, release):
        about = f"Only a holder in this state: {', '.join(ill)}."
        option("--state", choices=ill, metavar="STATE", help=about)
    release("-y", "--yes", action="store_true", help="Do not ask. Needed without a terminal.")

    option = add(
        "check",
        "Says for monitoring whether a lock is held or waited for too long, or in a bad state.",
        "0 OK, 1 WARNING, 2 CRITICAL or Redis unreachable, 3 UNKNOWN: misconfigured;",
        *("--search", "--everything"),
        others="64 wrong usage.",
    )
    option("--max-held", **_SECONDS, help="Critical: a lock has been held for more than SEC.")
    option("--max-wait", **_SECONDS, help="Critical: a caller has waited for more than SEC.")
    option("--state", **_STATE, help=f"Critical: a lock is in this state: {_STATES}")
    for name, kind in (("held", _SECONDS), ("wait", _SECONDS), ("state", _STATE)):
        option(f"--warn-{name}", **kind, help="A warning, likewise.")
