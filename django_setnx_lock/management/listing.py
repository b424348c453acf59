"""Which locks ``manage.py locks`` speaks of, and how it writes them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..conf import get_config
from ..connection import aliases_in, default_alias
from ..core.errors import LockUnavailable
from ..core.inspection import Inspector, LockInfo, ShareInfo, State
from ..core.keys import name_for
from ..locks import inspector, key_prefix
from ..words import Said, problem
from .printing import printable, table


def state_name(state: State) -> str:
    """The state as options and JSON have it: its word, with hyphens."""
    return state.value.replace(" ", "-")


# A lock that is free is in no list.
STATES = [state_name(state) for state in State if state is not State.FREE]


@dataclass(frozen=True, slots=True)
class Found:
    """A lock, and the cache alias where it was found."""

    using: str
    info: LockInfo


_FOREVER = float("inf")
# By what a list is sorted. Who never ends comes last, and who is not known to hold it first.
_ORDERS: dict[str, Callable[[LockInfo], float]] = {
    "lease": lambda info: _FOREVER if info.remaining is None else info.remaining,
    # A fence is the moment of the grant, and exact.
    "held": lambda info: -_FOREVER if info.held_for is None else -(info.fence or 0),
    "waiting": lambda info: info.waiting,
}
ORDERS = ["key", *_ORDERS]


def aliases(using: str | None) -> list[str]:
    """The cache aliases in ``using``, apart by commas; those of the settings when it is None."""
    if using is not None:
        return using.split(",")
    return list(aliases_in(get_config()["CACHE"])) or [default_alias()]


def gather(
    using: str | None, look: Callable[[Inspector], Sequence[LockInfo]]
) -> tuple[list[Found], list[str]]:
    """What ``look`` finds in each cache of ``using``, and what is wrong with those that are away.

    Raises ImproperlyConfigured for a cache that cannot hold locks.
    """
    found: list[Found] = []
    troubles: list[str] = []
    several = aliases(using)
    for alias in several:
        try:
            found += [Found(alias, info) for info in look(inspector(alias))]
        except LockUnavailable as error:
            where = f"the cache {alias!r}: " if len(several) > 1 else ""
            troubles.append(f"{where}{trouble(error)}")
    return found, troubles


def trouble(error: LockUnavailable) -> str:
    """What is wrong, in detail, and what to do about it."""
    said = problem(error)
    return printable(f"{said['problem']} {said['detail']} {said['advice']}")


def find(
    look: Inspector, *, search: str = "", states: Sequence[str] = (), everything: bool = False
) -> list[LockInfo]:
    """The locks that ``look`` lists. Raises LockUnavailable."""
    # A server that does not know the script yet would be sent it with each of the names.
    look.get(name_for(key_prefix(), "list"))
    # All at once: from page to page the names move up as others are let go.
    page = look.page(search=search, everything=everything, limit=sys.maxsize)
    return [info for info in page.locks if not states or state_name(info.state) in states]


def in_order(found: Sequence[Found], order: str, *, reverse: bool = False) -> list[Found]:
    """``found`` sorted by a column of :data:`ORDERS`, and by key and alias where that is equal."""
    ordered = sorted(found, key=lambda one: (one.info.key, one.using))
    if order in _ORDERS:
        rank = _ORDERS[order]
        ordered.sort(key=lambda one: rank(one.info))
    return ordered[::-1] if reverse else ordered


def as_table(found: Sequence[Found]) -> list[str]:
    """The locks, one a line, below a head; the cache only where there are several."""
    several = len({one.using for one in found}) > 1
    head = ["KEY", "STATE", "HOLDER", "HELD FOR", "LEASE LEFT", "FENCE", "WAITING"]
    rows = [["CACHE", *head] if several else head]
    for one in found:
        said = Said(one.info)
        row = [
            one.info.key,
            said.state,
            said.holder,
            said.held_for,
            said.lease_left,
            "-" if one.info.fence is None else str(one.info.fence),
            str(one.info.waiting),
        ]
        rows.append([one.using, *row] if several else row)
    return table(rows)


def as_json(found: Sequence[Found], troubles: Sequence[str] = ()) -> dict[str, Any]:
    """The locks for programs. Its names stay; a token is never among them."""
    return {"locks": [_lock(one) for one in found], "troubles": list(troubles)}


def _lock(one: Found) -> dict[str, Any]:
    info = one.info
    return {
        "using": one.using,
        "key": info.key,
        "name": info.name,
        "state": state_name(info.state),
        "kind": info.kind,
        "unit": info.unit,
        "waiting": info.waiting,
        **_held(info),
        "shares": [_held(share) for share in info.shares],
    }


def _held(info: LockInfo | ShareInfo) -> dict[str, Any]:
    return {
        "holder": None if info.holder is None else asdict(info.holder),
        "fence": info.fence,
        "held_for": info.held_for,
        "remaining": info.remaining,
        "fingerprint": info.fingerprint,
    }
