from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, transaction
from django.test.utils import CaptureQueriesContext

from django_setnx_lock import StaleFence
from tests.contrib.fencing.models import Box, LookedAt, Seat, Stall, Venue

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_setnx_lock.contrib.fencing import FencedQuerySet

pytestmark = pytest.mark.xdist_group("databases")

STALE, NEWER = 5, 7


@pytest.fixture
def seats(database: str) -> FencedQuerySet[Seat]:
    """Two seats of fence 0, between them one of 7."""
    for row, fence in (("A1", 0), ("A2", NEWER), ("A3", 0)):
        Seat.objects.using(database).create(row=row, fence=fence, price=1)
    rows: FencedQuerySet[Seat] = Seat.objects.using(database)
    return rows


def fences(seats: FencedQuerySet[Seat]) -> list[int]:
    return list(Seat.objects.using(seats.db).order_by("row").values_list("fence", flat=True))


UNTOUCHED = [0, NEWER, 0]


def test_a_claim_gives_the_row_and_stores_the_fence(seats: FencedQuerySet[Seat]) -> None:
    seat = seats.claim(STALE, row="A1")

    assert (seat.row, seat.fence, seat._state.db) == ("A1", STALE, seats.db)
    assert fences(seats) == [STALE, NEWER, 0]


def test_after_a_claim_an_earlier_holder_cannot_write(seats: FencedQuerySet[Seat]) -> None:
    seat = seats.get(row="A1")
    seats.claim(NEWER, pk=seat.pk)

    with pytest.raises(StaleFence) as caught:
        seat.save(fence=STALE)

    assert (caught.value.fence, caught.value.stored) == (STALE, NEWER)


def test_a_claim_after_that_of_a_later_holder_is_refused(seats: FencedQuerySet[Seat]) -> None:
    pk = seats.get(row="A2").pk

    with pytest.raises(StaleFence) as caught:
        seats.claim(STALE, pk=pk)

    assert (caught.value.fence, caught.value.stored) == (STALE, NEWER)
    assert str(caught.value) == (
        f"nothing of fencing.Seat {pk} was written with fence {STALE}: "
        f"a later holder has claimed or written it, with fence {NEWER}"
    )
    assert fences(seats) == UNTOUCHED


@pytest.mark.parametrize("again", [NEWER, NEWER + 1])
def test_a_row_can_be_claimed_again(seats: FencedQuerySet[Seat], again: int) -> None:
    assert seats.claim(again, row="A2").fence == again


@pytest.mark.parametrize(
    ("name", "statements"), [("pk", ["UPDATE", "SELECT"]), ("row", ["SELECT", "UPDATE", "SELECT"])]
)
def test_the_row_is_read_after_its_fence_was_stored(
    seats: FencedQuerySet[Seat], name: str, statements: list[str]
) -> None:
    value = getattr(seats.get(row="A1"), name)

    with CaptureQueriesContext(connections[seats.db]) as captured:
        seats.claim(STALE, **{name: value})

    seen = [one["sql"].split()[0] for one in captured if "fencing_seat" in one["sql"]]
    assert seen == statements


def test_a_row_that_the_filter_leaves_out_is_not_claimed(seats: FencedQuerySet[Seat]) -> None:
    pk = seats.get(row="A3").pk

    with transaction.atomic(seats.db):
        with pytest.raises(Seat.DoesNotExist):
            seats.filter(row="A1").claim(STALE, pk=pk)
        assert fences(seats) == UNTOUCHED


def test_a_claim_takes_what_get_takes(seats: FencedQuerySet[Seat]) -> None:
    venue = Venue.objects.using(seats.db).create(name="north")
    seats.filter(row="A3").update(venue=venue)

    seat = seats.select_related("venue").order_by("price").claim(STALE, venue__name="north")

    with CaptureQueriesContext(connections[seats.db]) as captured:
        assert (seat.row, seat.venue) == ("A3", venue)
    assert len(captured) == 0


