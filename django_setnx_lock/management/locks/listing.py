"""``manage.py locks list``, ``show`` and ``history``: what is held, and how holds have ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from django.core.management.base import CommandError, OutputWrapper

from django_setnx_lock.conf import get_config
from django_setnx_lock.connection import aliases_in
from django_setnx_lock.core.errors import LockUnavailable
from django_setnx_lock.core.inspection.lock_info import LockInfo, State
from django_setnx_lock.core.protocol.keys import meta_key, name_for
from django_setnx_lock.descriptions import (
    EndPresenter,
    LockPresenter,
    facts,
    hold_facts,
    problem_in_short,
    redis_facts,
    since,
    urgency,
    usual_hold,
    waiters,
)
from django_setnx_lock.history import last
from django_setnx_lock.locks import inspector, key_prefix
from django_setnx_lock.management import statuses
from django_setnx_lock.management.wording import table, write

# A lock that is free is in no list.
STATES = [state.slug for state in State if state is not State.FREE]
# Another program leaves locks in these, and lists them nowhere.
_UNLISTED = {State.FOREIGN.slug, State.NEVER_EXPIRES.slug, State.NO_LOCK.slug}
#: How many of those who wait for a lock are named where it is shown in full.
NAMED = 50
#: The status when what was asked about is not so.
NOT_HELD = 1

_Found = TypeVar("_Found")


class Found(NamedTuple):
    """A lock, and the cache alias where it was found."""

    using: str
    info: LockInfo

    @property
    def said(self) -> LockPresenter:
        return LockPresenter(self.info)


def aliases_of(options: dict[str, Any]) -> Sequence[str]:
    """Return the cache aliases of ``--using``; those of the settings without it."""
    using = options["using"]
    return aliases_in(get_config()["CACHE"] if using is None else using.split(","))


def ask_each(
    options: dict[str, Any], ask: Callable[[str], Sequence[_Found]]
) -> tuple[list[tuple[str, _Found]], list[str]]:
    """Return what ``ask`` finds in each cache, beside its alias, and what is wrong with a Redis."""
    found: list[tuple[str, _Found]] = []
    troubles: list[str] = []
    aliases = aliases_of(options)
    for alias in aliases:
        try:
            found += [(alias, one) for one in ask(alias)]
        except LockUnavailable as error:
            where = f"the cache {alias!r}: " if len(aliases) > 1 else ""
            troubles.append(f"{where}{problem_in_short(error)}")
    return found, troubles


def raise_if_away(troubles: Sequence[str]) -> None:
    """Raise CommandError with status 69 if there are ``troubles``, as :func:`ask_each` has them."""
    if troubles:
        raise CommandError(" ".join(troubles), returncode=statuses.UNAVAILABLE)


def every_lock(options: dict[str, Any], *states: str) -> tuple[list[Found], list[str]]:
    """Return the locks in which ``--search`` is, and what is wrong with a Redis.

    ``states``: what will be asked about them. The index lists what was taken here, or waited for;
    for the states of others, and for ``--everything``, the keyspace is looked through.
    """
    about = {
        "search": options["search"],
        "everything": options["everything"] or not _UNLISTED.isdisjoint(states),
    }
    found, troubles = ask_each(options, lambda alias: inspector(alias).all(**about))
    return [Found(*one) for one in found], troubles


def one_lock(options: dict[str, Any]) -> tuple[list[Found], list[str]]:
    """Return the lock of ``options["key"]`` in each cache, and what is wrong with a Redis."""
    name = _name(options["key"])
    found, troubles = ask_each(options, lambda alias: [inspector(alias).get(name, waiters=NAMED)])
    return [Found(*one) for one in found], troubles


def _name(key: str) -> str:
    """Return the name in Redis of a ``key``. Raises CommandError for what can be none."""
    with statuses.given_for(ValueError, statuses.USAGE):
        name = name_for(key_prefix(), key)
        meta_key(name)
    return name


def list_locks(options: dict[str, Any], out: OutputWrapper) -> None:
    """Write the list to ``out``. Raises CommandError when a Redis is away."""
    states = set(options["state"] or STATES)
    found, troubles = every_lock(options, *options["state"] or ())
    found = [one for one in found if not states.isdisjoint(_states(one.info))]
    found.sort(key=lambda one: (one.info.key, one.using))
    if options["sort"] == "worst":
        found.sort(key=lambda one: urgency(one.info))
    _put(options, out, partial(_document, found), troubles, _table(found))


def _states(info: LockInfo) -> list[str]:
    return sorted(state.slug for state in info.states)


def _table(found: Sequence[Found]) -> Iterator[str]:
    head = ("KEY", "STATE", "HOLDER", "HELD FOR", "LEASE LEFT", "FENCE", "WAITING")
    yield from _listed(head, [(one.using, _row(one)) for one in found], "No locks.")
    if found:
        yield from ("", f"{len(found)} lock{'s' * (len(found) != 1)}")


def _row(one: Found) -> list[str]:
    said, fence = one.said, one.info.fence
    state = f"{said.state} !" if said.has_trouble else said.state
    times = [said.held_for, said.lease_left]
    count = [str(one.info.waiting)]
    return [one.info.key, state, said.holder, *times, "-" if fence is None else str(fence), *count]


def _listed(
    head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], otherwise: str
) -> list[str]:
    """Return ``rows`` below ``head``, each with its cache alias if there are several.

    ``otherwise``: what to say where there are none.
    """
    if not rows:
        return [otherwise]
    is_named = len({alias for alias, _ in rows}) > 1
    return table([["CACHE", *head], *([alias, *row] for alias, row in rows)], 0 if is_named else 1)


def _put(
    options: dict[str, Any],
    out: OutputWrapper,
    document: Callable[[], dict[str, Any]],
    troubles: Sequence[str],
    lines: Iterable[str],
) -> None:
    """Write the ``document`` or the ``lines``. Raises CommandError if there are ``troubles``."""
    if options["json"]:
        write(out, json.dumps({**document(), "troubles": troubles}))
    elif len(text := list(lines)) > 1 or not troubles:
        write(out, "\n".join(text))
    raise_if_away(troubles)


def show(options: dict[str, Any], out: OutputWrapper) -> None:
    """Write one lock in full. Raises CommandError when nobody holds it, or a Redis is away."""
    found, troubles = one_lock(options)
    lines = (line for one in found for line in ("", *_in_full(one)))
    _put(options, out, partial(_document, found), troubles, islice(lines, 1, None))
    if all(one.info.state is State.FREE for one in found):
        raise CommandError(f"nobody holds {options['key']!r}", returncode=NOT_HELD)


def _in_full(one: Found) -> Iterator[str]:
    """Yield all there is to say of a lock, of each who holds it, and of who waits."""
    said, info = one.said, one.info
    usual = ""
    # The rest is known all the same.
    with suppress(LockUnavailable):
        usual = usual_hold(last(one.using, name=info.name))
    more = [("Usually held for", usual)] if usual else []
    yield from _pairs([("Cache", one.using), *facts(said), *hold_facts(said), *more])
    for number, share in enumerate(said.shares, 1):
        # But the name and the type, which all have.
        own = _pairs([*hold_facts(share), *redis_facts(share)[2:]])
        yield from ("", f"Holder {number} of {len(said.shares)}: {share.state}", *own)
    awaited = [
        (holder.place, lock.key, since(info, lock.waited))
        for holder in said.shares or [said]
        if (lock := holder.info.waits_for) is not None
    ]
    if awaited:
        yield from ("", *table([("HOLDER", "ITSELF WAITS FOR", "SINCE"), *awaited]))
    rows, others = waiters(info, NAMED)
    if rows:
        yield from ("", *table([("WAITING", "SINCE"), *rows]))
    if others:
        yield f"and {others:,} more"


def _pairs(found: Sequence[tuple[str, str]]) -> list[str]:
    return table([(f"{label}:", text) for label, text in found])


_OF_LOCK = ("key", "name", "as_of", "granted_at", "renewed_ago", "kind", "unit", "waiting")
_OF_HOLD = ("fence", "held_for", "remaining", "fingerprint")


def _document(found: Sequence[Found]) -> dict[str, Any]:
    """Return the locks for programs. A token is never among their fields."""
    return {"locks": [_fields(one) for one in found]}


def _fields(one: Found) -> dict[str, Any]:
    info = one.info
    return {
        "using": one.using,
        **{name: getattr(info, name) for name in _OF_LOCK},
        "state": info.state.slug,
        "states": _states(info),
        **_hold(info),
        "shares": [{"state": share.state.slug, **_hold(share)} for share in info.shares],
        "waiters": [{"holder": _record(w.holder), "waited": w.waited} for w in info.waiters],
    }


def _hold(info: LockInfo) -> dict[str, Any]:
    lock = info.waits_for
    return {
        **{name: getattr(info, name) for name in _OF_HOLD},
        "holder": _record(info.holder),
        "stop_requested": _record(info.stop_requested),
        "waits_for": lock and {"key": lock.key, "waited": lock.waited},
    }


def _record(found: Any) -> dict[str, Any] | None:
    return None if found is None else asdict(found)


def history(options: dict[str, Any], out: OutputWrapper) -> None:
    """Write the entries to ``out``, the newest first. Raises CommandError when a Redis is away."""
    name = None if options["key"] is None else _name(options["key"])
    found, troubles = ask_each(options, lambda alias: last(alias, name=name))
    found.sort(key=lambda one: one[1].at, reverse=True)
    del found[options["limit"] :]
    entries = [{"using": alias, **asdict(one), "end": one.end.slug} for alias, one in found]
    columns = attrgetter("ended", "key", "end", "holder", "held_for", "waited")
    rows = [(alias, columns(EndPresenter(entry))) for alias, entry in found]
    head = ("ENDED", "KEY", "HOW", "HOLDER", "HELD FOR", "WAITED")
    lines = _listed(head, rows, "No entries.")
    _put(options, out, lambda: {"entries": entries}, troubles, lines)
