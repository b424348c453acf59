"""What with_lock says of a holder, and what its holder record says of it."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from django_setnx_lock.core.errors import LockBusy
from django_setnx_lock.core.inspection import LockInfo

_PYTHON = re.compile(r"(python|pypy)[\d.]*(\.exe)?\Z")
# How many of those who hold a lock together are named.
_FEW = 3
_DJANGO = frozenset({"manage.py", "django-admin", "django"})


def label_for(command: Sequence[str]) -> str:
    """What the holder record calls ``command``: its program, never arguments, which may be secret.

    For Python it is the script or module, and for Django's utilities the subcommand too.
    """
    program, *rest = command
    words = [os.path.basename(program)]
    if _PYTHON.match(words[0]):
        words, rest = _script(words, rest)
    if words[-1] in _DJANGO and rest and not rest[0].startswith("-"):
        words.append(rest[0])
    return " ".join(["with_lock", *words])


def _script(words: list[str], arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The name of what Python runs and its arguments; Python's own when it is no file or module."""
    rest = iter(arguments)
    for word in rest:
        if not word.startswith("-"):
            return [os.path.basename(word)], list(rest)
        if word.startswith("--"):
            # The only one of Python's long options that can come before a script.
            if word == "--check-hash-based-pycs":
                next(rest, None)
            continue
        for place, letter in enumerate(word[1:], 2):
            if letter in "cmWX":
                value = word[place:] or next(rest, "")
                if letter in "cm":
                    return ([value], list(rest)) if letter == "m" and value else (words, [])
                break
    return words, []


def user_name() -> str:
    """The name of the user we run as, or the number of one that has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f"uid {os.getuid()}"


def holding(busy: LockBusy, seen: LockInfo | None) -> str:
    """By whom the lock is held, since when, and how long the lease still runs.

    ``seen`` is what was found at a second look, by which the lock may be free again.
    """
    if seen is None or not seen.fingerprint:
        holders, remaining, held_for = [busy.holder], busy.remaining, None
    else:
        holders = [one.holder for one in seen.shares] or [seen.holder]
        remaining, held_for = seen.remaining, seen.held_for if len(holders) == 1 else None
    few = [
        str(holder) if holder else "a foreign program, which left no record of who it is"
        for holder in holders[:_FEW]
    ]
    more = f" and {len(holders) - _FEW} more" if len(holders) > _FEW else ""
    whom = f"{', '.join(few)}{more}"
    since = f" since {_moment(held_for)}" if held_for is not None else ""
    until = "never ends" if remaining is None else f"runs for another {remaining:.1f} s"
    return f"held by {whom}{since}; its lease {until}"


def _moment(seconds_ago: float) -> str:
    """A point in the past, e.g. ``2026-03-02 10:11:12 +0100 (0:03:20 ago)``."""
    ago = timedelta(seconds=round(seconds_ago))
    return f"{datetime.now().astimezone() - ago:%Y-%m-%d %H:%M:%S %z} ({ago} ago)"
