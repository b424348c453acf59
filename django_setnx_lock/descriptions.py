"""Locks, their holders and their times in words: the same for the admin pages and the commands."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext_lazy

from .core.errors import LockUnavailable
from .core.holder import plain
from .core.inspection.lock_info import TROUBLES, LockInfo, State
from .history import End, HistoryEntry

if TYPE_CHECKING:
    from typing_extensions import Self

    from .core.holder import Holder

NOT_KNOWN = "-"
# How many of those who hold a lock together the list names.
FEW = 3


class _Words(NamedTuple):
    """The name of a state, its meaning, and what an operator can do about it."""

    word: str | Promise
    meaning: str | Promise
    advice: str | Promise = gettext_lazy("Nothing.")


_SEE_HOLDERS = gettext_lazy("Nothing. Open the lock to see all of its holders.")
_STATES = {
    State.HELD: _Words(
        pgettext_lazy("state of a lock", "held"),
        gettext_lazy("Somebody holds it, for as long as the lease runs or is renewed."),
        gettext_lazy("Nothing, unless it is held for longer than its work can take."),
    ),
    State.NOT_RENEWED: _Words(
        pgettext_lazy("state of a lock", "not renewed"),
        gettext_lazy(
            "A renewal is overdue: its process was stopped, is cut off from Redis, or gave it up."
        ),
        gettext_lazy(
            "Look at the process of the holder. The lock frees itself when its lease ends."
        ),
    ),
    State.GONE: _Words(
        pgettext_lazy("state of a lock", "holder gone"),
        gettext_lazy(
            "Its process no longer says that it lives: it was killed, is suspended, or is cut off "
            "from Redis. The lock stays held until its lease ends or it is released."
        ),
        gettext_lazy(
            "Make sure that the process has ended, and release the lock if you cannot wait for the "
            "end of the lease."
        ),
    ),
    State.READ: _Words(
        pgettext_lazy("state of a lock", "read"),
        gettext_lazy("Readers hold it together. Whoever wants it alone waits for all of them."),
        _SEE_HOLDERS,
    ),
    State.PERMITS: _Words(
        pgettext_lazy("state of a lock", "in use"),
        gettext_lazy("Several hold it together, up to a number that they agree on."),
        _SEE_HOLDERS,
    ),
    State.KEPT: _Words(
        pgettext_lazy("state of a lock", "kept"),
        gettext_lazy("Its holder is done with it. Nobody gets it before its least time is over."),
        gettext_lazy("Nothing: it frees itself."),
    ),
    State.NEVER_EXPIRES: _Words(
        pgettext_lazy("state of a lock", "never expires"),
        gettext_lazy("Somebody holds it without a lease: it stays held until it is released."),
        gettext_lazy(
            "Find out which program took it, and release the lock if that has ended: nothing else "
            "frees it."
        ),
    ),
    State.FOREIGN: _Words(
        pgettext_lazy("state of a lock", "foreign"),
        gettext_lazy("Another program holds it, which left no record of itself."),
        gettext_lazy("Ask whoever runs the other program before you release it."),
    ),
    State.CHANGING_HANDS: _Words(
        pgettext_lazy("state of a lock", "changing hands"),
        gettext_lazy("It was left to the next who waits, who is about to take it up."),
        gettext_lazy("Nothing: it takes a second at most."),
    ),
    State.FREE: _Words(pgettext_lazy("state of a lock", "free"), gettext_lazy("Nobody holds it.")),
    State.NO_LOCK: _Words(
        pgettext_lazy("state of a lock", "not a lock"),
        gettext_lazy("Something that is no lock is stored at this name, so nobody can take it."),
        gettext_lazy("Find out which program writes there, and have it use another name."),
    ),
}

_CHECK_SERVER = gettext_lazy("Check that the Redis server runs and can be reached from here.")
# For each cause of LockUnavailable: what is wrong, and what to do.
_PROBLEMS: dict[str, tuple[str | Promise, str | Promise]] = {
    "unreachable": (gettext_lazy("Redis cannot be reached."), _CHECK_SERVER),
    "timeout": (gettext_lazy("Redis did not answer in time."), _CHECK_SERVER),
    "pool": (
        gettext_lazy("No connection to Redis is free."),
        gettext_lazy("Try again in a moment, or raise max_connections of the cache."),
    ),
    "denied": (
        gettext_lazy("Redis refuses the credentials of the cache, or they lack a right."),
        gettext_lazy("Check the cache's user name and password, and that user's ACL rule."),
    ),
    "server": (
        gettext_lazy("Redis answered with an error."),
        gettext_lazy("Look for the cause in the log of the Redis server."),
    ),
}


def state_word(state: State) -> str:
    """Return what the pages call that state."""
    return str(_STATES[state].word)


def meanings() -> list[tuple[str, str, str]]:
    """Return each state with its meaning for an operator, and what to do about it."""
    return [(str(word), str(meaning), str(advice)) for word, meaning, advice in _STATES.values()]


# Lazy: to look a translation up takes most of the time, and at most two are shown.
_UNITS = (gettext_lazy("%d d"), gettext_lazy("%d h"), gettext_lazy("%d min"), gettext_lazy("%d s"))


def duration(seconds: float | None) -> str:
    """Return ``seconds`` in its two largest units: ``2 min 5 s``; a dash for None."""
    if seconds is None:
        return NOT_KNOWN
    if seconds < 1:
        return _("less than 1 s")
    whole = int(seconds)
    days, hours = divmod(whole // 3600, 24)
    minutes, rest = divmod(whole % 3600, 60)
    parts = list(zip((days, hours, minutes, rest), _UNITS, strict=True))
    while not parts[0][0]:
        del parts[0]
    return " ".join(str(unit) % amount for amount, unit in parts[:2] if amount)


def moment(at: float | None) -> str:
    """Return the Unix time ``at`` as a date and time in the time zone of the project."""
    if at is None:
        return NOT_KNOWN
    try:
        found = datetime.fromtimestamp(at, timezone.get_current_timezone())
    except (ValueError, OverflowError, OSError):
        # A time that no clock tells.
        return NOT_KNOWN
    return f"{found:%Y-%m-%d %H:%M:%S %z}"


def place_of(holder: Holder | None) -> str:
    """Return where that holder is, as ``user@host:pid``; one without a record is not ours."""
    if holder is None:
        return _("another program")
    place = f"{holder.host or '?'}:{holder.pid or '?'}"
    return f"{holder.user}@{place}" if holder.user else place


def about_of(holder: Holder | None) -> str:
    """Return what that holder said it is doing."""
    return "; ".join(part for part in (holder.label, holder.note) if part) if holder else ""


@dataclass(frozen=True, slots=True)
class LockPresenter:
    """A lock in words; or one of those who hold it together, in :attr:`shares`."""

    info: LockInfo

    @property
    def key(self) -> str:
        """The key, fit to be shown: any program may have chosen it."""
        return plain(self.info.key)

    @property
    def shares(self) -> list[Self]:
        """The lock once for each of those who hold it together."""
        return [replace(self, info=share) for share in self.info.shares]

    @property
    def holders(self) -> list[Self]:
        """The lock once for each who holds it; empty when there is none to release it from."""
        return self.shares or ([self] if self.is_held else [])

    @property
    def is_held(self) -> bool:
        """Whether there is a holder to release it from."""
        return self.info.is_held and self.info.state is not State.CHANGING_HANDS

    @property
    def has_trouble(self) -> bool:
        """Whether a holder needs attention: it is gone, or a renewal is overdue."""
        return any(holder.state in TROUBLES for holder in self.info.holders)

    @property
    def state(self) -> str:
        """The state in a word or two; of permits, how many of them are in use.

        If several hold the lock, also how many of them need attention, and why.
        """
        text = state_word(self.info.state)
        states = [share.state for share in self.info.shares]
        if self.info.limit:
            used = {"state": text, "count": len(states), "limit": self.info.limit}
            text = _("%(state)s, %(count)d of %(limit)d") % used
        for trouble in TROUBLES:
            if trouble in states:
                count = states.count(trouble)
                text = f"{text}; {count}: {state_word(trouble)}"
        return text

    @property
    def state_class(self) -> str:
        """The state as the style sheet of the pages has it."""
        return "lock-" + self.info.state.name.lower().replace("_", "-")

    @property
    def meaning(self) -> str:
        """What the state means."""
        return str(_STATES[self.info.state].meaning)

    @property
    def evidence(self) -> str:
        """The last sign of life of the holder, and when it was; empty where none is known."""
        parts = [_("no sign of life for 15 s or longer")] if self.info.state is State.GONE else []
        if (ago := self.info.renewed_ago) is not None:
            about = {"moment": moment(self.info.as_of - ago), "ago": duration(ago)}
            parts.append(_("last renewed %(moment)s (%(ago)s ago)") % about)
        return ", ".join(parts)

    @property
    def frees_itself(self) -> str:
        """When nobody holds the lock any more if nobody does anything; empty if nobody does now."""
        info = self.info
        if info.state is State.NEVER_EXPIRES:
            return _("does not free itself")
        if info.remaining is None or not self.is_held:
            return ""
        about = {"moment": self.ends_at, "time": duration(info.remaining)}
        living = (one.holder for one in info.holders if one.state is State.HELD)
        if any(holder is not None and holder.renewed for holder in living):
            return _("frees itself %(moment)s (in %(time)s) unless it is renewed") % about
        return _("frees itself %(moment)s (in %(time)s)") % about

    @property
    def wait(self) -> str:
        """How many wait, and for how long the first of them has waited, as part of a sentence."""
        count, first = self.info.waiting, self.info.longest_wait
        if not count:
            return _("nobody waits")
        text = ngettext("%(count)d waits", "%(count)d wait", count) % {"count": count}
        if first is None:
            return text
        return _("%(text)s, the first for %(time)s") % {"text": text, "time": duration(first)}

    @property
    def summary(self) -> str:
        """What an operator asks first: the last sign of life, who waits, when it frees itself."""
        return "; ".join(part for part in (self.evidence, self.wait, self.frees_itself) if part)

    @property
    def place(self) -> str:
        """Its holder, as ``user@host:pid``; if several hold it, the first few."""
        if self.shares:
            few = ", ".join(share.place for share in self.shares[:FEW])
            more = len(self.shares) - FEW
            if more <= 0:
                return few
            text = ngettext("%(few)s and %(count)d more", "%(few)s and %(count)d more", more)
            return text % {"few": few, "count": more}
        is_nobodys = self.info.holder is None and not self.is_held
        return NOT_KNOWN if is_nobodys else place_of(self.info.holder)

    @property
    def about(self) -> str:
        """What the holder said it is doing; what several of them did, each thing once."""
        if self.shares:
            each = (share.about for share in self.shares if share.about)
            return plain(", ".join(dict.fromkeys(each)))
        return about_of(self.info.holder)

    @property
    def holder(self) -> str:
        """The holder and what it does, as ``user@host:pid (label)``."""
        place, about = self.place, self.about
        return f"{place} ({about})" if about else place

    @property
    def held_for(self) -> str:
        """How long it has been held; of one that is kept after its release that is not known."""
        return duration(None if self.info.state is State.KEPT else self.info.held_for)

    @property
    def granted_at(self) -> str:
        """When it was granted, in the time zone of the project."""
        return moment(None if self.info.state is State.KEPT else self.info.granted_at)

    @property
    def ends_at(self) -> str:
        """When its lease ends, or ended, in the time zone of the project."""
        left = self.info.remaining
        return moment(None if left is None else self.info.as_of + left)

    @property
    def lease(self) -> str:
        """How long its lease is, and whether that is renewed."""
        holder = self.info.holder
        if holder is None or not holder.lease:
            return NOT_KNOWN
        text = (
            _("%(time)s, renewed while it is held")
            if holder.renewed
            else _("%(time)s, not renewed")
        )
        return text % {"time": duration(holder.lease)}

    @property
    def lease_left(self) -> str:
        """How long its lease still runs."""
        if self.info.state is State.NEVER_EXPIRES:
            return _("without end")
        return duration(self.info.remaining)

    @property
    def queue(self) -> str:
        """How many wait, and for how long the first of them has waited, for a column."""
        waiting, first = str(self.info.waiting), self.info.longest_wait
        return waiting if first is None else f"{waiting} ({duration(first)})"

    @property
    def awaited(self) -> list[str]:
        """For what its holders wait themselves, each lock once."""
        waits = (holder.waits_for for holder in self.info.holders)
        return list(dict.fromkeys(plain(one.key) for one in waits if one is not None))

    @property
    def hears_within(self) -> str:
        """In what time a living holder hears what was done to it; empty when not known."""
        holder = self.info.holder
        is_living = self.info.state is State.HELD and holder is not None and holder.renewed
        # A third of the lease is between two renewals.
        return duration(holder.lease / 3) if is_living and holder and holder.lease else ""

    @property
    def is_asked(self) -> bool:
        """Whether its holder was asked to stop, or one of several."""
        return any(holder.stop_requested is not None for holder in self.info.holders)

    @property
    def can_be_asked(self) -> bool:
        """Whether there is a holder who was not asked to stop, and would hear it."""
        info = self.info
        return info.hears_requests and any(one.stop_requested is None for one in info.holders)

    @property
    def stop_requested(self) -> str:
        """The person who asked the holder to stop, when and why; of several holders, how many."""
        count = len(self.info.shares)
        if asked := sum(share.stop_requested is not None for share in self.info.shares):
            text = ngettext(
                "%(asked)d of %(count)d holder", "%(asked)d of %(count)d holders", count
            )
            return text % {"asked": asked, "count": count}
        request = self.info.stop_requested
        if request is None:
            return NOT_KNOWN
        ago = duration(max(self.info.as_of - request.at, 0) if request.at else None)
        text = _("by %(by)s, %(ago)s ago") % {"by": request.by or _("an operator"), "ago": ago}
        return f"{text}: {request.reason}" if request.reason else text


def waiters(info: LockInfo, most: int = 10) -> tuple[list[tuple[str, str]], int]:
    """Return who waits for the lock and since when, in so many lines at ``most``; how many others.

    Those of whom the same is to be said are counted together, in the place of the first of them.
    """
    groups: dict[str, list[float | None]] = {}
    for waiter in info.waiters:
        groups.setdefault(str(waiter.holder or NOT_KNOWN), []).append(waiter.waited)
    lines, others = [], info.waiting
    for who, waits in [*groups.items()][:most]:
        others -= len(waits)
        several = f"{len(waits)} \N{MULTIPLICATION SIGN} {who}"
        lines.append((several if len(waits) > 1 else who, since(info, waits[0])))
    return lines, max(others, 0)


def since(info: LockInfo, waited: float | None) -> str:
    """Return since when a caller has ``waited``: the moment, and how long ago it was."""
    if waited is None:
        return NOT_KNOWN
    return f"{moment(info.as_of - waited)} ({duration(waited)})"


# What an operator sees first, as nobody else will mend it.
_URGENT = (State.GONE, State.NOT_RENEWED, State.NO_LOCK, State.NEVER_EXPIRES)


def urgency(info: LockInfo) -> tuple[float, ...]:
    """Return by what a list is sorted in which what needs an operator most comes first.

    Of locks in equal trouble it is the time for which callers would wait together.
    """
    trouble = min((_URGENT.index(state) for state in info.states if state in _URGENT), default=9)
    ill = [one for one in info.holders if one.state in TROUBLES] or [info]
    left = max(one.remaining or 0.0 for one in ill)
    if info.state is State.NEVER_EXPIRES:
        left = float("inf")
    return trouble, -(info.waiting * left if info.waiting else 0.0), -(info.longest_wait or 0.0)


def usual_hold(entries: Iterable[HistoryEntry]) -> str:
    """Return how long holds usually last that were released, by ``entries``; empty if unknown."""
    held = [one.held_for for one in entries if one.end is End.RELEASED and one.held_for is not None]
    if not held:
        return ""
    text = ngettext(
        "%(time)s (%(count)d in the history)",
        "%(time)s (the median of %(count)d in the history)",
        len(held),
    )
    return text % {"time": duration(median(held)), "count": len(held)}


def facts(row: LockPresenter) -> list[tuple[str, str]]:
    """Return what is known of the lock itself, each fact with its label."""
    state = (_("State"), f"{row.state}: {row.meaning}")
    return [(_("Key"), row.key), state, (_("Waiting"), row.queue), *redis_facts(row)]


def hold_facts(row: LockPresenter) -> list[tuple[str, str]]:
    """Return what is known of a hold and its holder, likewise."""
    return [
        (_("Last sign of life"), row.evidence or NOT_KNOWN),
        (_("Held since"), row.granted_at),
        (_("Held for"), row.held_for),
        (_("Lease left"), row.lease_left),
        *([(_("Asked to stop"), row.stop_requested)] if row.is_asked else []),
        *holder_facts(row),
    ]


def redis_facts(row: LockPresenter) -> list[tuple[str, str]]:
    """Return what Redis holds for the lock, each fact with its label."""
    return [
        (_("Name in Redis"), plain(row.info.name)),
        (_("Type in Redis"), row.info.kind),
        (_("Fence"), NOT_KNOWN if row.info.fence is None else str(row.info.fence)),
        (_("Fingerprint of the holder"), row.info.fingerprint or NOT_KNOWN),
    ]


def holder_facts(row: LockPresenter) -> list[tuple[str, str]]:
    """Return the facts of the holder's record; none when there is no record."""
    holder = row.info.holder
    if holder is None or row.info.shares:
        return []
    return [
        (_("Host"), holder.host or NOT_KNOWN),
        (_("Process"), str(holder.pid or NOT_KNOWN)),
        (_("Thread"), holder.thread or NOT_KNOWN),
        (_("User"), holder.user or NOT_KNOWN),
        (_("Label"), holder.label or NOT_KNOWN),
        (_("Note"), holder.note or NOT_KNOWN),
        (_("Lease"), row.lease),
    ]


