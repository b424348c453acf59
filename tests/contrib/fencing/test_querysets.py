from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import async_to_sync
from django.db import NotSupportedError, connections, transaction
from django.db.models import Case, F, Value, When
from django.test.utils import CaptureQueriesContext

from django_setnx_lock import StaleFence
from tests.contrib.fencing.models import Box, LookedAt, Seat, Stall, Venue
from tests.contrib.fencing.writes import NEWER, STALE

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_setnx_lock.contrib.fencing import FencedQuerySet

pytestmark = pytest.mark.xdist_group("databases")


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


BULK: dict[str, Callable[[Any, int], object]] = {
    "update": lambda rows, fence: rows.update(fence=fence, taken_by="the stale"),
    "delete": lambda rows, fence: rows.delete(fence=fence),
    "claim_all": lambda rows, fence: rows.claim_all(fence),
}
each_way = pytest.mark.parametrize("write", BULK.values(), ids=BULK)


@each_way
def test_a_write_that_is_stale_for_one_row_writes_none(
    seats: FencedQuerySet[Seat], write: Callable[[Any, int], object]
) -> None:
    with pytest.raises(StaleFence):
        write(seats, STALE)

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


@each_way
def test_a_filter_that_follows_a_relation_is_refused(
    seats: FencedQuerySet[Seat], write: Callable[[Any, int], object]
) -> None:
    with pytest.raises(NotSupportedError, match="follows no relation: write it as"):
        write(seats.filter(venue__name="north"), STALE)

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
    seats.filter(row="A1").update(venue=venue)

    assert [seat.fence for seat in venue.seats.claim_all(NEWER)] == [NEWER]
    with pytest.raises(StaleFence):
        venue.seats.update(fence=STALE, taken_by="the stale")


@pytest.mark.parametrize("name", ["delete", "claim_all"])
def test_values_are_not_deleted_or_claimed(seats: FencedQuerySet[Seat], name: str) -> None:
    rows: Any = seats.values("row")
    with pytest.raises(TypeError, match="values"):
        BULK[name](rows, STALE)
    with pytest.raises(TypeError, match="values"):
        rows.claim(STALE, row="A1")

    assert stored(seats) == UNTOUCHED


def test_a_claim_gives_the_row_and_stores_the_fence(seats: FencedQuerySet[Seat]) -> None:
    seat = seats.claim(STALE, row="A1")

    assert (seat.row, seat.fence, seat._state.db) == ("A1", STALE, seats.db)
    assert [fence for _, fence in stored(seats)] == [STALE, NEWER, 0]


def test_after_a_claim_an_earlier_holder_cannot_write(seats: FencedQuerySet[Seat]) -> None:
    seat = seats.get(row="A1")
    seats.claim(NEWER, pk=seat.pk)

    with pytest.raises(StaleFence) as caught:
        seat.save(fence=STALE)

    assert (caught.value.fence, caught.value.stored) == (STALE, NEWER)


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
        assert stored(seats) == UNTOUCHED


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
        assert stored(seats) == UNTOUCHED

    assert Venue.objects.using(seats.db).exists()


def test_the_fence_may_be_in_any_table_and_have_any_name(database: str) -> None:
    Box(row="C1", guests=1).save(using=database)
    Stall(name="north", sells="tea").save(using=database)
    LookedAt(name="a").save(using=database)

    box = Box.objects.using(database).claim(NEWER, guests=1)
    stall = Stall.objects.using(database).claim(NEWER, name="north")
    row = LookedAt.objects.using(database).claim(NEWER, name="a")

    assert (box.guests, box.fence) == (1, NEWER)
    assert (stall.sells, stall.fence) == ("tea", NEWER)
    assert row.last == NEWER


def test_all_rows_of_a_queryset_are_claimed_and_given(seats: FencedQuerySet[Seat]) -> None:
    claimed = seats.exclude(row="A2").order_by("-row").claim_all(STALE)

    assert [(seat.row, seat.fence) for seat in claimed] == [("A3", STALE), ("A1", STALE)]
    assert [fence for _, fence in stored(seats)] == [STALE, NEWER, STALE]


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
