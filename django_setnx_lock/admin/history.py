"""How holds ended, in words: the last ones of a lock on its page, and those of all locks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import pgettext_lazy

from ..conf import get_config
from ..core.errors import LockUnavailable
from ..descriptions import NOT_KNOWN, about_of, duration, moment, place_of, problem
from ..history import End, HistoryEntry, last

# So many holds are on the page of a lock, and on a page of the history.
_OF_LOCK, _PER_PAGE = 5, 50
_WORDS: dict[End, str | Promise] = {
    End.RELEASED: pgettext_lazy("end of a hold", "released"),
    End.LOST: pgettext_lazy("end of a hold", "lost"),
    End.FORCED: pgettext_lazy("end of a hold", "forced"),
    End.GAVE_UP: pgettext_lazy("end of a hold", "gave up"),
}


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold that has ended, in words."""

    entry: HistoryEntry

    @property
    def key(self) -> str:
        return self.entry.key

    @property
    def end(self) -> str:
        """How it ended, by whom and why."""
        entry = self.entry
        said = {"word": str(_WORDS.get(entry.end, entry.end.value)), "by": entry.by}
        said["why"] = entry.reason
        if entry.by and entry.reason:
            return _("%(word)s by %(by)s: %(why)s") % said
        if entry.by:
            return _("%(word)s by %(by)s") % said
        return _("%(word)s: %(why)s") % said if entry.reason else said["word"]

    @property
    def place(self) -> str:
        holder = self.entry.holder
        return _("another program") if holder is None else place_of(holder)

    @property
    def about(self) -> str:
        return about_of(self.entry.holder) if self.entry.holder else ""

    @property
    def ended(self) -> str:
        return moment(self.entry.at)

    @property
    def held_for(self) -> str:
        return duration(self.entry.held_for)

    @property
    def waited(self) -> str:
        return duration(self.entry.waited) if self.entry.waited else NOT_KNOWN


def what_is_kept() -> str:
    """Say which holds the history has, or why there is none."""
    length = get_config()["HISTORY"]
    if not length:
        return _("No history is kept: the setting HISTORY is 0.")
    return _(
        "The history has the last %(length)d notable ends that holders told of: holds that were "
        "lost, force-released, waited for or long, and waits in vain."
    ) % {"length": length}


def last_holds(using: str | None, name: str) -> dict[str, Any]:
    """Return what the page of a lock says of its last holds, or why it cannot."""
    try:
        found = last(using, name=name)[:_OF_LOCK]
    except LockUnavailable as error:
        # The rest of the page is known all the same.
        return {"history_problem": problem(error)}
    return {"holds": [Hold(one) for one in found], "kept": what_is_kept()}


def page_of(using: str | None, name: str, search: str, number: str | None) -> Page[Hold]:
    """Return a page of the holds that have ended, the latest first.

    ``name``: of the lock in Redis ("": all). ``search``: what is in key, end or holder ("": all).
    """
    wanted = search.casefold()
    holds = [Hold(one) for one in last(using, name=name or None)]
    found = [
        one
        for one in holds
        if any(wanted in text.casefold() for text in (one.key, one.end, one.place, one.about))
    ]
    return Paginator(found, _PER_PAGE).get_page(number)