_ENDS: dict[End, str | Promise] = {
    End.RELEASED: pgettext_lazy("end of a hold", "released"),
    End.LOST: pgettext_lazy("end of a hold", "lost"),
    End.FORCED: pgettext_lazy("end of a hold", "forced"),
    End.RAN_OUT: pgettext_lazy("end of a hold", "lease ran out"),
    End.GAVE_UP: pgettext_lazy("end of a hold", "gave up"),
}


def end_word(end: End) -> str:
    """Return what the pages call that end."""
    return str(_ENDS[end])


class EndPresenter:
    """The end of a hold, or of a wait, in words."""

    def __init__(self, entry: HistoryEntry) -> None:
        self.entry, self.key = entry, entry.key
        self.place, self.about = place_of(entry.holder), about_of(entry.holder)
        self.holder = str(entry.holder or self.place)
        self.ended, self.held_for = moment(entry.at), duration(entry.held_for)
        self.waited = duration(entry.waited or None)
        self.until = moment(entry.until)

    @property
    def end(self) -> str:
        """How it ended, by whom and why."""
        text = end_word(self.entry.end)
        if self.entry.by:
            text = _("%(end)s by %(by)s") % {"end": text, "by": self.entry.by}
        if self.entry.reason:
            text = f"{text}: {self.entry.reason}"
        is_own = self.entry.until is None
        return text if is_own else _("%(end)s (its holder did not note it)") % {"end": text}

    def has(self, text: str) -> bool:
        """Return whether ``text`` is in what is said of it, in any case."""
        each = (self.key, self.end, self.place, self.about)
        return any(text.casefold() in one.casefold() for one in each)


def problem(error: LockUnavailable | ImproperlyConfigured) -> dict[str, str]:
    """Return what a page says that cannot show a lock: what is wrong, and what to do."""
    if isinstance(error, ImproperlyConfigured):
        detail = str(error)
        text = _("The settings name no cache that can hold locks.")
        advice = _("Correct CACHES or SETNX_LOCK in the project's settings.")
    else:
        # The words of redis-py: our error speaks of one lock, and a list asks about many.
        detail = str(error.__cause__ or error)
        text, advice = map(str, _PROBLEMS.get(error.cause, _PROBLEMS["server"]))
    detail = f"{capfirst(detail.rstrip('.'))}."
    return {"problem": text, "detail": detail, "advice": advice}


def problem_in_short(error: LockUnavailable | ImproperlyConfigured) -> str:
    """Return what a message says of it, without the page around: what is wrong, and what to do."""
    about = problem(error)
    return " ".join((about["problem"], about["detail"], about["advice"]))
