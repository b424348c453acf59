"""``manage.py locks list`` and ``show``: which locks there are, and all there is to say of one."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from django.core.management.base import CommandError, OutputWrapper

from django_setnx_lock.conf import get_config
from django_setnx_lock.connection import aliases_in, default_alias
from django_setnx_lock.core.errors import LockUnavailable
from django_setnx_lock.core.inspection import ORDERS, Inspector, LockInfo, State
from django_setnx_lock.core.protocol.keys import lock_keys, name_for
from django_setnx_lock.descriptions import (
    NOT_KNOWN,
    Said,
    duration,
    facts,
    holder_facts,
    problem,
    since,
)
from django_setnx_lock.lock_fields import lock_fields
from django_setnx_lock.locks import inspector, key_prefix
from django_setnx_lock.management import statuses
from django_setnx_lock.management.wording import printable

from .printing import Paper, pairs, table, write

# A lock that is free is in no list.
STATES = [state.slug for state in State if state is not State.FREE]


@dataclass(frozen=True, slots=True)
class Found:
    """A lock, and the cache alias where it was found."""

    using: str
    info: LockInfo


# The columns that a narrow terminal goes without, in this order.
_SPARE = ("FENCE", "HELD FOR", "WAITING")
# The fields that each of several holders has of its own.
_OF_A_SHARE = (
    "Held since",
    "Held for",
    "Lease left",
    "Asked to stop",
    "Fence",
    "Fingerprint of the holder",
)
#: How many of those who wait for a lock are named where it is shown in full.
NAMED = 50
#: The status when what was asked about is not so.
NOT_HELD = 1
# Back to the top left corner, with nothing behind it.
_CLEAR = "\x1b[H\x1b[J"


def aliases_of(using: str | None) -> list[str]:
    """Return the cache aliases in ``using``, split at commas; those of the settings for None."""
    if using is not None:
        return using.split(",")
    return list(aliases_in(get_config()["CACHE"])) or [default_alias()]


def gather(
    using: str | None, look: Callable[[Inspector], Sequence[LockInfo]]
) -> tuple[list[Found], list[str]]:
    """Return what ``look`` finds in each cache of ``using``, and what is wrong where it cannot."""
    asked, troubles = ask_each(using, look)
    return [Found(alias, info) for alias, infos in asked for info in infos], troubles


_Told = TypeVar("_Told")


def ask_each(
    using: str | None, look: Callable[[Inspector], _Told]
) -> tuple[list[tuple[str, _Told]], list[str]]:
    """Return what ``look`` tells of each cache of ``using``, and what is wrong where it cannot."""
    told: list[tuple[str, _Told]] = []
    troubles: list[str] = []
    several = aliases_of(using)
    for alias in several:
        try:
            told.append((alias, look(inspector(alias))))
        except LockUnavailable as error:
            where = f"the cache {alias!r}: " if len(several) > 1 else ""
            troubles.append(f"{where}{trouble(error)}")
    return told, troubles


def trouble(error: LockUnavailable) -> str:
    """Say what is wrong, in detail, and what to do about it."""
    said = problem(error)
    return printable(f"{said['problem']} {said['detail']} {said['advice']}")


def _table(found: Sequence[Found], paper: Paper) -> list[str]:
    several = len({one.using for one in found}) > 1
    head = ["KEY", "STATE", "HOLDER", "HELD FOR", "LEASE LEFT", "FENCE", "WAITING"]
    rows = [["CACHE", *head] if several else head]
    for one in found:
        said = Said(one.info)
        row = [
            one.info.key,
            f"{said.state} !" if said.has_trouble else said.state,
            said.holder,
            said.held_for,
            said.lease_left,
            "-" if one.info.fence is None else str(one.info.fence),
            str(one.info.waiting),
        ]
        rows.append([one.using, *row] if several else row)
    return table(rows, paper, cut={"CACHE", "KEY", "HOLDER"}, spare=_SPARE)


def _as_json(found: Sequence[Found], troubles: Sequence[str], indent: int | None = 2) -> str:
    """Return the locks for programs. The names stay; a token is never among them."""
    locks = [lock_fields(one.info, one.using) for one in found]
    return json.dumps({"locks": locks, "troubles": troubles}, indent=indent)


def list_locks(options: dict[str, Any], out: OutputWrapper) -> None:
    """Write the list to ``out``, once or until Ctrl-C."""
    pause = options["watch"]
    if pause is not None:
        if not (math.isfinite(pause) and pause > 0):
            message = f"--watch takes a number of seconds above 0, not {pause:g}"
            raise CommandError(message, returncode=statuses.USAGE)
        _watch(options, out)
        return
    found, troubles = _read(options)
    if lines := _drawn(found, troubles, options, Paper.of(out)):
        write(out, "\n".join(lines))
    raise_if_away(troubles)


def raise_if_away(troubles: Sequence[str]) -> None:
    """Raise CommandError with status 69 if there are ``troubles``, as :func:`gather` has them."""
    if troubles:
        raise CommandError(" ".join(troubles), returncode=statuses.UNAVAILABLE)


def _watch(options: dict[str, Any], out: OutputWrapper) -> None:
    """Draw the list every ``options["watch"]`` seconds, until Ctrl-C, also while Redis is away."""
    with suppress(KeyboardInterrupt):
        while True:
            (found, troubles), paper = _read(options), Paper.of(out)
            lines = _drawn(found, troubles, options, paper)
            if not options["json"]:
                now = f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z}"
                lines = [now, "", *troubles, *lines, ""]
                if out.isatty():
                    # Each drawing takes the place of the one before, as far as it fits.
                    clear, *lines = _fitting(lines, paper)
                    lines = [_CLEAR + clear, *lines]
            write(out, "\n".join(lines))
            time.sleep(options["watch"])


def _read(options: dict[str, Any]) -> tuple[list[Found], list[str]]:
    def find(look: Inspector) -> list[LockInfo]:
        # A server that does not know the script yet would be sent it with each of the names.
        look.get(name_for(key_prefix(), "list"))
        locks = look.all(search=options["search"], everything=options["everything"])
        states = options["state"]
        return [
            info
            for info in locks
            if not states or not {state.slug for state in info.states}.isdisjoint(states)
        ]

    found, troubles = gather(options["using"], find)
    found.sort(key=lambda one: (one.info.key, one.using))
    found.sort(key=lambda one: ORDERS[options["sort"]](one.info))
    return found[::-1] if options["reverse"] else found, troubles


def _drawn(
    found: Sequence[Found], troubles: Sequence[str], options: dict[str, Any], paper: Paper
) -> list[str]:
    if options["json"]:
        # With --watch, one document a line.
        return [_as_json(found, troubles, 2 if options["watch"] is None else None)]
    if not found:
        return [] if troubles else ["No locks."]
    return [*_table(found, paper), "", f"{len(found)} lock{'s' * (len(found) != 1)}"]


def _fitting(lines: Sequence[str], paper: Paper) -> list[str]:
    # The cursor is below them.
    rows = shutil.get_terminal_size().lines - 1
    shown = list(lines) if len(lines) <= rows else [*lines[: rows - 1], paper.ellipsis]
    return [paper.cut(paper.escaped(line), paper.columns) for line in shown]


def show(options: dict[str, Any], out: OutputWrapper) -> None:
    """Write one lock in full. Raises CommandError when nobody holds it, or a Redis is away."""
    found, troubles = look_at(options)
    if options["json"]:
        write(out, _as_json(found, troubles))
    else:
        for number, one in enumerate(found):
            write(out, "\n" * bool(number) + "\n".join(_in_full(one)))
    raise_if_away(troubles)
    if all(one.info.state is State.FREE for one in found):
        raise CommandError(f"nobody holds {options['key']!r}", returncode=NOT_HELD)


def look_at(options: dict[str, Any]) -> tuple[list[Found], list[str]]:
    """Return the lock of ``options["key"]`` in each cache, and what is wrong."""
    with statuses.given_for(ValueError, statuses.USAGE):
        name = name_for(key_prefix(), options["key"])
        lock_keys(name)
    return gather(options["using"], lambda look: [look.get(name, waiters=NAMED)])


def _in_full(one: Found) -> list[str]:
    """Return all there is to say of a lock, and of each who holds it."""
    said = Said(one.info)
    lines = pairs([("Cache", one.using), *facts(said), *holder_facts(said)])
    for number, share in enumerate(said.shares, 1):
        lines += ["", f"Holder {number} of {len(said.shares)}: {share.state}"]
        own = [fact for fact in facts(share) if fact[0] in _OF_A_SHARE]
        lines += pairs([*own, *holder_facts(share)], indent="  ")
    return [*lines, *_queue(one.info)]


def _queue(info: LockInfo) -> list[str]:
    """Return what the holders wait for themselves, and who waits for the lock."""
    holders = info.shares or (info,)
    lines = [
        f"{one.holder} has waited for {printable(one.waits_for.key)!r} for "
        f"{duration(one.waits_for.waited)}"
        for one in holders
        if one.waits_for is not None
    ]
    lines = ["", "The holder itself waits:", *(f"  {line}" for line in lines)] if lines else []
    if info.waiting:
        rows = [
            (f"{one.position}.", str(one.holder or NOT_KNOWN), since(info, one))
            for one in info.waiters
        ]
        lines += ["", "Waiting:", *(f"  {line}" for line in table([("", "WHO", "SINCE"), *rows]))]
        if info.waiting > len(info.waiters):
            lines.append(f"  and {info.waiting - len(info.waiters):,} more")
    return lines
