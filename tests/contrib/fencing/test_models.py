from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, transaction
from django.db.models import F
from django.db.models.signals import pre_save
from django.test.utils import CaptureQueriesContext

from django_setnx_lock import LockLost, StaleFence
from tests.contrib.fencing.models import Box, LookedAt, OldSeat, Seat, Stall, Venue
from tests.contrib.fencing.writes import NEWER, STALE, WRITES

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.xdist_group("databases")


@pytest.fixture
def seat(database: str) -> Seat:
    """A seat as a holder with fence 5 has loaded it, before one with fence 7 takes it."""
    Seat.objects.using(database).create(row="A1", fence=STALE)
    seat: Seat = Seat.objects.using(database).get()
    Seat.objects.using(database).update(taken_by="the newer", fence=NEWER)
    seat.taken_by, seat.price = "the stale", 10
    return seat


def rows_of(seat: Seat) -> Any:
    return Seat.objects.using(seat._state.db)


def stored(seat: Seat) -> list[tuple[str, int, int]]:
    return list(rows_of(seat).values_list("taken_by", "price", "fence"))


UNTOUCHED = [("the newer", 0, NEWER)]


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_stale_write_is_refused(seat: Seat, write: Callable[[Any, Seat, int], Any]) -> None:
    with pytest.raises(StaleFence) as caught:
        write(rows_of(seat), seat, STALE)

    assert (caught.value.fence, caught.value.stored) == (STALE, NEWER)
    assert isinstance(caught.value, LockLost)
    assert stored(seat) == UNTOUCHED
    assert seat.fence == STALE


@pytest.mark.parametrize("fence", [NEWER, NEWER + 1])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_with_the_same_or_a_later_fence_is_made(seat: Seat, name: str, fence: int) -> None:
    rows = rows_of(seat)

    WRITES[name](rows, seat, fence)

    assert list(rows.values_list("fence", flat=True)) == ([] if "delete" in name else [fence])


def test_a_save_without_a_fence_goes_through_and_leaves_the_stored_one(seat: Seat) -> None:
    seat.save()

    assert stored(seat) == [("the stale", 10, NEWER)]


def test_a_save_of_single_fields_stores_the_fence_and_no_other_field(seat: Seat) -> None:
    seat.save(update_fields=["price"], fence=NEWER + 1)

    assert stored(seat) == [("the newer", 10, NEWER + 1)]


def test_a_save_is_one_statement_on_the_row(seat: Seat) -> None:
    with CaptureQueriesContext(connections[seat._state.db or ""]) as captured:
        seat.save(fence=NEWER)

    frame = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")
    (sql,) = [one["sql"] for one in captured if not one["sql"].startswith(frame)]
    assert sql.startswith("UPDATE")
    assert "<= 7" in sql.replace("'", "")


LOADED: dict[str, Callable[[Any], Seat]] = {
    "without its fence": lambda rows: rows.only("price").get(),
    "with its fence deferred": lambda rows: rows.defer("fence").get(),
    "as a proxy": lambda rows: OldSeat.objects.using(rows.db).get(),
    "by its key alone": lambda rows: Seat(pk=rows.get().pk, row="A1"),
}


@pytest.mark.parametrize("options", [{}, {"force_update": True}], ids=str)
@pytest.mark.parametrize("load", LOADED.values(), ids=LOADED)
def test_a_stale_save_is_refused_however_the_row_was_loaded(
    seat: Seat, load: Callable[[Any], Seat], options: dict[str, Any]
) -> None:
    loaded = load(rows_of(seat))
    known = loaded.__dict__.get("fence")
    loaded.price = 10

    with pytest.raises(StaleFence):
        loaded.save(fence=STALE, using=seat._state.db, **options)

    assert stored(seat) == UNTOUCHED
    assert loaded.__dict__.get("fence") == known


def test_the_fence_cannot_be_saved_as_a_field(seat: Seat) -> None:
    with pytest.raises(ValueError, match="update_fields"):
        seat.save(update_fields=["fence"])


def test_values_that_the_database_computes_are_written_with_a_fence(seat: Seat) -> None:
    seat.price = F("price") + 1

    seat.save(fence=NEWER)

    assert stored(seat) == [("the stale", 1, NEWER)]


