"""What the list of the locks is asked for, and what it shows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from django.core.paginator import Page, Paginator
from django.http import QueryDict
from django.utils.translation import gettext as _

from ..core import Inspector
from ..core.inspection.lock_info import LockInfo, State
from ..core.protocol.keys import name_for
from ..descriptions import state_word, urgency
from ..locks import key_prefix

PER_PAGE = 50
# Where there are more than can be looked at, so many are.
_OF_MORE = 300
# For so many seconds names are looked through.
_WITHIN = 0.2
# A filter beside the states.
WAITING = "waiting"


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What the list shows.

    ``locks``: all that were found, ``page`` those of one page. ``counts``: of the locks that the
    search keeps, by state: its slug, word and number. ``looked_at``: at how many locks, and
    ``is_cut`` whether there are others. ``as_of``: when that was, as a Unix time by the clock of
    the server.
    """

    locks: Sequence[LockInfo]
    page: Page[LockInfo]
    counts: Sequence[tuple[str, str, int]]
    looked_at: int
    is_cut: bool
    as_of: float

    @property
    def page_range(self) -> object:
        return self.page.paginator.get_elided_page_range(self.page.number)


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """What was asked of the list. What makes no sense in an address counts as not asked."""

    search: str
    order: str
    state: str
    number: str

    @classmethod
    def from_address(cls, parameters: QueryDict) -> Query:
        """Read ``q``, ``state``, ``o`` (``key`` or ``worst``) and ``p``."""
        state = parameters.get("state", "")
        return cls(
            search=parameters.get("q", "").strip(),
            order="key" if parameters.get("o") == "key" else "worst",
            state=state if state == WAITING or state in {known.slug for known in State} else "",
            number=parameters.get("p", ""),
        )

    @property
    def is_filtered(self) -> bool:
        """Whether anything is kept out of the list."""
        return bool(self.search or self.state)

    def read(self, look: Inspector) -> Found:
        """Return the page. Of a search for a whole key, that lock comes first."""
        seen = look.find(first=_OF_MORE, search=self.search, within=_WITHIN)
        locks = [*seen.locks]
        whole = ""
        # The search may be for a name that is not listed, or that no lock can have.
        with suppress(ValueError):
            whole = name_for(key_prefix(), self.search) if self.search else ""
            if whole and whole not in {lock.name for lock in locks}:
                locks += [lock for lock in [look.get(whole)] if lock.state is not State.FREE]
        kept = sorted((lock for lock in locks if self.keeps(lock)), key=lambda lock: lock.key)
        if self.order == "worst":
            kept.sort(key=urgency)
        kept.sort(key=lambda lock: lock.name != whole)
        return Found(
            locks=kept,
            page=Paginator(kept, PER_PAGE).get_page(self.number),
            counts=_counts(locks, self.state),
            looked_at=seen.looked_at,
            is_cut=seen.is_cut,
            as_of=max((lock.as_of for lock in locks), default=time.time()),
        )

    def keeps(self, lock: LockInfo) -> bool:
        """Return whether ``lock`` is in the state that is asked for."""
        return not self.state or self.state in _slugs(lock)


def _slugs(lock: LockInfo) -> set[str]:
    """Return the filters that keep ``lock`` in the list."""
    return {*(state.slug for state in lock.states), *([WAITING] if lock.waiting else [])}


def _counts(locks: Sequence[LockInfo], chosen: str) -> list[tuple[str, str, int]]:
    counts = Counter(slug for lock in locks for slug in _slugs(lock))
    labels = {state.slug: state_word(state) for state in State}
    labels[WAITING] = _("waited for")
    return [
        (slug, label, counts[slug])
        for slug, label in labels.items()
        if counts[slug] or slug == chosen
    ]
