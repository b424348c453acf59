"""The arguments of ``manage.py locks``: a subcommand, and options of its own after it."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from django.core.management.base import CommandError, CommandParser, DjangoHelpFormatter

from . import statuses
from .listing import ORDERS, STATES

_PAUSE = 2.0


class LocksParser(CommandParser):
    """A CommandParser whose errors are status 64, as those of with_lock are.

    They end the program, or raise CommandError with that ``returncode`` when the command is
    called from code.
    """

    def error(self, message: str) -> NoReturn:
        if self.called_from_command_line:
            self.exit(statuses.USAGE, f"locks: {message} (see {self.prog} --help)\n")
        raise CommandError(message, returncode=statuses.USAGE)


def add_subcommands(parser: CommandParser) -> None:
    """Add ``list``, ``show``, ``release`` and ``doctor``; the chosen one is ``subcommand``."""
    commands = parser.add_subparsers(
        dest="subcommand", metavar="SUBCOMMAND", required=True, parser_class=LocksParser
    )

    def add(name: str, text: str, statuses: str) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"Exit status: {statuses} 64 wrong usage, 69 Redis unreachable, "
            "78 misconfigured.",
            formatter_class=DjangoHelpFormatter,
            allow_abbrev=False,
        )
        added.add_argument(
            "--using",
            metavar="ALIAS",
            help=(
                "The cache to look at, or several, as r1,r2,r3. "
                "Default: what CACHE of SETNX_LOCK names."
            ),
        )
        _add_djangos(added)
        return added

    _add_list(add("list", "Lists who holds what.", "0 listed;"))
    show = add("show", "Shows one lock in full.", "0 it is held, 1 it is free;")
    _add_key(show)
    _add_json(show)
    _add_release(
        add(
            "release",
            "Takes a lock from its holder, which this does not stop.",
            "0 released, 1 nobody holds it, it changed hands, or the answer was no;",
        )
    )
    _add_doctor(
        add(
            "doctor",
            "Connects to Redis and tells what there can cost a lock, and what to do about it.",
            "0 no error was found, 1 warnings with --strict, 2 errors;",
        )
    )


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--search", default="", metavar="TEXT", help="Only locks with TEXT in their keys."
    )
    parser.add_argument(
        "--state",
        action="append",
        choices=STATES,
        metavar="STATE",
        help=f"Only those in this state: {', '.join(STATES)}. Can be given several times.",
    )
    parser.add_argument(
        "--everything",
        action="store_true",
        help=(
            "Look through the whole keyspace with SCAN, which also finds locks of other programs "
            "and takes a while."
        ),
    )
    parser.add_argument(
        "--sort",
        choices=ORDERS,
        default="key",
        metavar="COLUMN",
        help=f"By what to sort: {', '.join(ORDERS)}. Default: key.",
    )
    parser.add_argument("--reverse", action="store_true", help="The other way round.")
    _add_json(parser)
    parser.add_argument(
        "--watch",
        nargs="?",
        type=float,
        const=_PAUSE,
        metavar="SEC",
        help=f"Look again every SEC seconds ({_PAUSE:g}), until Ctrl-C.",
    )


def _add_release(parser: argparse.ArgumentParser) -> None:
    _add_key(parser)
    parser.add_argument(
        "-y", "--yes", action="store_true", help="Do not ask. Needed where no terminal is."
    )
    parser.add_argument(
        "--reason",
        default="",
        metavar="TEXT",
        help="Logged, and told to the holder when it finds out.",
    )
    parser.add_argument(
        "--fingerprint",
        metavar="HEX",
        help=(
            "Release it only from the holder of this fingerprint, as list --json and show tell it; "
            "of several who hold it together, that one alone."
        ),
    )


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--worker-timeout",
        type=float,
        metavar="SEC",
        help=(
            "After how long the server of the site ends a worker. Default: what "
            "GUNICORN_CMD_ARGS or UWSGI_HARAKIRI says, if anything."
        ),
    )
    parser.add_argument(
        "--strict", action="store_true", help="Exit with status 1 for warnings, too."
    )
    _add_json(parser)


def _add_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", metavar="KEY", help="The key as the code writes it: order:42.")


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="Write one JSON document.")


def _add_djangos(parser: argparse.ArgumentParser) -> None:
    """Have Django's usual options understood behind the subcommand, too."""
    # What was given before it must not be set back.
    absent: dict[str, Any] = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
    for option in ("--settings", "--pythonpath"):
        parser.add_argument(option, **absent)
    parser.add_argument("-v", "--verbosity", type=int, choices=range(4), **absent)
    for option in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
        parser.add_argument(option, action="store_true", **absent)