@pytest.mark.parametrize("change", ["update", "delete"])
def test_a_row_that_does_not_match_any_more_when_it_is_claimed_is_not_given(
    seats: FencedQuerySet[Seat], change: str
) -> None:
    changes = [seats.filter(row="A1")]

    def meanwhile(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if sql.startswith("UPDATE") and changes:
            rows = changes.pop()
            _ = rows.delete() if change == "delete" else rows.update(taken_by="another")
        return execute(sql, *rest)

    with transaction.atomic(seats.db), connections[seats.db].execute_wrapper(meanwhile):
        with pytest.raises(Seat.DoesNotExist):
            seats.claim(STALE, row="A1", taken_by="")
        assert changes == []


@pytest.mark.parametrize(
    "claim",
    [lambda rows: rows.claim(STALE, row="A2"), lambda rows: rows.claim_all(STALE)],
    ids=["claim", "claim_all"],
)
def test_after_a_refused_claim_the_atomic_block_around_it_goes_on(
    seats: FencedQuerySet[Seat], claim: Callable[[Any], object]
) -> None:
    with transaction.atomic(seats.db):
        Venue.objects.using(seats.db).create(name="before")
        with pytest.raises(StaleFence):
            claim(seats)
        assert fences(seats) == UNTOUCHED

    assert Venue.objects.using(seats.db).exists()


def test_the_fence_may_be_in_a_table_inherited_from(database: str) -> None:
    box = Box(row="C1", guests=1)
    box.save(using=database)

    claimed = Box.objects.using(database).claim(NEWER, guests=1)

    assert (claimed.guests, claimed.fence) == (1, NEWER)
    with pytest.raises(StaleFence):
        box.save(fence=STALE)


def test_the_fence_may_be_beside_a_table_inherited_from(database: str) -> None:
    Stall(name="north", sells="tea").save(using=database)

    claimed = Stall.objects.using(database).claim(NEWER, name="north")

    assert (claimed.sells, claimed.fence) == ("tea", NEWER)


def test_the_fence_may_have_any_name(database: str) -> None:
    LookedAt(name="a").save(using=database)

    assert LookedAt.objects.using(database).claim(NEWER, name="a").last == NEWER


def test_the_rows_of_a_relation_can_be_claimed(seats: FencedQuerySet[Seat]) -> None:
    venue = Venue.objects.using(seats.db).create(name="north")
    seats.filter(row="A1").update(venue=venue)

    assert venue.seats.claim(STALE, row="A1").fence == STALE
    assert [seat.fence for seat in venue.seats.claim_all(NEWER)] == [NEWER]


def test_all_rows_of_a_queryset_are_claimed_and_given(seats: FencedQuerySet[Seat]) -> None:
    claimed = seats.exclude(row="A2").order_by("-row").claim_all(STALE)

    assert [(seat.row, seat.fence) for seat in claimed] == [("A3", STALE), ("A1", STALE)]
    assert fences(seats) == [STALE, NEWER, STALE]


def test_if_one_of_the_rows_has_a_larger_fence_none_is_claimed(seats: FencedQuerySet[Seat]) -> None:
    with pytest.raises(StaleFence):
        seats.claim_all(STALE)

    assert fences(seats) == UNTOUCHED


@pytest.mark.parametrize(
    "claim",
    [lambda rows: rows.claim(STALE, row="A1"), lambda rows: rows.claim_all(STALE)],
    ids=["claim", "claim_all"],
)
def test_values_are_not_claimed(
    seats: FencedQuerySet[Seat], claim: Callable[[Any], object]
) -> None:
    with pytest.raises(TypeError, match="values"):
        claim(seats.values("row"))

    assert fences(seats) == UNTOUCHED


@pytest.mark.django_db(transaction=True)
def test_the_twins_for_asyncio_claim() -> None:
    async def claim() -> None:
        await Seat.objects.acreate(row="A1")
        assert (await Seat.objects.aclaim(STALE, row="A1")).fence == STALE
        assert [one.fence for one in await Seat.objects.all().aclaim_all(NEWER)] == [NEWER]
        with pytest.raises(StaleFence):
            await Seat.objects.aclaim(STALE, row="A1")
        with pytest.raises(StaleFence):
            await Seat.objects.aclaim_all(STALE)

    asyncio.run(claim())
