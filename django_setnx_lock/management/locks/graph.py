"""``manage.py locks graph``: who waits for whom, as trees under what blocks them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import OutputWrapper

from django_setnx_lock.core.errors import LockUnavailable
from django_setnx_lock.core.inspection import WaiterInfo
from django_setnx_lock.core.wait_graph import Link, WaitGraph, wait_graph
from django_setnx_lock.descriptions import Said, duration
from django_setnx_lock.lock_fields import waiter_fields
from django_setnx_lock.locks import inspector

from .listing import aliases_of, raise_if_away, trouble
from .printing import Paper, write

# Deeper lines are not moved further to the right.
_DEEPEST = 12


def graph(options: dict[str, Any], out: OutputWrapper) -> None:
    """Write who waits for whom to ``out``. Raises CommandError when a Redis is away."""
    found: dict[str, WaitGraph] = {}
    troubles: list[str] = []
    several = aliases_of(options["using"])
    for alias in several:
        try:
            found[alias] = wait_graph(
                inspector(alias), limit=options["limit"], search=options["search"]
            )
        except LockUnavailable as error:
            where = f"the cache {alias!r}: " if len(several) > 1 else ""
            troubles.append(f"{where}{trouble(error)}")
    if options["json"]:
        caches = [_as_json(alias, one) for alias, one in found.items()]
        write(out, json.dumps({"caches": caches, "troubles": troubles}, indent=2))
    else:
        paper = Paper.of(out)
        lines: list[str] = []
        for alias, one in found.items():
            lines += [f"Cache {alias}"] if len(several) > 1 else []
            lines += _drawn(one, paper)
        if lines:
            write(out, "\n".join(paper.cut(paper.escaped(one), paper.columns) for one in lines))
    raise_if_away(troubles)


def _drawn(found: WaitGraph, paper: Paper) -> list[str]:
    lines = [line for link in found.drawing() for line in _lines_of(link, paper)]
    lines = lines or ["Nobody waits for a lock."]
    if found.is_cut:
        lines += ["", f"Looked at {found.looked_at:,} locks; there are more."]
    return lines


def _lines_of(link: Link, paper: Paper) -> list[str]:
    indent = "   " * min(link.depth, _DEEPEST)
    corner = "└─ " if paper.escaped("└─ ") == "└─ " else "`- "
    head = f"{indent[:-3]}{corner}" if link.depth else ""
    said, info = Said(link.lock), link.lock
    parts = [f"{said.key}: {said.state}{' !' * said.has_trouble}"]
    if said.is_held:
        parts.append(f"by {said.holder}, for {said.held_for}")
    if link.waiters:
        parts.append(f"who has waited for {duration(link.waited)}")
    line = f"{head}{parts[0]} {', '.join(parts[1:])}".rstrip()
    if link.is_circle:
        return [f"{line} - a deadlock: it waits for itself"]
    if link.is_repeated:
        return [f"{line} - see above"]
    if not info.waiting:
        return [line]
    more = info.waiting - len(info.waiters)
    names = ", ".join(_name(one) for one in info.waiters) + (f" and {more:,} more" * (more > 0))
    behind = f", {link.behind:,} with those behind them" * (link.behind > info.waiting)
    first = duration(info.longest_wait)
    return [line, f"{indent}   {info.waiting:,} waiting{behind}, the first for {first}: {names}"]


def _name(waiter: WaiterInfo) -> str:
    return str(waiter.holder or "a caller without a record")


def _as_json(alias: str, found: WaitGraph) -> dict[str, Any]:
    """Return the graph for programs: locks, and edges between them. These names stay."""
    roots = [link.lock.key for link in found.drawing() if link.depth == 0]
    behind = {link.lock.name: link.behind for link in found.drawing()}
    return {
        "using": alias,
        "as_of": found.as_of,
        "looked_at": found.looked_at,
        "is_cut": found.is_cut,
        "blockers": roots,
        "locks": [
            {
                "key": one.key,
                "name": one.name,
                "states": sorted(state.slug for state in one.states),
                "holder": None if one.holder is None else asdict(one.holder),
                "held_for": one.held_for,
                "waiting": one.waiting,
                "behind": behind[one.name],
                "longest_wait": one.longest_wait,
                "waiters": waiter_fields(one.waiters),
            }
            for one in found.locks.values()
        ],
        "waits": [
            {
                "holds": one.holds.key,
                "waits_for": one.waits_for.key,
                "holder": None if one.by.holder is None else asdict(one.by.holder),
                "waited": one.waits_for.waited,
                "fingerprint": one.by.fingerprint,
            }
            for one in found.waits
        ],
    }
