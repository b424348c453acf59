"""``manage.py locks list``, ``show`` and ``history``: what is held, and how holds have ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from django.core.management.base import CommandError, OutputWrapper

from django_setnx_lock.conf import get_config
from django_setnx_lock.connection import aliases_in, default_alias
from django_setnx_lock.core import Inspector
from django_setnx_lock.core.errors import LockUnavailable
from django_setnx_lock.core.inspection.lock_info import LockInfo, State
from django_setnx_lock.core.protocol.keys import meta_key, name_for
from django_setnx_lock.descriptions import (
    EndPresenter,
    LockPresenter,
    duration,
    facts,
    hold_facts,
    problem_in_short,
    redis_facts,
    urgency,
    waiters,
)
from django_setnx_lock.history import last
from django_setnx_lock.locks import inspector, key_prefix
from django_setnx_lock.management import statuses
from django_setnx_lock.management.wording import cache_table, pairs, printable, table, write

# A lock that is free is in no list.
STATES = [state.slug for state in State if state is not State.FREE]
# Another program leaves locks in these, and lists them nowhere.
_UNLISTED = {State.FOREIGN.slug, State.NEVER_EXPIRES.slug, State.NO_LOCK.slug}


@dataclass(frozen=True, slots=True)
class Found:
    """A lock, and the cache alias where it was found."""

    using: str
    info: LockInfo


_HEAD = ["KEY", "STATE", "HOLDER", "HELD FOR", "LEASE LEFT", "FENCE", "WAITING"]
#: How many of those who wait for a lock are named where it is shown in full.
NAMED = 50
#: How many entries of the history are shown.
ENTRIES = 20
#: The status when what was asked about is not so.
NOT_HELD = 1


def aliases_of(using: str | None) -> list[str]:
    """Return the cache aliases in ``using``, split at commas; those of the settings for None."""
    if using is not None:
        return using.split(",")
    return list(aliases_in(get_config()["CACHE"])) or [default_alias()]


def gather(
    using: str | None, look: Callable[[Inspector], Sequence[LockInfo]]
) -> tuple[list[Found], list[str]]:
    """Return what ``look`` finds in each cache of ``using``, and what is wrong where it cannot."""
    asked, troubles = ask_each(using, lambda alias: look(inspector(alias)))
    return [Found(alias, info) for alias, infos in asked for info in infos], troubles


_Told = TypeVar("_Told")


def ask_each(
    using: str | None, look: Callable[[str], _Told]
) -> tuple[list[tuple[str, _Told]], list[str]]:
    """Return what ``look`` tells of each cache of ``using``, and what is wrong where it cannot."""
    told: list[tuple[str, _Told]] = []
    troubles: list[str] = []
    several = aliases_of(using)
    for alias in several:
        try:
            told.append((alias, look(alias)))
        except LockUnavailable as error:
            where = f"the cache {alias!r}: " if len(several) > 1 else ""
            troubles.append(f"{where}{trouble(error)}")
    return told, troubles


def trouble(error: LockUnavailable) -> str:
    """Say what is wrong, in detail, and what to do about it."""
    return printable(problem_in_short(error))


def every_lock(options: dict[str, Any], *states: str) -> tuple[list[Found], list[str]]:
    """Return the locks in which ``--search`` is, and what is wrong with a Redis.

    ``states``: what will be asked about them. The index lists what was taken here, or waited for;
    for the states of others, and for ``--everything``, the keyspace is looked through.
    """
    everything = options["everything"] or not _UNLISTED.isdisjoint(states)
    return gather(
        options["using"], lambda look: look.all(search=options["search"], everything=everything)
    )


def _row(info: LockInfo) -> list[str]:
    said = LockPresenter(info)
    return [
        info.key,
        f"{said.state} !" if said.has_trouble else said.state,
        said.holder,
        said.held_for,
        said.lease_left,
        "-" if info.fence is None else str(info.fence),
        str(info.waiting),
    ]


def list_locks(options: dict[str, Any], out: OutputWrapper) -> None:
    """Write the list to ``out``. Raises CommandError when a Redis is away."""
    states = options["state"] or STATES
    found, troubles = every_lock(options, *options["state"] or ())
    found = [one for one in found if any(state.slug in states for state in one.info.states)]
    found.sort(key=lambda one: (one.info.key, one.using))
    if options["sort"] == "worst":
        found.sort(key=lambda one: urgency(one.info))
    rows = [(one.using, _row(one.info)) for one in found]
    lines = [*cache_table(_HEAD, rows), "", f"{len(rows)} lock{'s' * (len(rows) != 1)}"]
    _put(options, out, _locks(found), troubles, lines if rows else [], "No locks.")


def _locks(found: Sequence[Found]) -> dict[str, Any]:
    return {"locks": [_fields(one.info, one.using) for one in found]}


def _put(
    options: dict[str, Any],
    out: OutputWrapper,
    document: dict[str, Any],
    troubles: Sequence[str],
    lines: Sequence[str],
    otherwise: str,
) -> None:
    """Write the ``document`` or the ``lines``, and without any ``otherwise``.

    Raises CommandError if there are ``troubles``.
    """
    if options["json"]:
        write(out, json.dumps({**document, "troubles": troubles}, indent=2))
    elif lines or not troubles:
        write(out, "\n".join(lines) or otherwise)
    raise_if_away(troubles)


def raise_if_away(troubles: Sequence[str]) -> None:
    """Raise CommandError with status 69 if there are ``troubles``, as :func:`gather` has them."""
    if troubles:
        raise CommandError(" ".join(troubles), returncode=statuses.UNAVAILABLE)


def show(options: dict[str, Any], out: OutputWrapper) -> None:
    """Write one lock in full. Raises CommandError when nobody holds it, or a Redis is away."""
    found, troubles = look_at(options)
    lines: list[str] = []
    for one in found:
        lines += [*([""] if lines else []), *_in_full(one)]
    _put(options, out, _locks(found), troubles, lines, "")
    if all(one.info.state is State.FREE for one in found):
        raise CommandError(f"nobody holds {options['key']!r}", returncode=NOT_HELD)


def look_at(options: dict[str, Any]) -> tuple[list[Found], list[str]]:
    """Return the lock of ``options["key"]`` in each cache, and what is wrong."""
    with statuses.given_for(ValueError, statuses.USAGE):
        name = name_for(key_prefix(), options["key"])
        meta_key(name)
    return gather(options["using"], lambda look: [look.get(name, waiters=NAMED)])


def _in_full(one: Found) -> list[str]:
    """Return all there is to say of a lock, and of each who holds it."""
    said = LockPresenter(one.info)
    lines = pairs([("Cache", one.using), *facts(said), *hold_facts(said)])
    for number, share in enumerate(said.shares, 1):
        lines += ["", f"Holder {number} of {len(said.shares)}: {share.state}"]
        # But the name and the type, which all have.
        lines += pairs([*hold_facts(share), *redis_facts(share)[2:]], indent="  ")
    return [*lines, *_queue(one.info)]


def _queue(info: LockInfo) -> list[str]:
    """Return what the holders wait for themselves, and who waits for the lock."""
    lines = [
        f"{one.holder} has waited for {printable(one.waits_for.key)!r} for "
        f"{duration(one.waits_for.waited)}"
        for one in info.holders
        if one.waits_for is not None
    ]
    lines = ["", "The holder itself waits:", *(f"  {line}" for line in lines)] if lines else []
    if info.waiting:
        rows, others = waiters(info, NAMED)
        lines += ["", "Waiting:", *(f"  {line}" for line in table([("WHO", "SINCE"), *rows]))]
        if others:
            lines.append(f"  and {others:,} more")
    return lines


def _fields(info: LockInfo, using: str) -> dict[str, Any]:
    """Return a lock in the cache ``using`` for programs. A token is never among its fields."""
    return {
        "using": using,
        "key": info.key,
        "name": info.name,
        "state": info.state.slug,
        "states": sorted(state.slug for state in info.states),
        "as_of": info.as_of,
        "granted_at": info.granted_at,
        "renewed_ago": info.renewed_ago,
        "kind": info.kind,
        "unit": info.unit,
        "waiting": info.waiting,
        "waiters": [
            {"position": number, "holder": _record(one.holder), "waited": one.waited}
            for number, one in enumerate(info.waiters, 1)
        ],
        **_held(info),
        "shares": [{"state": share.state.slug, **_held(share)} for share in info.shares],
    }


def _held(info: LockInfo) -> dict[str, Any]:
    awaited = info.waits_for
    return {
        "holder": _record(info.holder),
        "fence": info.fence,
        "held_for": info.held_for,
        "remaining": info.remaining,
        "fingerprint": info.fingerprint,
        "stop_requested": _record(info.stop_requested),
        "waits_for": None if awaited is None else {"key": awaited.key, "waited": awaited.waited},
    }


def _record(found: Any) -> dict[str, Any] | None:
    return None if found is None else {one.name: getattr(found, one.name) for one in fields(found)}


def history(options: dict[str, Any], out: OutputWrapper) -> None:
    """Write the entries to ``out``, the newest first. Raises CommandError when a Redis is away."""
    name: str | None = None
    if options["key"] is not None:
        with statuses.given_for(ValueError, statuses.USAGE):
            name = name_for(key_prefix(), options["key"])
    found, troubles = ask_each(options["using"], lambda alias: last(alias, name=name))
    noted = [(alias, one) for alias, some in found for one in some]
    noted.sort(key=lambda one: one[1].at, reverse=True)
    del noted[options["limit"] :]
    entries = [{"using": alias, **asdict(entry), "end": entry.end.slug} for alias, entry in noted]
    holds = [(alias, EndPresenter(entry)) for alias, entry in noted]
    rows = [
        (alias, [hold.ended, hold.key, hold.end, hold.holder, hold.held_for, hold.waited])
        for alias, hold in holds
    ]
    lines = cache_table(["ENDED", "KEY", "HOW", "HOLDER", "HELD FOR", "WAITED"], rows)
    _put(options, out, {"entries": entries}, troubles, lines if rows else [], "No entries.")
