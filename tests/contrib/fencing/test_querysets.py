from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync
from django.db import NotSupportedError, connections, transaction
from django.db.models import Case, F, Value, When
from django.test.utils import CaptureQueriesContext

from django_setnx_lock import StaleFence
from tests.contrib.fencing.models import Box, Seat, Stall, Venue

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


def stored(seats: FencedQuerySet[Seat]) -> list[tuple[str, int]]:
    rows = Seat.objects.using(seats.db).order_by("row")
    return list(rows.values_list("taken_by", "fence"))


UNTOUCHED = [("", 0), ("", NEWER), ("", 0)]


def test_a_stale_update_of_one_row_is_refused(seats: FencedQuerySet[Seat]) -> None:
    with pytest.raises(StaleFence) as caught:
        seats.filter(row="A2").update(fence=STALE, taken_by="the stale")

    assert (caught.value.fence, caught.value.stored) == (STALE, NEWER)
    assert stored(seats) == UNTOUCHED


def test_an_update_that_is_stale_for_one_row_writes_none(seats: FencedQuerySet[Seat]) -> None:
    with pytest.raises(StaleFence):
        seats.update(fence=STALE, taken_by="the stale")

    assert stored(seats) == UNTOUCHED


def test_an_update_stores_the_fence_in_each_row_and_counts_them(
    seats: FencedQuerySet[Seat],
) -> None:
    count = seats.exclude(row="A2").update(fence=STALE, taken_by="mine")

    assert count == 2
    assert stored(seats) == [("mine", STALE), ("", NEWER), ("mine", STALE)]


def test_an_update_that_ends_its_own_filter_is_made(seats: FencedQuerySet[Seat]) -> None:
    assert seats.filter(row="A1", taken_by="").update(fence=STALE, taken_by="mine") == 1


def test_an_update_looks_and_writes_in_one_statement(seats: FencedQuerySet[Seat]) -> None:
    with CaptureQueriesContext(connections[seats.db]) as captured:
        seats.filter(row="A1").update(fence=STALE, taken_by="mine")

    updates = [one["sql"] for one in captured if one["sql"].startswith("UPDATE")]
    assert len(updates) == 1
    assert "<= 5" in updates[0]
    assert not any("IN (" in one for one in updates)


def test_a_refused_update_rolls_the_atomic_block_around_it_back(
    seats: FencedQuerySet[Seat],
) -> None:
    with transaction.atomic(seats.db):
        Venue.objects.using(seats.db).create(name="before")
        with pytest.raises(StaleFence):
            seats.update(fence=STALE, taken_by="the stale")

    assert not Venue.objects.using(seats.db).exists()


def test_values_may_be_computed_from_the_row_its_old_fence_too(
    seats: FencedQuerySet[Seat],
) -> None:
    seats.update(
        fence=NEWER + 1,
        price=F("fence") + 1,
        taken_by=Case(When(fence=NEWER, then=Value("late")), default="row"),
    )

    prices = Seat.objects.using(seats.db).order_by("row").values_list("price", flat=True)
    assert list(prices) == [1, NEWER + 1, 1]
    assert stored(seats)[1] == ("late", NEWER + 1)


WAYS_BACK: dict[str, Callable[[Any, Seat], object]] = {
    "update to a column": lambda rows, seat: rows.update(fence=F("price")),
    "update to nothing": lambda rows, seat: rows.update(fence=None, price=2),
    "update to False": lambda rows, seat: rows.update(fence=False),
    "bulk_update": lambda rows, seat: rows.bulk_update([seat], ["price", "fence"]),
    "bulk_create": lambda rows, seat: rows.bulk_create(
        [seat], update_conflicts=True, unique_fields=["id"], update_fields=["price", "fence"]
    ),
    "in asyncio": lambda rows, seat: async_to_sync(rows.abulk_update)([seat], ["fence"]),
}


@pytest.mark.parametrize("write", WAYS_BACK.values(), ids=WAYS_BACK)
def test_no_write_sets_a_stored_fence_to_another_value(
    seats: FencedQuerySet[Seat], write: Callable[[Any, Seat], object]
) -> None:
    seat = seats.get(row="A2")
    seat.fence = STALE

    with pytest.raises((TypeError, ValueError), match=r"fence must be|cannot update 'fence'"):
        write(seats, seat)

    assert stored(seats) == UNTOUCHED


