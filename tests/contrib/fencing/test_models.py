from __future__ import annotations

from typing import Any

import pytest
from django.db import connections, transaction
from django.db.models import F
from django.db.models.signals import pre_save

from django_setnx_lock import LockLost, StaleFence
from tests.contrib.fencing.models import Box, LookedAt, OldSeat, Seat, Stall, Venue

pytestmark = pytest.mark.xdist_group("databases")

STALE, NEWER = 5, 7


@pytest.fixture
def seat(database: str) -> Seat:
    """A seat as a holder with fence 5 has loaded it, before one with fence 7 takes it."""
    Seat.objects.using(database).create(row="A1", fence=STALE)
    seat: Seat = Seat.objects.using(database).get()
    take(seat)
    return seat


def take(seat: Seat) -> None:
    newer = Seat.objects.using(seat._state.db).get(pk=seat.pk)
    newer.taken_by = "the newer"
    newer.save(fence=NEWER)


def stored(seat: Seat) -> tuple[str, int]:
    row: tuple[str, int] = (
        Seat.objects.using(seat._state.db).values_list("taken_by", "fence").get(pk=seat.pk)
    )
    return row


def test_a_stale_save_is_refused(seat: Seat) -> None:
    seat.taken_by = "the stale"

    with pytest.raises(StaleFence) as caught:
        seat.save(fence=STALE)

    assert (caught.value.fence, caught.value.stored) == (STALE, NEWER)
    assert isinstance(caught.value, LockLost)
    assert stored(seat) == ("the newer", NEWER)
    assert seat.fence == STALE


def test_without_a_fence_the_same_save_goes_through(seat: Seat) -> None:
    seat.taken_by = "the stale"

    seat.save()

    assert stored(seat)[0] == "the stale"


def test_a_save_without_a_fence_leaves_the_stored_one_as_it_is(seat: Seat) -> None:
    seat.save()

    assert stored(seat)[1] == NEWER


@pytest.mark.parametrize("fence", [NEWER, NEWER + 1])
def test_a_save_with_the_same_or_a_later_fence_stores_it(seat: Seat, fence: int) -> None:
    seat.taken_by = "the last"

    seat.save(fence=fence)

    assert stored(seat) == ("the last", fence)
    assert seat.fence == fence


def test_a_save_is_one_statement_on_the_row(seat: Seat) -> None:
    seen = statements_of(seat, lambda: seat.save(fence=NEWER))

    assert len(seen) == 1
    assert seen[0].startswith("UPDATE")
    assert "<= 7" in seen[0].replace("'", "")


def statements_of(seat: Seat, write: object) -> list[str]:
    from django.test.utils import CaptureQueriesContext

    with CaptureQueriesContext(connections[seat._state.db or ""]) as captured:
        write()  # type: ignore[operator]
    frame = ("BEGIN", "COMMIT", "SAVEPOINT", "RELEASE")
    return [one["sql"] for one in captured if not one["sql"].startswith(frame)]


def test_a_stale_save_of_single_fields_is_refused(seat: Seat) -> None:
    seat.price = 10

    with pytest.raises(StaleFence):
        seat.save(update_fields=["price"], fence=STALE)

    seat.refresh_from_db()
    assert seat.price == 0


def test_a_save_of_single_fields_stores_the_fence_and_no_other_field(seat: Seat) -> None:
    seat.price = 10

    seat.save(update_fields=["price"], fence=NEWER + 1)

    assert stored(seat) == ("the newer", NEWER + 1)


@pytest.mark.parametrize("load", ["only", "defer"])
def test_a_stale_save_of_a_row_loaded_in_part_is_refused(seat: Seat, load: str) -> None:
    names = {"only": ["price"], "defer": ["fence"]}[load]
    part = getattr(Seat.objects.using(seat._state.db), load)(*names).get(pk=seat.pk)
    part.price = 10

    with pytest.raises(StaleFence):
        part.save(fence=STALE)

    assert "fence" not in part.__dict__
    seat.refresh_from_db()
    assert seat.price == 0


def test_the_fence_cannot_be_saved_as_a_field(seat: Seat) -> None:
    seat.fence = 1

    with pytest.raises(ValueError, match="update_fields"):
        seat.save(update_fields=["fence"])


def test_a_stale_save_through_a_proxy_is_refused(seat: Seat) -> None:
    with pytest.raises(StaleFence):
        OldSeat.objects.using(seat._state.db).get(pk=seat.pk).save(fence=STALE)


def test_values_that_the_database_computes_are_written_with_a_fence(seat: Seat) -> None:
    seat.price = F("price") + 1

    seat.save(fence=NEWER)

    seat.refresh_from_db()
    assert seat.price == 1


def test_a_new_row_has_the_fence_it_was_made_with(database: str) -> None:
    seat = Seat(row="B1")

    seat.save(fence=STALE, using=database)

    assert stored(seat)[1] == seat.fence == STALE


