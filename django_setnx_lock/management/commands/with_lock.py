"""``manage.py with_lock [options] KEY [--] CMD [ARG...]``: run a command under a lock."""

from __future__ import annotations

import argparse
import functools
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError, CommandParser

from django_setnx_lock.core.errors import LockBusy, LockError, LockUnavailable
from django_setnx_lock.core.locks.layered import RedisLock
from django_setnx_lock.core.options import waiting_time
from django_setnx_lock.locks import make_one
from django_setnx_lock.management import statuses
from django_setnx_lock.management.program import Program
from django_setnx_lock.management.with_lock.supervisor import MARGIN, Supervisor
from django_setnx_lock.management.wording import user_name
from django_setnx_lock.options import LockOptions

# django.core.management looks for these in the whole command line, up to the first "--".
_READ_BY_DJANGO = ("--settings", "--pythonpath")
# What Python runs, and what Django does, is the word after.
_LEADS_TO_NEXT_WORD = re.compile(r"python[\d.]*|manage\.py")
_KILL_AFTER = 10.0


class Command(Program):
    name = "with_lock"
    help = (
        "Runs CMD while holding the lock KEY, and exits as CMD does; waits for the lock if "
        "somebody else has it."
    )
    usage = "%(prog)s [options] KEY [--] CMD [ARG...]"
    epilog = (
        "TIMEOUT, REPLICAS and CACHE are those of SETNX_LOCK. Exit status: that of CMD; 64 wrong "
        "usage, 69 Redis unreachable, 75 busy, 76 lock lost, 78 misconfigured, 126 CMD cannot be "
        "executed, 127 CMD not found, 128+N ended by signal N."
    )
    # The words of the line that Django looks at.
    _seen_by_django: Sequence[str] = ()

    def add_arguments(self, parser: CommandParser) -> None:
        option = parser.add_argument
        flag = functools.partial(option, action="store_true")
        number = functools.partial(option, type=int, metavar="N")
        seconds = functools.partial(option, type=float, metavar="SEC")
        option("key", metavar="KEY", help="What to lock, e.g. nightly-import.")
        text = "The command to run, with its arguments; no shell comes between."
        option("command", metavar="CMD", nargs=argparse.REMAINDER, help=text)
        either = parser.add_mutually_exclusive_group().add_argument
        text = "Do not wait: exit 75 if somebody else holds the lock."
        either("-n", "--nonblock", action="store_true", help=text)
        text = "Wait at most so long, then exit 75. Default: no limit."
        either("-w", "--wait", type=float, metavar="SEC", help=text)
        text = "The exit status in place of 75, from 0 to 255."
        number("-E", "--busy-code", default=statuses.BUSY, help=text)
        text = "How long the lock outlives a with_lock that cannot renew it. Default: TIMEOUT, 30."
        seconds("--timeout", help=text)
        seconds("--min-hold", help="How long nobody else gets the lock, even if CMD ends sooner.")
        flag("-s", "--shared", help="Hold it together with others who give --shared.")
        number("--limit", help="Hold it together with others who give the same --limit, N at most.")
        text = "How many replicas have to acknowledge the lock. Default: REPLICAS."
        number("--replicas", help=text)
        text = "The cache to lock in, or several for a Redlock, as r1,r2,r3. Default: CACHE."
        option("--using", metavar="ALIAS", help=text)
        option("--note", default="", metavar="TEXT", help="Shown to operators beside the holder.")
        text = "The time from TERM to KILL. Default: four tenths of the lease, 10 at most."
        seconds("-k", "--kill-after", help=text)
        text = "Say nothing when somebody else holds the lock, as -v 0."
        flag("-q", "--quiet", help=text)

    def run_from_argv(self, argv: list[str]) -> None:
        self._seen_by_django = argv[2 : argv.index("--") if "--" in argv else None]
        try:
            super().run_from_argv(argv)
        except KeyboardInterrupt:
            # A shell stops a script or a loop at Ctrl-C only for what the signal itself has ended,
            # as Python then is; but it need not show where it was.
            if argv == sys.argv:
                sys.excepthook = lambda *_: None
            raise

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            status = self._run(options)
        except LockError as error:
            # Else it was asked for in a way in which it cannot be had, as alone by one who reads.
            is_away = isinstance(error, LockUnavailable)
            status = statuses.UNAVAILABLE if is_away else statuses.USAGE
            raise CommandError(str(error), returncode=status) from error
        if self.is_program and status == -signal.SIGINT:
            raise KeyboardInterrupt
        if status:
            status = status if status > 0 else statuses.killed_by(-status)
            message = f"{options['command'][0]} ended with status {status}"
            raise CommandError("" if self.is_program else message, returncode=status)

    def _run(self, options: dict[str, Any]) -> int:
        """Return the status of the command; below zero, the signal that ended it."""
        if threading.current_thread() is not threading.main_thread():
            message = "with_lock works in the main thread only; elsewhere use `with lock(...)`"
            raise CommandError(message, returncode=statuses.USAGE)
        command = options["command"]
        with (
            statuses.given_for(ImproperlyConfigured, statuses.MISCONFIGURED),
            statuses.given_for(ValueError, statuses.USAGE),
        ):
            self._check(options["key"], command)
            if options["busy_code"] not in range(256):
                raise ValueError("--busy-code is a number from 0 to 255")
            waiting_time(options["wait"], "--wait")
            # It says itself whom it waits for.
            given = _lock_options(options)
            made = make_one(options["key"], given, user=user_name(), wait_warning=None)
            kill_after = _kill_after(options["kill_after"], made.timeout)
        # Not only after a wait, which would be for nothing.
        path = _locate(command[0])
        with Supervisor(kill_after, self.say, is_program=self.is_program) as supervisor:
            self._take(supervisor, made, options)
            with statuses.given_for(OSError, statuses.CANNOT_EXECUTE):
                status = supervisor.run(path, command)
        return statuses.LOST if supervisor.is_lost else status or 0

    def _check(self, key: str, command: Sequence[str]) -> None:
        """Refuse with ValueError what the parser lets pass."""
        if not command:
            raise ValueError(f"CMD is missing: what is to run while {key!r} is locked?")
        if command[0].startswith("-"):
            raise ValueError(f"options go before KEY, so {command[0]} must stand before it")
        if any("\0" in word for word in (key, *command)):
            raise ValueError("neither KEY nor CMD can have a NUL character in it")
        seen = [*self._seen_by_django]
        for word in seen[seen.index(key) + 1 :] if key in seen else ():
            if word.partition("=")[0] in _READ_BY_DJANGO:
                raise ValueError(
                    f"Django takes {word} for its own here: "
                    f"write -- before CMD, or before KEY if it is meant for Django"
                )

    def _take(self, supervisor: Supervisor, lock: RedisLock, options: Mapping[str, Any]) -> None:
        """Take ``lock``; say who has it if that is somebody else."""
        wait = 0 if options["nonblock"] else options["wait"]
        is_quiet = options["quiet"] or not options["verbosity"]
        try:
            return supervisor.take(lock, wait or 0)
        except LockBusy as busy:
            if wait is not None:
                message = "" if is_quiet and self.is_program else str(busy)
                raise CommandError(message, returncode=options["busy_code"]) from busy
            self.say("" if is_quiet else f"waiting: {busy}")
        return supervisor.take(lock, None)