@pytest.mark.parametrize("pk", [None, 4711])
def test_a_new_row_has_the_fence_it_was_made_with(database: str, pk: int | None) -> None:
    seat = Seat(pk=pk, row="B1")

    seat.save(fence=STALE, using=database)

    assert stored(seat) == [("", 0, STALE)]
    assert seat.fence == STALE


def test_a_row_that_was_deleted_meanwhile_is_not_made_again(seat: Seat) -> None:
    rows_of(seat).get().delete(fence=NEWER)

    with pytest.raises(StaleFence, match="in the database no longer") as caught:
        seat.save(fence=STALE)

    assert caught.value.stored is None
    assert stored(seat) == []


def test_a_row_can_be_copied_to_another_database(seat: Seat, database: str) -> None:
    rows_of(seat).all().delete()
    seat._state.db = "default"  # as if it had been loaded there

    seat.save(fence=STALE, using=database)

    assert stored(seat) == [("the stale", 10, STALE)]


def test_what_a_refused_save_did_before_is_undone_with_it(seat: Seat, database: str) -> None:
    def note(sender: object, using: str, **kwargs: object) -> None:
        Venue.objects.using(using).create(name="noted")

    pre_save.connect(note, sender=Seat)
    try:
        with pytest.raises(StaleFence):
            seat.save(fence=STALE)
    finally:
        pre_save.disconnect(note, sender=Seat)

    assert not Venue.objects.using(database).exists()


@pytest.mark.parametrize("name", ["save", "update rows"])
def test_a_refused_write_rolls_the_atomic_block_around_it_back(
    seat: Seat, database: str, name: str
) -> None:
    with transaction.atomic(database):
        Venue.objects.using(database).create(name="before")
        with pytest.raises(StaleFence):
            WRITES[name](rows_of(seat), seat, STALE)
        with pytest.raises(transaction.TransactionManagementError):
            Venue.objects.using(database).exists()

    assert not Venue.objects.using(database).exists()


def test_an_atomic_block_around_a_refused_save_alone_lets_the_rest_go_on(
    seat: Seat, database: str
) -> None:
    with transaction.atomic(database):
        Venue.objects.using(database).create(name="before")
        with pytest.raises(StaleFence), transaction.atomic(database):
            seat.save(fence=STALE)

    assert Venue.objects.using(database).exists()
    assert stored(seat) == UNTOUCHED


@pytest.mark.parametrize("options", [{}, {"update_fields": ["guests"]}], ids=str)
def test_the_fence_may_be_in_a_table_inherited_from(database: str, options: dict[str, Any]) -> None:
    box = Box(row="C1")
    box.save(using=database, fence=NEWER)
    box.guests, box.taken_by = 3, "the stale"

    with pytest.raises(StaleFence):
        box.save(fence=STALE, **options)
    box.refresh_from_db()
    refused = (box.guests, box.taken_by, box.fence)
    box.guests = 3
    box.save(fence=NEWER + 1, **options)
    box.refresh_from_db()

    assert (refused, box.guests, box.fence) == ((0, "", NEWER), 3, NEWER + 1)


def test_a_delete_over_several_tables_goes_by_the_fence(database: str) -> None:
    box = Box(row="C1")
    box.save(using=database, fence=NEWER)

    with pytest.raises(StaleFence):
        box.delete(fence=STALE)
    assert Box.objects.using(database).exists()
    box.delete(fence=NEWER)

    assert not Seat.objects.using(database).exists()


def test_tables_inherited_from_are_not_written_when_the_fence_is_in_the_own(database: str) -> None:
    stall = Stall(name="north", sells="tea")
    stall.save(using=database, fence=NEWER)
    stall.name = stall.sells = "stale"

    with pytest.raises(StaleFence):
        stall.save(fence=STALE)

    stall.refresh_from_db()
    assert (stall.name, stall.sells) == ("north", "tea")


def test_a_row_that_is_looked_for_first_is_refused_likewise(database: str) -> None:
    row = LookedAt(name="a")
    row.save(using=database, fence=NEWER)

    with pytest.raises(StaleFence):
        row.save(fence=STALE)

    row.refresh_from_db()
    assert row.last == NEWER
