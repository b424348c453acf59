"""What the pages read of the history: that of one lock, and that of all."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext as _

from ..conf import get_config
from ..core.errors import LockUnavailable
from ..core.history import LOOKING, End, HistoryEntry, HistoryPage, check_id
from ..core.inspection import Inspector, LockInfo
from ..descriptions import duration, problem
from .timeline import SHOWN, Timeline, word_of

_PER_PAGE = 50
# The keys of so many entries at a time are compared with what is searched for.
_AT_ONCE = 500
_ENDS = {one.slug: one for one in End}


def what_is_kept(look: Inspector) -> str:
    """Say which holds the history has, or why there is none."""
    config = get_config()
    if config["HISTORY"] is None:
        return _("No history is kept: the setting HISTORY turns it off.")
    if not config["INDEX"]:
        return _("No history is kept without the setting INDEX.")
    if not look.has_history:
        return _("On Redis Cluster no history is kept.")
    length = config["HISTORY_LENGTH"]
    if config["HISTORY"] == "all" or not config["HISTORY_HELD"]:
        return _("The history has all holds, the last %(length)d.") % {"length": length}
    return _(
        "The history has what is notable, the last %(length)d: holds that were waited for, or "
        "lasted %(time)s or longer, or were lost, force-released, or not released in time."
    ) % {"length": length, "time": duration(config["HISTORY_HELD"])}


def last_holds(look: Inspector, info: LockInfo) -> dict[str, Any]:
    """Return what the page of a lock says of its last holds, or why it cannot."""
    try:
        found = look.history(info.name, limit=SHOWN)
    except LockUnavailable as error:
        # The rest of the page is known all the same.
        return {"history_problem": problem(error)}
    return {
        "timeline": Timeline.of(found.entries, info) if found.entries else None,
        # Others of the lock may stand further back.
        "is_cut": bool(found.onward) and len(found.entries) < SHOWN,
        "kept": what_is_kept(look),
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryQuery:
    """What was asked of the history. What makes no sense in an address counts as not asked.

    ``name``: the lock whose history it is ("": all). ``search``: a part of the keys. ``end``: how
    the holds ended. ``before``: where the page before left off.
    """

    name: str
    search: str
    end: str
    before: str

    @classmethod
    def from_address(cls, parameters: QueryDict) -> HistoryQuery:
        """Read ``name``, ``q``, ``end`` and ``before``."""
        end, before = parameters.get("end", ""), ""
        with suppress(ValueError):
            check_id(parameters.get("before", ""))
            before = parameters.get("before", "")
        return cls(
            name=parameters.get("name", ""),
            search=parameters.get("q", "").strip(),
            end=end if end in _ENDS else "",
            before=before,
        )

    @property
    def ends(self) -> list[tuple[str, str]]:
        """The ends to choose from, as addresses have them, and in words."""
        return [(slug, word_of(one.value)) for slug, one in _ENDS.items()]

    def read(self, look: Inspector) -> HistoryPage:
        """Return a page of it. What was not looked through yet begins at its ``onward``."""
        ends = (_ENDS[self.end],) if self.end else ()
        if not self.search:
            name = self.name or None
            return look.history(name, limit=_PER_PAGE, before=self.before, ends=ends)
        found: list[HistoryEntry] = []
        until, onward = time.monotonic() + LOOKING, self.before
        while True:
            page = look.history(self.name or None, limit=_AT_ONCE, before=onward, ends=ends)
            found += [one for one in page.entries if self.search in one.key]
            onward = page.onward
            if not onward or len(found) >= _PER_PAGE or time.monotonic() >= until:
                break
        if len(found) > _PER_PAGE:
            found, onward = found[:_PER_PAGE], found[_PER_PAGE - 1].id
        return HistoryPage(entries=found, onward=onward)