def _lock_options(options: Mapping[str, Any]) -> LockOptions:
    """Return those of the lock. Raises ValueError."""
    names = ("timeout", "min_hold", "replicas", "note", "shared", "limit")
    using = options["using"]
    try:
        return LockOptions(
            using=using.split(",") if using and "," in using else using,
            label=_label(options["command"]),
            # Whatever RENEW says: the command may take longer than the lease.
            renew=True,
            **{name: options[name] for name in names},
        )
    except (TypeError, ValueError) as error:
        # Each begins with the name of an option.
        raise ValueError(f"--{error}".replace("_", "-")) from None


def _label(command: Sequence[str]) -> str:
    """Return what the holder record calls ``command``: its program, without what may be secret."""
    names = [os.path.basename(command[0])]
    for word in command[1:]:
        if word.startswith("-") or not _LEADS_TO_NEXT_WORD.fullmatch(names[-1]):
            break
        names.append(os.path.basename(word))
    return " ".join(["with_lock", *names])


def _locate(program: str) -> str:
    """Return the file to execute for ``program``. Raises CommandError with 126 or 127."""
    path = shutil.which(program)
    if path is None:
        is_there = os.path.exists(program)
        message = f"{program} is not {'executable' if is_there else 'found'}"
        status = statuses.CANNOT_EXECUTE if is_there else statuses.NOT_FOUND
        raise CommandError(message, returncode=status)
    return path


def _kill_after(seconds: float | None, lease: float) -> float:
    """Return the time from TERM to KILL. Raises ValueError for more than the lease leaves for it.

    That is half of it without the margin, as a renewal that succeeds leaves more than half.
    """
    longest = (0.5 - MARGIN) * lease
    if seconds is None:
        seconds = min(_KILL_AFTER, longest)
    if not 0 <= seconds <= longest:
        raise ValueError(
            f"--kill-after is a number of seconds from 0 to {longest:g} with a lease of {lease:g} s"
        )
    return seconds