def test_without_a_fence_the_stored_one_can_be_forgotten(seats: FencedQuerySet[Seat]) -> None:
    Seat.objects.using(seats.db).update(fence=0)

    assert {fence for _, fence in stored(seats)} == {0}


@pytest.mark.parametrize(
    "kept",
    [
        lambda rows: rows.all(),
        lambda rows: rows.filter(row="A2").order_by("price"),
        lambda rows: rows.exclude(row="A1").select_related("venue"),
        lambda rows: rows | rows.filter(row="A1"),
        lambda rows: rows.filter(pk__in=Seat.objects.using(rows.db).filter(row="A2")),
        lambda rows: rows.annotate(again=F("price")).filter(again=1),
    ],
    ids=["all", "ordered", "excluded", "combined", "found", "annotated"],
)
def test_what_is_made_of_fenced_rows_is_fenced(
    seats: FencedQuerySet[Seat], kept: Callable[[Any], Any]
) -> None:
    with pytest.raises(StaleFence):
        kept(seats).update(fence=STALE, taken_by="the stale")

    assert stored(seats) == UNTOUCHED


def test_a_stale_delete_is_refused_for_all_rows(seats: FencedQuerySet[Seat]) -> None:
    with pytest.raises(StaleFence):
        seats.delete(fence=STALE)

    assert stored(seats) == UNTOUCHED


def test_a_delete_deletes_the_rows_it_was_asked_for(seats: FencedQuerySet[Seat]) -> None:
    deleted, by_model = seats.exclude(row="A2").delete(fence=STALE)

    assert (deleted, by_model) == (2, {"fencing.Seat": 2})
    assert stored(seats) == [("", NEWER)]


def test_rows_are_made_with_a_fence_as_a_value(seats: FencedQuerySet[Seat]) -> None:
    assert seats.create(row="B1", fence=STALE).fence == STALE
    seats.bulk_create([Seat(row="B2", fence=STALE)])

    assert stored(seats)[3:] == [("", STALE), ("", STALE)]


@pytest.mark.parametrize("fence", [STALE, NEWER])
def test_in_the_transaction_of_a_claim_rows_may_be_written_in_any_way(
    seats: FencedQuerySet[Seat], fence: int
) -> None:
    try:
        with transaction.atomic(seats.db):
            rows = seats.claim_all(fence)
            for seat in rows:
                seat.taken_by = f"guest of {seat.row}"
            seats.bulk_update(rows, ["taken_by"])
    except StaleFence:
        pass

    guests = [(f"guest of {row}", NEWER) for row in ("A1", "A2", "A3")]
    assert stored(seats) == (UNTOUCHED if fence == STALE else guests)


@pytest.mark.parametrize("what", ["update", "delete", "claim_all"])
def test_a_filter_that_follows_a_relation_is_refused(
    seats: FencedQuerySet[Seat], what: str
) -> None:
    rows: Any = seats.filter(venue__name="north")

    with pytest.raises(NotSupportedError, match="follows no relation: write it as"):
        _ = rows.claim_all(STALE) if what == "claim_all" else getattr(rows, what)(fence=STALE)

    assert stored(seats) == UNTOUCHED


def test_rows_in_several_tables_are_refused(database: str) -> None:
    for rows, values in (
        (Box.objects.using(database), {"guests": 1}),
        (Stall.objects.using(database), {"name": "south"}),
    ):
        with pytest.raises(NotSupportedError, match="write one table"):
            rows.update(fence=STALE, **values)


def test_values_of_the_own_table_alone_are_updated(database: str) -> None:
    Stall(name="north").save(using=database, fence=STALE)

    assert Stall.objects.using(database).update(fence=NEWER, sells="tea") == 1


def test_the_rows_of_a_relation_can_be_fenced(seats: FencedQuerySet[Seat]) -> None:
    venue = Venue.objects.using(seats.db).create(name="north")
    Seat.objects.using(seats.db).update(venue=venue)

    with pytest.raises(StaleFence):
        venue.seats.update(fence=STALE, taken_by="the stale")

    assert stored(seats) == UNTOUCHED


def test_values_are_not_deleted(seats: FencedQuerySet[Seat]) -> None:
    rows: Any = seats.values("row")
    with pytest.raises(TypeError, match="values"):
        rows.delete(fence=STALE)
