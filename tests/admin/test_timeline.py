"""The picture of the last holds: where each bar is, whatever the times are."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import pytest
from django.utils import timezone, translation

from django_setnx_lock.admin.timeline import PRESENT, SHOWN, Bar, Timeline
from django_setnx_lock.core import End, HistoryEntry, Holder, LockInfo, ShareInfo, State

NOW = 1_800_000_000.0
FREE = LockInfo(key="k", name="lock:k", state=State.FREE, as_of=NOW)
HELD = replace(FREE, state=State.HELD, fingerprint="f", fence=int((NOW - 30) * 1e6))
DAY = 86_400.0


def ended(
    start: float, length: float, waited: float | None = None, end: End = End.RELEASED
) -> HistoryEntry:
    """A hold that began so many seconds ago."""
    granted_at = NOW - start
    return HistoryEntry(
        id="1-0",
        key="k",
        name="lock:k",
        end=end,
        at=granted_at + length,
        granted_at=granted_at,
        held_for=length,
        waited=waited,
        holder=Holder(host="web1", pid=7),
        fence=int(granted_at * 1e6),
    )


def drawn(*entries: HistoryEntry, info: LockInfo = FREE) -> Timeline:
    """The picture of those, the oldest of which is given first."""
    return Timeline.of(entries[::-1], info)


def span(bar: Bar) -> tuple[float, float]:
    """From where to where there is something of that hold, in percent of the width."""
    start = float((bar.wait if bar.wait_width else bar.x).removesuffix("%"))
    return start, float(bar.end.removesuffix("%"))


def width(bar: Bar) -> float:
    return float(bar.width.removesuffix("%"))


def test_the_oldest_is_on_the_left_and_the_latest_first_in_the_table() -> None:
    picture = drawn(ended(300, 10), ended(200, 10), ended(100, 10))

    assert [bar.hold.number for bar in sorted(picture.bars, key=span)] == [1, 2, 3]
    assert [hold.number for hold in picture.holds] == [3, 2, 1]


def test_holds_one_after_another_are_in_one_lane() -> None:
    picture = drawn(ended(300, 10), ended(290, 10), ended(100, 10))

    assert {bar.y for bar in picture.bars} == {0}


def test_a_wait_is_drawn_before_its_hold_and_beside_that_of_another() -> None:
    picture = drawn(ended(300, 100), ended(200, 100, waited=90))

    first, second = sorted(picture.bars, key=lambda bar: bar.hold.number)
    assert not first.wait_width
    assert second.wait_width
    assert span(second)[0] < span(first)[1]
    assert second.y > first.y


def test_of_two_holds_the_longer_is_drawn_longer_and_to_scale() -> None:
    picture = drawn(ended(300, 100), ended(200, 200))

    assert sorted(map(width, picture.bars)) == pytest.approx([100 / 3, 200 / 3], abs=0.1)


def test_a_hold_of_no_time_beside_one_of_a_day_can_be_seen() -> None:
    picture = drawn(ended(2 * DAY, DAY), ended(DAY, 0.0), ended(DAY, 0.001))

    assert min(map(width, picture.bars)) > 4


def test_a_long_pause_is_cut_short_and_said_to_be() -> None:
    picture = drawn(ended(9 * DAY, 10), ended(60, 10))

    assert [pause.length for pause in picture.pauses] == ["8 d 23 h", "50 s"]
    assert min(map(width, picture.bars)) > 20


def test_the_present_holder_is_the_last_and_runs() -> None:
    picture = drawn(ended(300, 100), info=HELD)

    last = picture.holds[0]
    assert (last.slug, last.held_for) == ("running", "30 s")
    assert picture.labels[-1].day == "now"


def test_who_waits_now_is_counted() -> None:
    picture = drawn(ended(300, 100), info=replace(HELD, waiting=3))

    assert picture.labels[-1].day == "now, waiting: 3"


def test_those_who_hold_it_together_are_in_lanes_of_their_own_and_some_only_counted() -> None:
    shares = tuple(
        ShareInfo(
            holder=Holder(pid=number),
            fence=int((NOW - number) * 1e6),
            remaining=9.0,
            held_for=float(number),
            fingerprint=str(number),
        )
        for number in range(1, 9)
    )
    info = replace(HELD, state=State.READ, shares=shares)

    picture = drawn(*(ended(900 - 10 * number, 5) for number in range(20)), info=info)

    running = [bar for bar in picture.bars if bar.hold.slug == "running"]
    assert [len(running), len(picture.bars), picture.more] == [PRESENT, SHOWN, 8 - PRESENT]
    assert len({bar.y for bar in running}) == PRESENT
    # The latest: the longest are on the page anyway.
    assert {bar.hold.held_for for bar in running} == {f"{number} s" for number in range(1, 6)}


def test_a_lease_that_is_over_is_drawn_before_anybody_noted_it_and_once_after() -> None:
    over = replace(HELD, state=State.OVER, over_for=10.0)
    noted = replace(ended(30, 20, end=End.LEASE_OVER), fence=over.fence)

    before, after = drawn(ended(300, 100), info=over), drawn(ended(300, 100), noted, info=over)

    assert [hold.slug for hold in before.holds] == ["lease-over", "released"]
    assert [hold.slug for hold in after.holds] == ["lease-over", "released"]
    assert before.holds[0].held_for == after.holds[0].held_for == "20 s"


@pytest.mark.parametrize("state", [State.FREE, State.KEPT, State.CHANGING_HANDS, State.NO_LOCK])
def test_where_nobody_holds_it_no_hold_runs(state: State) -> None:
    fingerprint = "" if state in (State.FREE, State.NO_LOCK) else "f"
    picture = drawn(ended(300, 100), info=replace(FREE, state=state, fingerprint=fingerprint))

    assert [hold.slug for hold in picture.holds] == ["released"]


def test_an_end_that_is_noted_late_is_drawn_when_it_was() -> None:
    late = replace(ended(300, 100, end=End.LEASE_OVER), at=NOW)

    (hold,) = drawn(late).holds

    assert hold.ended_at == NOW - 200


def test_each_end_has_a_word_and_what_tells_it_from_a_release_without_colour() -> None:
    picture = drawn(*(ended(900 - 100 * k, 50, end=end) for k, end in enumerate(End)))

    by_end = {bar.hold.how: bar for bar in picture.bars}
    assert not by_end["released"].pattern
    assert all(by_end[end.value].pattern for end in End if end is not End.RELEASED)
    assert {bar.hold.word for bar in picture.bars} == {
        "released",
        "lease over",
        "lost",
        "forced",
        "dismissed",
    }


@pytest.mark.parametrize("seed", range(20))
def test_nothing_overlaps_or_is_out_of_the_picture(seed: int) -> None:
    # Any numbers do; these are the same ones each time.
    numbers = [math.modf(math.sin(seed * 100 + k) * 1e4)[0] ** 2 for k in range(60)]
    entries = [
        ended(10 ** (8 * a), 10 ** (8 * b - 3), waited=10 ** (8 * c - 3) if c > 0.3 else None)
        for a, b, c in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)
    ]

    picture = Timeline.of(entries, HELD)

    spans = [(bar.y, *span(bar)) for bar in picture.bars]
    assert all(0 <= start < end <= 100 for _, start, end in spans)
    assert all(0 <= bar.y < picture.floor for bar in picture.bars)
    for (y, start, end), (other_y, other_start, other_end) in combinations(spans, 2):
        # To a hundredth they are rounded.
        assert y != other_y or end <= other_start + 0.02 or other_end <= start + 0.02
    places = [float(label.x.removesuffix("%")) for label in picture.labels]
    assert places[0] == 0
    assert places[-1] == 100
    assert all(b - a >= 20 for a, b in pairwise(places))


@pytest.mark.parametrize("wild", [math.nan, math.inf, -math.inf, -1.0, 0.0, 1e300])
@pytest.mark.parametrize("field", ["at", "granted_at", "held_for", "waited"])
def test_no_time_breaks_the_picture(field: str, wild: float) -> None:
    times: dict[str, Any] = {field: wild}
    broken = replace(ended(300, 100, waited=10), **times)

    picture = drawn(ended(900, 100), broken, info=HELD)

    assert len(picture.bars) == 3
    for bar in picture.bars:
        start, end = span(bar)
        assert 0 <= start < end <= 100
        assert bar.hold.since
        assert bar.hold.until


def test_what_is_not_known_of_a_hold_is_not_made_up() -> None:
    unknown = replace(ended(300, 100), granted_at=None, held_for=None, holder=None)

    (hold,) = drawn(unknown).holds

    assert [hold.since, hold.held_for, hold.waited] == ["-", "-", "-"]
    assert hold.place == "another program"


def test_times_are_in_the_time_zone_of_the_reader() -> None:
    with timezone.override("Asia/Tokyo"):
        picture = drawn(ended(300, 100))

    assert picture.zone == "Asia/Tokyo"
    assert picture.labels[0].time == "16:55:00"
    assert picture.labels[0].day == "2027-01-15"


def test_a_day_is_named_once() -> None:
    picture = drawn(ended(300, 100), ended(200, 100), ended(100, 100))

    assert [label.day for label in picture.labels[:-1]] == ["2027-01-15", "", ""]


def test_places_are_written_with_a_point_in_every_language() -> None:
    with translation.override("de"):
        picture = drawn(ended(300, 70), ended(200, 70))

    assert "," not in "".join(bar.x + bar.width + bar.end for bar in picture.bars)