def test_a_new_row_with_a_key_of_its_own_is_made(database: str) -> None:
    seat = Seat(pk=4711, row="B1")

    seat.save(fence=STALE, using=database)

    assert stored(seat)[1] == STALE


@pytest.mark.parametrize("options", [{}, {"force_update": True}], ids=str)
def test_a_stale_save_of_an_object_made_by_key_is_refused(
    seat: Seat, options: dict[str, Any]
) -> None:
    by_key = Seat(pk=seat.pk, row="A1", taken_by="the stale")

    with pytest.raises(StaleFence):
        by_key.save(fence=STALE, using=seat._state.db, **options)

    assert stored(seat) == ("the newer", NEWER)
    assert by_key.fence == 0


def test_a_row_that_was_deleted_meanwhile_is_not_made_again(seat: Seat) -> None:
    Seat.objects.using(seat._state.db).get(pk=seat.pk).delete(fence=NEWER)

    with pytest.raises(StaleFence, match="in the database no longer") as caught:
        seat.save(fence=STALE)

    assert caught.value.stored is None
    assert not Seat.objects.using(seat._state.db).exists()


def test_a_row_can_be_copied_to_another_database(seat: Seat) -> None:
    pk, other = seat.pk, "default"
    seat._state.db = other  # as if it had been loaded there
    Seat.objects.using(alias_of(seat, pk)).filter(pk=pk).delete()

    seat.save(fence=STALE, using=alias_of(seat, pk))

    assert stored(seat)[1] == STALE


def alias_of(seat: Seat, pk: object) -> str:
    return next(one for one in ("sqlite", "postgres", "mariadb") if one in connections.settings)


def test_what_a_refused_save_did_before_is_undone_with_it(seat: Seat) -> None:
    alias = seat._state.db or ""

    def note(sender: object, using: str, **kwargs: object) -> None:
        Venue.objects.using(using).create(name="noted")

    pre_save.connect(note, sender=Seat)
    try:
        with pytest.raises(StaleFence):
            seat.save(fence=STALE)
    finally:
        pre_save.disconnect(note, sender=Seat)

    assert not Venue.objects.using(alias).exists()


def test_a_refused_save_rolls_the_atomic_block_around_it_back(seat: Seat) -> None:
    alias = seat._state.db or ""

    with transaction.atomic(alias):
        Venue.objects.using(alias).create(name="before")
        with pytest.raises(StaleFence):
            seat.save(fence=STALE)
        with pytest.raises(transaction.TransactionManagementError):
            Venue.objects.using(alias).exists()

    assert not Venue.objects.using(alias).exists()


def test_an_atomic_block_around_a_refused_save_alone_lets_the_rest_go_on(seat: Seat) -> None:
    alias = seat._state.db or ""

    with transaction.atomic(alias):
        Venue.objects.using(alias).create(name="before")
        with pytest.raises(StaleFence), transaction.atomic(alias):
            seat.save(fence=STALE)

    assert Venue.objects.using(alias).exists()
    assert stored(seat) == ("the newer", NEWER)


def test_the_fence_may_be_in_a_table_inherited_from(database: str) -> None:
    box = Box(row="C1")
    box.save(using=database, fence=NEWER)
    box.guests, box.taken_by = 3, "the stale"

    with pytest.raises(StaleFence):
        box.save(fence=STALE)
    with pytest.raises(StaleFence):
        box.save(fence=STALE, update_fields=["guests"])

    box.refresh_from_db()
    assert (box.guests, box.taken_by, box.fence) == (0, "", NEWER)


def test_single_fields_beside_a_table_inherited_from_are_written_with_the_fence(
    database: str,
) -> None:
    box = Box(row="C1", guests=1)
    box.save(using=database, fence=STALE)
    box.guests = 3

    box.save(fence=NEWER, update_fields=["guests"])

    box.refresh_from_db()
    assert (box.guests, box.fence) == (3, NEWER)


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


def test_a_stale_delete_is_refused(seat: Seat) -> None:
    with pytest.raises(StaleFence):
        seat.delete(fence=STALE)

    assert stored(seat) == ("the newer", NEWER)


@pytest.mark.parametrize("fence", [NEWER, NEWER + 1])
def test_a_delete_with_the_same_or_a_later_fence_is_made(seat: Seat, fence: int) -> None:
    alias = seat._state.db

    deleted, _ = seat.delete(fence=fence)

    assert deleted == 1
    assert not Seat.objects.using(alias).exists()


def test_a_delete_over_several_tables_goes_by_the_fence(database: str) -> None:
    box = Box(row="C1")
    box.save(using=database, fence=NEWER)

    with pytest.raises(StaleFence):
        box.delete(fence=STALE)
    assert Box.objects.using(database).exists()
    box.delete(fence=NEWER)

    assert not Seat.objects.using(database).exists()
