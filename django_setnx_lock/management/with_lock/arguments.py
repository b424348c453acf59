"""The arguments of with_lock: what they may be, and the terms on which CMD runs."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from django.core.management.base import CommandError, CommandParser

from django_setnx_lock.core.options import waiting_time
from django_setnx_lock.core.protocol.keys import meta_key, name_for
from django_setnx_lock.management import statuses
from django_setnx_lock.options import LockOptions

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
            "words",
            nargs=argparse.REMAINDER,
            metavar="KEY CMD",
            help="What to lock, e.g. nightly-import, and the command to run, with its arguments; "
            "no shell comes between.",
        )

    def parse_args(  # type: ignore[override]  # Django never gives a namespace
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        # argparse never sees a "--": what it does with one differs between Python versions.
        line = list(args or ())
        at = line.index(SEPARATOR) if SEPARATOR in line else len(line)
        options = super().parse_args(line[:at])
        words, rest = options.words, line[at + 1 :]
        if words[1:]:
            self._refuse_options(words[1:])
            rest = line[at:]
        elif not words and rest[1:2] == [SEPARATOR]:
            # Behind a KEY that is behind one itself.
            del rest[1]
        words += rest
        options.key = words[0] if words else None
        options.command = words[1:]
        return options

    def _refuse_options(self, command: Sequence[str]) -> None:
        if command[0].startswith("-"):
            self.error(f"options go before KEY, so {command[0]} must stand before it")
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
    "TIMEOUT, REPLICAS and CACHE are those of SETNX_LOCK. Exit status: that of CMD; 64 wrong "
    "usage, 69 Redis unreachable, 75 busy, 76 lock lost, 78 misconfigured, 126 CMD cannot be "
    "executed, 127 CMD not found, 128+N ended by signal N."
)


def add_options(parser: CommandParser) -> None:
    """Add those of the lock, of the command and of what is told."""
    option = parser.add_argument
    flag = functools.partial(option, action="store_true")
    number = functools.partial(option, type=int, metavar="N")
    seconds = functools.partial(option, type=float, metavar="SEC")
    # Django knows it for commands only that have the checks run. Here they never are.
    flag("--skip-checks", help=argparse.SUPPRESS)
    flag("-n", "--nonblock", "--nb", help="Do not wait: exit 75 if somebody else holds the lock.")
    seconds("-w", "--wait", help="Wait at most so long, then exit 75. Default: no limit.")
    codes = ("-x", "-E", "--busy-code", "--conflict-exit-code")
    number(*codes, default=statuses.BUSY, help="The exit status in place of 75, from 0 to 255.")
    text = "How long the lock outlives a with_lock that cannot renew it. Default: TIMEOUT, 30."
    seconds("--timeout", "--lease", help=text)
    seconds("--min-hold", help="How long nobody else gets the lock, even if CMD ends sooner.")
    flag("-s", "--shared", help="Hold it together with others who give --shared.")
    number("--limit", help="Hold it together with others who give the same --limit, N at most.")
    number("--replicas", help="How many replicas have to acknowledge the lock. Default: REPLICAS.")
    text = "The cache to lock in, or several for a Redlock, as r1,r2,r3. Default: CACHE."
    option("--using", metavar="ALIAS", help=text)
    option("--note", default="", metavar="TEXT", help="Shown to operators beside the holder.")
    text = "The time from TERM to KILL. Default: a third of the lease, 10 at most."
    seconds("-k", "--kill-after", help=text)
    text = "Say nothing when somebody else holds the lock, as -v 0. -v 2 says more."
    flag("-q", "--quiet", help=text)


def check(options: Mapping[str, Any], prefix: str) -> None:
    """Refuse with ValueError what the parser could not know, or has not seen."""
    key, command = options["key"], options["command"]
    if key is None:
        raise ValueError("KEY and CMD are missing")
    if not command:
        raise ValueError(f"CMD is missing: what is to run while {key!r} is locked?")
    if options["nonblock"] and options["wait"] is not None:
        raise ValueError("nonblock and wait exclude one another")
    if any("\0" in word for word in [key, *command]):
        raise ValueError("neither KEY nor CMD can have a NUL character in it")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise ValueError("KEY has bytes in it that are no UTF-8") from None
    if options["busy_code"] not in range(256):
        raise ValueError(f"--busy-code is a number from 0 to 255, not {options['busy_code']!r}")
    waiting_time(options["wait"], "--wait")
    meta_key(name_for(prefix, key))


def lock_options(options: Mapping[str, Any], label: str) -> LockOptions:
    """Return those of the lock. Raises ValueError."""
    names = ("timeout", "min_hold", "replicas", "note", "shared", "limit")
    using = options["using"]
    try:
        return LockOptions(
            using=using.split(",") if using and "," in using else using,
            label=label,
            # Whatever RENEW says: the command may take longer than the lease.
            renew=True,
            **{name: options[name] for name in names},
        )
    except (TypeError, ValueError) as error:
        # Each begins with the name of an option.
        raise ValueError(f"--{error}".replace("_", "-")) from None


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
