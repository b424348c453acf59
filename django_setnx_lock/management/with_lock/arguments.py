"""The arguments of with_lock: what they may be, and the terms on which CMD runs."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from django.core.management.base import CommandError, CommandParser

from django_setnx_lock.core.options import (
    checked_replicas,
    milliseconds,
    options_of,
    waiting_time,
)
from django_setnx_lock.core.protocol.keys import meta_key, name_for
from django_setnx_lock.management import statuses

SEPARATOR = "--"
# django.core.management looks for these in the whole command line, up to the first "--".
_READ_BY_DJANGO = ("--settings", "--pythonpath")


class WithLockParser(CommandParser):
    """Parses ``[options] KEY [--] CMD [ARG...]``.

    What follows KEY is never taken for an option, nor is anything after the first ``--``. Errors
    are status 64, also of the CommandError.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            allow_abbrev=False, usage="%(prog)s [options] KEY [--] CMD [ARG...]", **kwargs
        )
        self.add_argument(
            "key", nargs="?", metavar="KEY", help="What to lock, e.g. nightly-import."
        )
        command = self.add_argument(
            "command",
            nargs=argparse.REMAINDER,
            metavar="CMD",
            help="The command to run and its arguments; no shell comes between.",
        )
        # Else call_command() cannot be given it by name.
        command.required = False

    def parse_args(  # type: ignore[override]  # Django never gives a namespace
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        # argparse never sees a "--": what it does with one differs between Python versions.
        head, tail = list(args or ()), None
        if SEPARATOR in head:
            at = head.index(SEPARATOR)
            head, tail = head[:at], head[at + 1 :]
        options = super().parse_args(head)
        if options.key is None:
            words = tail or []
            options.key = words[0] if words else None
            options.command = words[2:] if words[1:2] == [SEPARATOR] else words[1:]
        elif not options.command:
            options.command = tail or []
        else:
            if options.command[0].startswith("-"):
                word = options.command[0]
                self.error(f"options go before KEY, so {word} must stand before it")
            self._refuse_djangos(options.command)
            options.command += [SEPARATOR, *tail] if tail is not None else []
        if not self.called_from_command_line:
            # It may be among the keywords of call_command().
            return options
        try:
            _check_command(vars(options))
        except ValueError as error:
            self.error(str(error))
        return options

    def _refuse_djangos(self, command: Sequence[str]) -> None:
        for word in command if self.called_from_command_line else ():
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


def _check_command(options: Mapping[str, Any]) -> None:
    """Refuse with ValueError what is not a key and something to run."""
    if options["key"] is None:
        raise ValueError("KEY and CMD are missing")
    if not options["command"]:
        raise ValueError(f"CMD is missing: what is to run while {options['key']!r} is locked?")


_KILL_AFTER = 10.0
_MARGIN = 1.0


@dataclass(frozen=True)
class Terms:
    """On what terms CMD runs; times in seconds."""

    # From TERM to KILL.
    kill_after: float
    # How long before the end of the lease a command is dead whose lock cannot be renewed.
    margin: float

    @property
    def notice(self) -> float:
        """How long before its end a lease that cannot be renewed is given up."""
        return self.margin + self.kill_after


#: Said by ``--help``.
STATUSES = (
    "Exit status: that of CMD; 64 wrong usage, 69 Redis unreachable, 75 busy, 76 lock lost, 78 "
    "misconfigured, 126 CMD cannot be executed, 127 CMD not found, 128+N "
    "ended by signal N."
)


def add_options(parser: CommandParser) -> None:
    """Add those of the lock, of the command and of what is told."""
    flag = functools.partial(parser.add_argument, action="store_true")
    seconds = functools.partial(parser.add_argument, type=float, metavar="SEC")
    number = functools.partial(parser.add_argument, type=int, metavar="N")
    # Django knows it for commands only that have the checks run. Here they never are.
    flag("--skip-checks", help=argparse.SUPPRESS)
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument(
        "-n",
        "--nonblock",
        "--nb",
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
    number(
        "-x",
        "-E",
        "--busy-code",
        "--conflict-exit-code",
        default=statuses.BUSY,
        help="The exit status in place of 75, from 0 to 255.",
    )
    seconds(
        "--timeout",
        "--lease",
        help="The lease: how long the lock outlives a with_lock that cannot renew it. It is "
        "renewed as long as CMD runs. Default: TIMEOUT of SETNX_LOCK, 30.",
    )
    seconds(
        "--min-hold",
        help="How long nobody else gets the lock, from when it was taken, even if CMD ends "
        "sooner. Default: not at all.",
    )
    sharing = parser.add_mutually_exclusive_group()
    sharing.add_argument(
        "-s",
        "--shared",
        action="store_true",
        help="Hold it together with others who give --shared. A lock without --shared waits for "
        "all of them, and they wait for it.",
    )
    sharing.add_argument(
        "--limit",
        type=int,
        metavar="N",
        help="Hold it together with others who give --limit, N of them at most. All are to give "
        "the same N.",
    )
    number(
        "--replicas",
        help="How many replicas have to acknowledge the lock before CMD is started. Default: "
        "REPLICAS of SETNX_LOCK, 0.",
    )
    parser.add_argument(
        "--using",
        metavar="ALIAS",
        help="The cache to lock in, or several for a Redlock, as r1,r2,r3. "
        "Default: CACHE of SETNX_LOCK.",
    )
    parser.add_argument(
        "--note", default="", metavar="TEXT", help="Shown to operators beside the holder."
    )
    seconds(
        "-k",
        "--kill-after",
        help="The time from TERM to KILL. Default: a third of the lease, 10 at most.",
    )
    flag(
        "-q",
        "--quiet",
        help="Say nothing when somebody else holds the lock, as -v 0; errors are told. -v 2 tells "
        "when the lock was taken and released.",
    )


def check(options: Mapping[str, Any], prefix: str) -> None:
    """Refuse with ValueError or TypeError what the parser could not know, or has not seen."""
    _check_command(options)
    if options["nonblock"] and options["wait"] is not None:
        raise ValueError("nonblock and wait exclude one another")
    if any("\0" in word for word in [options["key"], *options["command"]]):
        raise ValueError("neither KEY nor CMD can have a NUL character in it")
    try:
        options["key"].encode()
    except UnicodeEncodeError:
        raise ValueError("KEY has bytes in it that are no UTF-8") from None
    if options["busy_code"] not in range(256):
        raise ValueError(f"--busy-code is a number from 0 to 255, not {options['busy_code']!r}")
    waiting_time(options["wait"], "--wait")
    if options["timeout"] is not None:
        milliseconds(options["timeout"], "--timeout")
    if options["min_hold"] is not None:
        milliseconds(options["min_hold"], "--min-hold")
    own = {name: options[name] for name in ("shared", "limit", "min_hold")}
    try:
        checked_replicas(options["replicas"])
        options_of(**own)
    except ValueError as error:
        # Each begins with the name of an option.
        raise ValueError(f"--{error}".replace("_", "-")) from None
    meta_key(name_for(prefix, options["key"]))


def terms_of(options: Mapping[str, Any], lease: float) -> Terms:
    """Return the terms on which CMD runs under a lock with a lease of so many seconds.

    Raises ValueError, also when there is no time to end CMD before the lease does.
    """
    kill_after = options["kill_after"]
    waiting_time(kill_after, "--kill-after")
    margin = min(_MARGIN, lease / 10)
    terms = Terms(
        kill_after=min(_KILL_AFTER, lease / 3) if kill_after is None else kill_after, margin=margin
    )
    if lease <= terms.notice:
        raise ValueError(
            f"the lease of {lease:g} s leaves no time: it must be longer than --kill-after, "
            f"{terms.kill_after:g} s, and a margin of {margin:g} s; raise --timeout above "
            f"{terms.notice:g}, or lower --kill-after below {lease - margin:g}"
        )
    return terms
