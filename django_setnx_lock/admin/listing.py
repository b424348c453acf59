"""Which locks the list shows, read from its address."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.paginator import Page, Paginator
from django.http import QueryDict
from django.utils.translation import gettext as _

from ..core.inspection import Inspector, LockInfo, LockPage, State
from ..core.keys import name_for
from ..locks import key_prefix

PER_PAGE = 50
_ORDERS = ("key", "lease")


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """What was asked of the list. What makes no sense in an address counts as not asked."""

    search: str = ""
    order: str = "key"
    descending: bool = False
    number: int = 1
    everything: bool = False

    @classmethod
    def from_address(cls, parameters: QueryDict) -> Query:
        """Read ``q``, ``o`` (``key``, ``-key``, ``lease``, ``-lease``), ``p``, ``everything``."""
        asked = parameters.get("o", "")
        order = asked.removeprefix("-")
        known = order in _ORDERS
        return cls(
            search=parameters.get("q", "").strip(),
            order=order if known else "key",
            descending=known and asked.startswith("-"),
            number=_page_number(parameters.get("p", "")),
            everything=parameters.get("everything") == "1",
        )


@dataclass(frozen=True, slots=True)
class Header:
    """The head of a column. ``click``: the order it asks for; "" where there is none.

    ``sorted``: ``ascending``, ``descending`` or "".
    """

    text: str
    click: str = ""
    sorted: str = ""


def headers(query: Query) -> list[Header]:
    """The heads of the list's columns."""

    def sortable(text: str, column: str) -> Header:
        if query.order != column:
            return Header(text, column)
        if query.descending:
            return Header(text, column, "descending")
        return Header(text, f"-{column}", "ascending")

    return [
        sortable(_("Key"), "key"),
        Header(_("State")),
        Header(_("Holder")),
        Header(_("Held for")),
        sortable(_("Lease left"), "lease"),
        Header(_("Fence")),
        Header(_("Waiting")),
    ]


def _page_number(text: str) -> int:
    try:
        return max(int(text), 1)
    except ValueError:
        return 1


def read(inspector: Inspector, query: Query) -> tuple[list[LockInfo], Page[int]]:
    """The locks to show, and the page they are on; the last one when there are not so many.

    The lock that is called what was searched for comes first, also when it is not listed.
    Raises LockUnavailable.
    """
    found = _ask(inspector, query, query.number)
    page = Paginator(range(found.total), PER_PAGE).get_page(query.number)
    if page.number != query.number:
        found = _ask(inspector, query, page.number)
    locks = list(found.locks)
    exact = _exact(inspector, query.search) if page.number == 1 else None
    if exact and exact.name not in {lock.name for lock in locks}:
        locks.insert(0, exact)
    return locks, page


def _ask(inspector: Inspector, query: Query, number: int) -> LockPage:
    return inspector.page(
        search=query.search,
        by_lease=query.order == "lease",
        descending=query.descending,
        offset=(number - 1) * PER_PAGE,
        limit=PER_PAGE,
        everything=query.everything,
    )


def _exact(inspector: Inspector, key: str) -> LockInfo | None:
    """The lock called ``key``, unless it is free or nothing can be called so."""
    try:
        info = inspector.get(name_for(key_prefix(), key))
    except ValueError:
        return None
    return None if info.state is State.FREE else info
