"""``manage.py locks history``: how holds of locks have ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.core.management.base import OutputWrapper

from django_setnx_lock.core.protocol.keys import name_for
from django_setnx_lock.descriptions import Hold
from django_setnx_lock.history import HistoryEntry, last
from django_setnx_lock.locks import key_prefix
from django_setnx_lock.management import statuses

from .listing import ask_each, raise_if_away
from .printing import table, write

#: How many entries are shown.
LIMIT = 20


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
    if options["json"]:
        entries = [
            {"using": alias, **asdict(entry), "end": entry.end.slug} for alias, entry in noted
        ]
        write(out, json.dumps({"entries": entries, "troubles": troubles}, indent=2))
    elif noted:
        write(out, "\n".join(_table(noted)))
    elif not troubles:
        write(out, "No entries.")
    raise_if_away(troubles)


def _table(noted: Sequence[tuple[str, HistoryEntry]]) -> list[str]:
    """Return the lines of the entries, each with the cache alias in whose history it is."""
    several = len({alias for alias, _entry in noted}) > 1
    head = ["ENDED", "KEY", "HOW", "HOLDER", "HELD FOR", "WAITED"]
    rows = [["CACHE", *head] if several else head]
    for alias, entry in noted:
        hold = Hold(entry)
        row = [hold.ended, hold.key, hold.end, hold.holder, hold.held_for, hold.waited]
        rows.append([alias, *row] if several else row)
    return table(rows)
