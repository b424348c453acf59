"""The last holds of a lock in words, and where each stands in the picture of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import pgettext_lazy

from ..core.history import End, HistoryEntry
from ..core.holder import Holder
from ..core.inspection import LockInfo, State
from ..descriptions import about_of, duration, moment, place_of

#: So many holds are drawn, and at most so many of them are present ones.
SHOWN, PRESENT = 10, 5
#: How a hold ends that has not ended.
RUNNING = "running"

_WORDS: dict[str, str | Promise] = {
    RUNNING: pgettext_lazy("end of a hold", "still held"),
    End.RELEASED.value: pgettext_lazy("end of a hold", "released"),
    End.LEASE_OVER.value: pgettext_lazy("end of a hold", "lease over"),
    End.LOST.value: pgettext_lazy("end of a hold", "lost"),
    End.FORCED.value: pgettext_lazy("end of a hold", "forced"),
    End.DISMISSED.value: pgettext_lazy("end of a hold", "dismissed"),
}
_PATTERNS = {
    End.LEASE_OVER.value: "lock-hatched",
    # Its lease was over before.
    End.DISMISSED.value: "lock-hatched",
    End.LOST.value: "lock-dotted",
    End.FORCED.value: "lock-crossed",
}
# No clock is set to a later time (the year 5138), and no hold lasts as long.
_LATEST = 1e11
# No fence is larger that is the time of a grant.
_FENCES = 2**53

# In percent of the width: the least for a hold, for its wait, and between two moments; the most for
# a time in which nothing is known to have happened; and what the words of a moment take on a phone.
_HOLD, _WAIT, _APART, _PAUSE, _LABEL = 6.0, 1.5, 0.6, 6.0, 21.0
# In pixels: the height of a lane, and of what is below the lanes.
_LANE, _BELOW = 36, 40


def word_of(how: str) -> str:
    """Return what the pages call it that a hold ended so."""
    return str(_WORDS[how])


@dataclass(frozen=True, kw_only=True, slots=True)
class Hold:
    """A hold, past or present, in words and in times.

    ``how``: how it ended. The times are Unix times, and None when not known. ``ended_at`` of one
    that runs is the time of the look. ``number``: the first is 1.
    """

    how: str
    holder: Holder | None
    granted_at: float | None
    ended_at: float
    seconds: float | None
    waited_for: float | None = None
    key: str = ""
    name: str = ""
    by: str = ""
    why: str = ""
    number: int = 0

    @classmethod
    def of_entry(cls, entry: HistoryEntry) -> Hold:
        """Return the hold that ``entry`` tells of. A time that cannot be counts as not known."""
        noted_at = _sound(entry.at) or 0.0
        granted_at, seconds = _sound(entry.granted_at), _sound(entry.held_for)
        # An end may be noted late: that of a lease by whoever takes the lock next.
        ended_at = noted_at
        if granted_at is not None:
            granted_at = min(granted_at, noted_at)
            if seconds is not None:
                ended_at = min(granted_at + seconds, noted_at)
        return cls(
            how=entry.end.value,
            holder=entry.holder,
            granted_at=granted_at,
            ended_at=ended_at,
            seconds=seconds,
            waited_for=_sound(entry.waited),
            key=entry.key,
            name=entry.name,
            by=entry.by,
            why=entry.reason,
        )

    @classmethod
    def of_present(cls, info: LockInfo) -> Hold:
        """Return the hold of who holds the lock alone, or whose lease was over last."""
        is_over = info.state is State.OVER
        ended_at = info.as_of - (info.over_for or 0.0 if is_over else 0.0)
        # A fence is the moment of the grant.
        fence = info.fence or 0
        granted_at = min(fence / 1e6, ended_at) if 0 < fence < _FENCES else None
        return cls(
            how=End.LEASE_OVER.value if is_over else RUNNING,
            holder=info.holder,
            granted_at=granted_at,
            ended_at=ended_at,
            seconds=None if granted_at is None else ended_at - granted_at,
        )

    @property
    def slug(self) -> str:
        """How it ended, as styles and addresses have it."""
        return self.how.replace(" ", "-")

    @property
    def word(self) -> str:
        return word_of(self.how)

    @property
    def end(self) -> str:
        """How it ended, by whom and why."""
        said = {"word": self.word, "by": self.by, "why": self.why}
        if self.by and self.why:
            return _("%(word)s by %(by)s: %(why)s") % said
        if self.by or self.why:
            return (_("%(word)s by %(by)s") if self.by else _("%(word)s: %(why)s")) % said
        return self.word

    @property
    def place(self) -> str:
        return _("another program") if self.holder is None else place_of(self.holder)

    @property
    def about(self) -> str:
        return "" if self.holder is None else about_of(self.holder)

    @property
    def since(self) -> str:
        return moment(self.granted_at)

    @property
    def until(self) -> str:
        return moment(self.ended_at)

    @property
    def waited(self) -> str:
        # Who did not wait, as who did for nobody knows how long.
        return duration(self.waited_for or None)

    @property
    def held_for(self) -> str:
        return duration(self.seconds)

    @property
    def start(self) -> float:
        """Where its bar begins, known or not."""
        return self.ended_at if self.granted_at is None else self.granted_at

    @property
    def asked_at(self) -> float:
        """When its holder began to wait, or did not need to."""
        if self.granted_at is None:
            return self.start
        return max(self.start - (self.waited_for or 0.0), 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A hold in the picture: places from the left and lengths in percent, ``y`` in pixels."""

    hold: Hold
    x: str
    width: str
    end: str
    wait: str
    wait_width: str
    y: int

    @property
    def pattern(self) -> str:
        """What fills it, so that its end is known without colour; nothing: its colour does."""
        return _PATTERNS.get(self.hold.how, "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Label:
    """A moment below the picture. ``day`` is empty if it is that of the label before."""

    x: str
    anchor: str
    time: str
    day: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """A time that is drawn shorter than it was."""

    x: str
    width: str
    length: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """The picture of ``holds``, the latest of which comes first. ``height`` is in pixels.

    ``more``: how many present holders are not among them.
    """

    holds: Sequence[Hold]
    bars: Sequence[Bar]
    labels: Sequence[Label]
    pauses: Sequence[Pause]
    height: int
    more: int
    zone: str

    @property
    def floor(self) -> int:
        """Where the lanes end, in pixels."""
        return self.height - _BELOW

    @property
    def time_line(self) -> int:
        """Where the times are written, in pixels."""
        return self.floor + 14

    @property
    def day_line(self) -> int:
        return self.floor + 28

    @classmethod
    def of(cls, entries: Sequence[HistoryEntry], info: LockInfo) -> Timeline:
        """Draw the holds of ``entries``, the latest of which comes first, and the present ones."""
        present = _present(entries, info)
        running = [one for one in present if one.how == RUNNING]
        kept = running[:PRESENT] + [one for one in present if one.how != RUNNING]
        chosen = [*kept, *map(Hold.of_entry, entries)][:SHOWN]
        chosen.sort(key=lambda hold: (hold.ended_at, hold.start))
        holds = [replace(hold, number=number) for number, hold in enumerate(chosen, 1)]
        moments = _placed(holds, info.as_of)
        bars, lanes = _bars(holds, moments)
        return cls(
            holds=holds[::-1],
            bars=bars,
            labels=_labels(moments, info.waiting),
            pauses=_pauses(moments),
            height=lanes * _LANE + _BELOW,
            more=len(running) - len(kept),
            zone=timezone.get_current_timezone_name(),
        )


@dataclass(slots=True)
class _Moment:
    """Something that happened ``at`` a time, to a hold, if to any: what, and its place."""

    at: float
    what: str
    hold: Hold | None = None
    x: float = 0.0
    # The time since the moment before is drawn shorter than it was.
    is_cut: bool = False


# In this order at the same time: one hold ends and the next begins.
_WHAT = ("end", "wait", "start", "own end", "now")


def _present(entries: Sequence[HistoryEntry], info: LockInfo) -> list[Hold]:
    """Return the holds that are not over, or whose end nobody noted yet, the latest first."""
    if info.state is State.OVER:
        is_noted = any(one.fence == info.fence for one in entries)
        return [Hold.of_present(info)] if info.fence and not is_noted else []
    if not info.is_held or info.state in (State.CHANGING_HANDS, State.KEPT):
        return []
    ones = [info.of_one(one) for one in info.shares] or [info]
    return sorted(map(Hold.of_present, ones), key=lambda hold: hold.start, reverse=True)


def _placed(holds: Sequence[Hold], now: float) -> list[_Moment]:
    """Return what happened, in order, each with its place.

    Times are to one scale, but no hold is too narrow to be seen, and pauses are cut short.
    """
    moments = [_Moment(max(now, *(one.ended_at for one in holds)), "now")]
    for hold in holds:
        end = "end" if hold.ended_at > hold.start else "own end"
        moments.append(_Moment(hold.start, "start", hold))
        moments.append(_Moment(hold.ended_at, end, hold))
        if hold.asked_at < hold.start:
            moments.append(_Moment(hold.asked_at, "wait", hold))
    moments.sort(key=lambda one: (one.at, _WHAT.index(one.what)))
    shortest = min((b.at - a.at for a, b in pairwise(moments) if b.at > a.at), default=1.0)
    low, high = 0.0, 100 / shortest
    for _step in range(80):
        scale = (low + high) / 2
        low, high = (low, scale) if _spread(moments, scale) > 100 else (scale, high)
    # All of the width, whatever is too wide or too narrow for it.
    width = _spread(moments, low)
    for one in moments:
        one.x *= 100 / width
    return moments


def _spread(moments: Sequence[_Moment], scale: float) -> float:
    """Place ``moments`` with so many percent for a second. Return the place of the last."""
    x, at, under_way = 0.0, moments[0].at, 0
    began: dict[int, float] = {}
    for one in moments:
        wanted = (one.at - at) * scale
        one.is_cut = not under_way and wanted > _PAUSE
        if one.at > at:
            x += _PAUSE if one.is_cut else max(wanted, _APART)
        if one.hold is not None:
            number = one.hold.number
            if number in began:
                x = max(x, began[number] + (_WAIT if one.what == "start" else _HOLD))
            else:
                under_way += 1
            if one.what.endswith("end"):
                under_way -= 1
            began[number] = x
        one.x, at = x, one.at
    return x


def _bars(holds: Sequence[Hold], moments: Sequence[_Moment]) -> tuple[list[Bar], int]:
    """Return the bars, and how many lanes they take: who waits or holds at the same time has one.

    A hold and its wait are in the same lane.
    """
    places: dict[int, list[float]] = {}
    for one in moments:
        if one.hold is not None:
            places.setdefault(one.hold.number, []).append(one.x)
    bars: list[Bar] = []
    lanes: list[float] = []
    for number, (first, *rest) in places.items():
        start, end = rest if len(rest) == 2 else (first, *rest)
        lane = next((k for k, taken in enumerate(lanes) if taken <= first), len(lanes))
        lanes[lane : lane + 1] = [end]
        bars.append(
            Bar(
                hold=holds[number - 1],
                x=_percent(start),
                width=_percent(end - start),
                end=_percent(end),
                wait=_percent(first),
                wait_width=_percent(start - first) if start > first else "",
                y=lane * _LANE,
            )
        )
    return bars, len(lanes)


def _labels(moments: Sequence[_Moment], waiting: int) -> list[Label]:
    """Return the moments that there is room to name: the first, now, and what is between."""
    now = _("now, waiting: %(count)d") % {"count": waiting} if waiting else _("now")
    labels: list[Label] = []
    last, shown = -_LABEL, ""
    for one in moments:
        is_last = one is moments[-1]
        # The first and the last are written inwards.
        from_last = 100 - one.x - _LABEL / 2
        if not is_last and (one.x - last < _LABEL or (labels and from_last < _LABEL)):
            continue
        said = datetime.fromtimestamp(one.at, timezone.get_current_timezone())
        day = f"{said:%Y-%m-%d}"
        labels.append(
            Label(
                x=_percent(one.x),
                anchor="end" if is_last else "middle" if labels else "start",
                time=f"{said:%H:%M:%S}",
                day=now if is_last else day if day != shown else "",
            )
        )
        last, shown = one.x + (0 if len(labels) > 1 else _LABEL / 2), day
    return labels


def _pauses(moments: Sequence[_Moment]) -> list[Pause]:
    return [
        Pause(
            x=_percent(before.x),
            width=_percent(one.x - before.x),
            length=duration(one.at - before.at),
        )
        for before, one in pairwise(moments)
        if one.is_cut
    ]


def _percent(part: float) -> str:
    # In every language with a point.
    return f"{part:.2f}%"


def _sound(seconds: float | None) -> float | None:
    """Return a time if it can be one, else None: others may have written it."""
    return seconds if seconds is not None and 0 <= seconds <= _LATEST else None
