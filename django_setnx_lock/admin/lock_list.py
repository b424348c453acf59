"""What the list of the locks is asked for, and what it shows."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from django.core.paginator import Page, Paginator
from django.http import QueryDict
from django.utils.translation import gettext as _

from ..core.inspection import LOOKING, ORDERS, Inspector, LockInfo, State
from ..core.protocol.keys import name_for
from ..descriptions import state_word
from ..locks import key_prefix

_PER_PAGE = 50
# Up to so many locks are all looked at for a page, which takes some 30 ms. Of more, it is those
# whose leases end first or last.
LOOKED_AT = 300
# Where Redis says that a search goes on.
_CURSOR = re.compile(r"[0-9]{1,20}")
# The orders in which also those can be listed that were not looked at.
_OF_ALL = ("key", "-key", "lease", "-lease")
# A filter beside the states.
WAITING = "waiting"
# Counted even if there are none.
_COUNTED = (State.HELD, State.NOT_RENEWED, State.GONE, State.NEVER_EXPIRES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """How many locks a ``slug`` keeps of the list, and what that is called."""

    slug: str
    label: str
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A page of the list.

    ``order``: that which it has. ``counts``: of the locks that were ``looked_at``; ``is_cut``:
    whether there are others, and ``is_of_sample``: whether the list lacks them. ``onward``: where
    the search goes on. ``over``: of how many locks the lease is over, and ``over_page`` where they
    are. ``as_of``: when it was, as a Unix time by the clock of the server.
    """

    locks: Sequence[LockInfo]
    page: Page[int]
    order: str
    counts: Sequence[Count]
    looked_at: int
    is_cut: bool
    is_of_sample: bool
    onward: str
    over: int
    as_of: float

    @property
    def count(self) -> int:
        return max(self.page.paginator.count, len(self.locks))

    @property
    def over_page(self) -> int:
        # By lease they come last.
        return max(self.page.paginator.count - self.over, 0) // _PER_PAGE + 1

    @property
    def page_range(self) -> object:
        return self.page.paginator.get_elided_page_range(self.page.number)


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """What was asked of the list. What makes no sense in an address counts as not asked."""

    search: str
    order: str
    state: str
    number: int
    everything: bool
    start: str

    @classmethod
    def from_address(cls, parameters: QueryDict) -> Query:
        """Read ``q``, ``o`` (an order, with ``-`` before it the other way), ``state``, ``p``.

        ``everything=1``: also what the index does not list. ``at`` is where a search goes on that
        was not finished.
        """
        start = parameters.get("at", "")
        order, state, number = parameters.get("o", ""), parameters.get("state", ""), 1
        with suppress(ValueError):
            number = max(int(parameters.get("p", "")), 1)
        return cls(
            search=parameters.get("q", "").strip(),
            order=order if order.removeprefix("-") in ORDERS else "",
            state=state if state == WAITING or state in {one.slug for one in State} else "",
            number=number,
            everything=parameters.get("everything") == "1",
            start=start if _CURSOR.fullmatch(start) and int(start) < 2**64 else "",
        )

    def headers(self, order: str) -> list[dict[str, str]]:
        """Return the columns: the order that a ``click`` asks for, and how each is ``sorted``.

        ``order`` is that which the list has.
        """
        columns = [
            (_("Key"), "key"),
            (_("State"), "worst"),
            (_("Holder"), ""),
            (_("Held for"), "-held"),
            (_("Lease left"), "lease"),
            (_("Fence"), ""),
            (_("Waiting"), "-waiting"),
        ]
        return [
            {
                "text": text,
                "click": _reversed(order) if _is_by(order, first) else first,
                "sorted": ("descending" if order.startswith("-") else "ascending")
                if _is_by(order, first)
                else "",
            }
            for text, first in columns
        ]

    def read(self, look: Inspector) -> Found:
        """Return the page. Of a search for a whole key, that lock comes first."""
        seen = look.sample(
            LOOKED_AT,
            search=self.search,
            everything=self.everything,
            start=self.start,
            within=LOOKING,
        )
        is_cut = seen.is_cut
        order = self.order or ("worst" if self.state or not is_cut else "lease")
        is_of_sample = is_cut and (bool(self.state) or order not in _OF_ALL)
        if is_cut and not is_of_sample:
            locks, page, order = self._page_of_all(look, order)
        else:
            locks = self._sorted(seen.locks, order)
            page = Paginator(range(len(locks)), _PER_PAGE).get_page(self.number)
            locks = locks[page.start_index() - 1 : page.end_index()] if locks else []
        # The search may be for a name that is not listed, or that no lock can have.
        with suppress(ValueError):
            name = name_for(key_prefix(), self.search)
            is_first = page.number == 1 and not self.start and not self.state
            if is_first and name not in {lock.name for lock in locks}:
                exact = look.get(name)
                if exact.state is not State.FREE:
                    locks.insert(0, exact)
        return Found(
            locks=locks,
            page=page,
            order=order,
            counts=_counts(seen.locks),
            looked_at=len(seen.locks),
            is_cut=is_cut,
            is_of_sample=is_of_sample,
            onward=seen.onward,
            over=seen.over,
            as_of=max((one.as_of for one in (*seen.locks, *locks)), default=time.time()),
        )

    def _page_of_all(self, look: Inspector, order: str) -> tuple[list[LockInfo], Page[int], str]:
        """Return the page, and the order that it has: of very many locks only that by lease."""
        number = self.number
        while True:
            found = look.page(
                search=self.search,
                by_lease=order.endswith("lease"),
                descending=order.startswith("-"),
                offset=(number - 1) * _PER_PAGE,
                limit=_PER_PAGE,
                everything=self.everything,
                start=self.start,
            )
            page = Paginator(range(found.total), _PER_PAGE).get_page(number)
            if page.number == number:
                return (
                    list(found.locks),
                    page,
                    order.replace("key", "lease" if found.by_lease else "key"),
                )
            number = page.number

    def _sorted(self, locks: Sequence[LockInfo], order: str) -> list[LockInfo]:
        kept = [one for one in locks if not self.state or self.state in _slugs(one)]
        kept.sort(key=ORDERS["key"])
        return sorted(kept, key=ORDERS[order.removeprefix("-")], reverse=order.startswith("-"))


def _slugs(lock: LockInfo) -> set[str]:
    """Return the filters that keep ``lock`` in the list."""
    return {*(state.slug for state in lock.states), *([WAITING] if lock.waiting else [])}


def _counts(locks: Sequence[LockInfo]) -> list[Count]:
    counts = Counter(slug for one in locks for slug in _slugs(one))
    found = [
        Count(slug=one.slug, label=state_word(one), count=counts[one.slug])
        for one in State
        if one in _COUNTED or counts[one.slug]
    ]
    found.insert(1, Count(slug=WAITING, label=_("waited for"), count=counts[WAITING]))
    return found


def _is_by(order: str, column: str) -> bool:
    return order.removeprefix("-") == column.removeprefix("-")


def _reversed(order: str) -> str:
    return order.removeprefix("-") if order.startswith("-") else f"-{order}"
