"""What the list of the locks is asked for, and what it shows."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from django.core.paginator import Page, Paginator
from django.http import QueryDict
from django.utils.translation import gettext as _

from ..core import clock
from ..core.inspection import LOOKING, ORDERS, Inspector, LockInfo, State
from ..core.lock_filter import LockFilter
from ..core.plain import plain
from ..core.protocol.keys import name_for
from ..decorators import TEMPLATES
from ..descriptions import Said, state_word
from ..key_template import KeyTemplate, matcher, start_of
from ..locks import key_prefix
from .actions import admin_templates

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
# In the place of a template: the keys that are of none. No template is like that.
OTHER_KEYS = "<>"
# Counted even if there are none.
_COUNTED = (State.HELD, State.NOT_RENEWED, State.GONE, State.NEVER_EXPIRES)
# Of so many hosts, users and templates the list gives a choice: those with the most locks.
_CHOICES = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """How many locks a ``slug`` keeps of the list, and what that is called."""

    slug: str
    label: str
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A filter: its ``name`` in an address, and what it can be set to, ``chosen`` at present."""

    name: str
    label: str
    anything: str
    values: Sequence[Count]
    chosen: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A page of the list.

    ``order``: that which it has. ``counts`` and ``choices``: of the locks that were ``looked_at``;
    ``is_cut``: whether there are others, and ``is_of_sample``: whether the list lacks them.
    ``searched``: through how many names a search went (None: there was none), and ``onward`` where
    it goes on. ``over``: of how many locks the lease is over, and ``over_page`` where they are.
    ``as_of``: when it was, as a Unix time by the clock of the server.
    """

    locks: Sequence[LockInfo]
    page: Page[int]
    order: str
    counts: Sequence[Count]
    choices: Sequence[Choice]
    looked_at: int
    is_cut: bool = False
    is_of_sample: bool = False
    searched: int | None = None
    onward: str = ""
    over: int = 0
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


@dataclass(frozen=True, kw_only=True)
class Query:
    """What was asked of the list. What makes no sense in an address counts as not asked."""

    search: str
    template: str
    host: str
    user: str
    order: str
    state: str
    number: int
    everything: bool
    start: str
    template_of: Callable[[str], str]

    @classmethod
    def from_address(cls, parameters: QueryDict) -> Query:
        """Read ``q``, ``template``, ``host``, ``user``, ``state``, ``o``, ``p``.

        ``o``: an order, with ``-`` before it the other way. ``everything=1``: also what the index
        does not list. ``at`` is where a search goes on that was not finished.
        """
        start = parameters.get("at", "")
        order, state, number = parameters.get("o", ""), parameters.get("state", ""), 1
        with suppress(ValueError):
            number = max(int(parameters.get("p", "")), 1)
        template, known = parameters.get("template", ""), {*TEMPLATES}
        known |= {one.text for one in admin_templates()}
        if template != OTHER_KEYS:
            try:
                known.add(KeyTemplate(template).text)
            except ValueError:
                template = ""
        return cls(
            search=parameters.get("q", "").strip(),
            template=template,
            host=parameters.get("host", ""),
            user=parameters.get("user", ""),
            order=order if order.removeprefix("-") in ORDERS else "",
            state=state if state == WAITING or state in {one.slug for one in State} else "",
            number=number,
            everything=parameters.get("everything") == "1",
            start=start if _CURSOR.fullmatch(start) and int(start) < 2**64 else "",
            template_of=matcher(known),
        )

    @cached_property
    def wanted(self) -> LockFilter:
        """The locks that are kept, but for the state."""
        of_template = "" if self.template == OTHER_KEYS else self.template
        return LockFilter(
            text=self.search,
            host=self.host,
            user=self.user,
            has_key=self._has_key if self.template else None,
            key_start=start_of(of_template),
        )

    @property
    def is_filtered(self) -> bool:
        """Whether anything is kept out of the list."""
        return bool(self.wanted or self.state)

    def headers(self, order: str) -> list[dict[str, str]]:
        """Return the columns: the order that a ``click`` asks for, and how each is ``sorted``.

        ``order`` is that which the list has.
        """
        columns = [
            (_("Key"), "key"),
            (_("State"), "worst"),
            (_("Holder"), ""),
            (_("Held for"), "-held"),
            (_("Taken at"), "-taken"),
            (_("Lease left"), "lease"),
            (_("Waiting"), "-waiting"),
            (_("Longest wait"), "-wait"),
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
        if self.wanted:
            return self._searched(look)
        seen = look.sample(LOOKED_AT, everything=self.everything, start=self.start, within=LOOKING)
        is_cut = seen.is_cut
        order = self.order or ("worst" if self.state or not is_cut else "lease")
        is_of_sample = is_cut and (bool(self.state) or order not in _OF_ALL)
        if is_cut and not is_of_sample:
            locks, page, order = self._page_of_all(look, order)
        else:
            locks, page = self._page_of(self.sorted(seen.locks, order))
        return Found(
            locks=locks,
            page=page,
            order=order,
            counts=_counts(seen.locks),
            choices=self._choices(seen.locks),
            looked_at=len(seen.locks),
            is_cut=is_cut,
            is_of_sample=is_of_sample,
            onward=seen.onward,
            over=seen.over,
            as_of=_as_of(seen.locks, locks),
        )

    def _searched(self, look: Inspector) -> Found:
        seen = look.candidates(self.wanted, LOOKED_AT, everything=self.everything, start=self.start)
        locks = self.sorted(seen.locks, order := self.order or "worst")
        # The search may be for a name that is not listed, or that no lock can have.
        with suppress(ValueError):
            name = name_for(key_prefix(), self.search)
            if not self.start and name not in {lock.name for lock in locks}:
                locks += [one for one in [look.get(name)] if self.keeps(one)]
            locks.sort(key=lambda lock: lock.name != name)
        fitting = [one for one in seen.locks if self._fits(one)]
        shown, page = self._page_of(locks)
        return Found(
            locks=shown,
            page=page,
            order=order,
            counts=_counts(fitting),
            choices=self._choices(seen.locks),
            looked_at=len(seen.locks),
            searched=seen.total,
            onward=seen.onward,
            as_of=_as_of(seen.locks, locks),
        )

    def _page_of(self, locks: list[LockInfo]) -> tuple[list[LockInfo], Page[int]]:
        page = Paginator(range(len(locks)), _PER_PAGE).get_page(self.number)
        return locks[page.start_index() - 1 : page.end_index()] if locks else [], page

    def _page_of_all(self, look: Inspector, order: str) -> tuple[list[LockInfo], Page[int], str]:
        """Return the page, and the order that it has: of very many locks only that by lease."""
        number = self.number
        while True:
            found = look.page(
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

    def _has_key(self, key: str) -> bool:
        return (self.template_of(key) or OTHER_KEYS) == self.template

    def keeps(self, lock: LockInfo) -> bool:
        """Return whether ``lock`` is in the list."""
        is_free = lock.state is State.FREE
        return not is_free and self._fits(lock) and self.state in ("", *_slugs(lock))

    def _fits(self, lock: LockInfo) -> bool:
        return self.wanted.fits(lock.key, lock.holders)

    def sorted(self, locks: Sequence[LockInfo], order: str) -> list[LockInfo]:
        """Return those of ``locks`` that are in the list, in that ``order``."""
        kept = sorted(filter(self.keeps, locks), key=ORDERS["key"])
        return sorted(kept, key=ORDERS[order.removeprefix("-")], reverse=order.startswith("-"))

    def _choices(self, locks: Sequence[LockInfo]) -> list[Choice]:
        """Return the filters with what was seen in ``locks`` that the other filters keep."""
        return [
            self._choice("template", _("Template"), _("Any template"), locks),
            self._choice("host", _("Host"), _("Any host"), locks),
            self._choice("user", _("User"), _("Any user"), locks),
        ]

    def _choice(self, name: str, label: str, anything: str, locks: Sequence[LockInfo]) -> Choice:
        unset: dict[str, Any] = {name: ""}
        others, chosen = replace(self, **unset), getattr(self, name)
        counts = Counter(
            value for lock in locks if others.keeps(lock) for value in self._values(name, lock)
        )
        # What was chosen stays a choice, also where it was not seen.
        values = {chosen: counts[chosen]} if chosen else {}
        values |= dict(counts.most_common(_CHOICES))
        return Choice(
            name=name,
            label=label,
            anything=anything,
            values=[
                Count(slug=one, label=_("other keys") if one == OTHER_KEYS else plain(one), count=n)
                for one, n in sorted(values.items(), key=lambda item: (item[0] == OTHER_KEYS, item))
            ],
            chosen=chosen,
        )

    def _values(self, name: str, lock: LockInfo) -> set[str]:
        if name == "template":
            return {self.template_of(lock.key) or OTHER_KEYS}
        return {getattr(one, name) for one in lock.holders} - {""}


@dataclass(kw_only=True, slots=True)
class Walk:
    """All locks that a query keeps, page after page, but ``most`` at most.

    ``held``: only those with a holder to release them from (False). ``within``: for how many
    seconds names are looked through. ``is_cut``: afterwards, whether there may be more.
    """

    query: Query
    look: Inspector
    most: int
    within: float
    held: bool = False
    is_cut: bool = False

    def __iter__(self) -> Iterator[LockInfo]:
        query, until, start = self.query, clock.now() + self.within, ""
        found: set[str] = set()
        while True:
            page = self.look.candidates(
                query.wanted, LOOKED_AT, everything=query.everything, start=start
            )
            for lock in query.sorted(page.locks, query.order or "worst"):
                if lock.name in found or (self.held and not Said(lock).is_held):
                    continue
                if len(found) == self.most:
                    self.is_cut = True
                    return
                found.add(lock.name)
                yield lock
            start = page.onward
            if not start or clock.now() >= until:
                self.is_cut = bool(start)
                return


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


def _as_of(*locks: Sequence[LockInfo]) -> float:
    return max((one.as_of for some in locks for one in some), default=time.time())


def _is_by(order: str, column: str) -> bool:
    return order.removeprefix("-") == column.removeprefix("-")


def _reversed(order: str) -> str:
    return order.removeprefix("-") if order.startswith("-") else f"-{order}"
