"""The options of with_lock, and what values they may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from django_setnx_lock.core import protocol
from django_setnx_lock.core.keys import lock_keys, name_for
from django_setnx_lock.core.replicas import checked
from django_setnx_lock.core.shared import chosen

from . import statuses
from .terms import ON_LOST, TERM, Terms, terms

#: Said by ``--help``.
STATUSES = (
    "Exit status: that of CMD; 64 wrong usage, 69 Redis unreachable, 75 busy, 76 lock lost, 78 "
    "misconfigured, 124 no more time to run, 126 CMD cannot be executed, 127 CMD not found, 128+N "
    "ended by signal N."
)


def add_options(parser: CommandParser) -> None:
    """Add those of the lock, of the command and of what is told."""
    _add_waiting(parser)
    _add_lock(parser)
    _add_command(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        help=(
            "Tell what happens as JSON on stderr, an object a line: waiting, taken, lost, ended. "
            "As text, -v 2 tells of taken and ended, too."
        ),
    )


def _add_waiting(parser: CommandParser) -> None:
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
        "-x",
        "--busy-code",
        type=int,
        default=statuses.BUSY,
        metavar="N",
        help="The exit status in place of 75, from 0 to 255.",
    )


def _add_lock(parser: CommandParser) -> None:
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


def _add_command(parser: CommandParser) -> None:
    parser.add_argument(
        "--on-lost",
        choices=ON_LOST,
        default=TERM,
        help=(
            "What is done with CMD when the lock is lost: it gets TERM, and KILL if it does not "
            "end; or KILL at once; or only a warning is written. Default: term."
        ),
    )
    parser.add_argument(
        "--kill-after",
        type=float,
        metavar="SEC",
        help="The time from TERM to KILL. Default: a third of the lease, 10 at most.",
    )
    parser.add_argument(
        "--max-time",
        type=float,
        metavar="SEC",
        help="End CMD when it has run for so long, with status 124. Default: no limit.",
    )
    parser.add_argument(
        "--foreground",
        action="store_true",
        help=(
            "Leave CMD in this process group, as a part of the terminal's job, which hears of "
            "its keys, too."
        ),
    )
    parser.add_argument(
        "-o",
        "--main-only",
        action="store_true",
        help=(
            "Keep the lock for CMD itself only. What it leaves in the background, as a daemon, "
            "runs on without the lock. Default: the lock is kept until all that has ended."
        ),
    )
    parser.add_argument("--no-stdin", action="store_true", help="Give CMD nothing to read.")


def check(options: Mapping[str, Any], prefix: str) -> None:
    """Refuse with ValueError or TypeError what the parser could not know.

    Nor has it seen what was given by code. ``prefix``: of the names of locks.
    """
    if options["nonblock"] and options["wait"] is not None:
        raise ValueError("nonblock and wait exclude one another")
    words = [options["key"], options["shell_line"], options["manage"], *options["command"]]
    if any("\0" in word for word in words if word):
        raise ValueError("neither KEY nor CMD can have a NUL character in it")
    if options["busy_code"] not in range(256):
        raise ValueError(f"--busy-code is a number from 0 to 255, not {options['busy_code']!r}")
    protocol.waiting_time(options["wait"], "--wait")
    if options["timeout"] is not None:
        protocol.milliseconds(options["timeout"], "--timeout")
    if options["min_hold"] is not None:
        protocol.milliseconds(options["min_hold"], "--min-hold")
    checked(options["replicas"])
    chosen(protocol, options["shared"], options["limit"], min_hold=options["min_hold"])
    lock_keys(name_for(prefix, options["key"]))


def terms_of(options: Mapping[str, Any], lease: float) -> Terms:
    """On what terms CMD runs under a lock with a lease of so many seconds. Raises ValueError."""
    return terms(
        lease,
        kill_after=options["kill_after"],
        max_time=options["max_time"],
        on_lost=options["on_lost"],
        foreground=options["foreground"],
        stdin=not options["no_stdin"],
        main_only=options["main_only"],
    )
