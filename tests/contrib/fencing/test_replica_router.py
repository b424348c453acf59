"""Fencing, guard() and release after commit, where rows are read by another alias than written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, transaction
from django.test import override_settings

from django_setnx_lock import LockLost, StaleFence, lock
from django_setnx_lock.contrib.fencing import guard
from tests import databases
from tests.contrib.fencing.models import Box, Seat
from tests.contrib.fencing.writes import NEWER, STALE, WRITES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.xdist_group("databases")

REPLICA = "replica"


class Router:
    """Reads from the replica and writes to ``primary``."""

    def __init__(self, primary: str) -> None:
        self.primary = primary

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return REPLICA

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return self.primary

    def allow_relation(self, *rows: Any, **hints: Any) -> bool:
        return True


@pytest.fixture
def primary(database: str) -> Iterator[str]:
    """Give the alias that rows are written to; the replica is another name of the database."""
    given = {**connections.settings[database]}
    databases.add(REPLICA, given)
    try:
        with override_settings(DATABASE_ROUTERS=[Router(database)]):
            yield database
    finally:
        databases.remove(REPLICA)


@pytest.fixture
def seat(primary: str) -> Seat:
    """A seat as a holder with fence 5 has read it from the replica."""
    Seat.objects.create(row="A1", fence=STALE)
    seat: Seat = Seat.objects.get()
    assert seat._state.db == REPLICA
    return seat


@pytest.mark.parametrize(
    "options", [{}, {"update_fields": ["taken_by"]}, {"force_update": True}], ids=str
)
@pytest.mark.parametrize("is_named", [False, True], ids=["routed", "named"])
def test_a_stale_save_does_not_make_a_deleted_row_again(
    seat: Seat, options: dict[str, Any], is_named: bool, primary: str
) -> None:
    Seat.objects.claim(NEWER, pk=seat.pk).delete(fence=NEWER)

    with pytest.raises(StaleFence):
        seat.save(fence=STALE, using=primary if is_named else None, **options)

    assert not Seat.objects.exists()


def test_nor_a_row_in_the_tables_of_several_models(primary: str) -> None:
    Box.objects.create(row="B1", fence=STALE)
    box: Box = Box.objects.get()
    Box.objects.claim(NEWER, pk=box.pk).delete(fence=NEWER)

    with pytest.raises(StaleFence):
        box.save(fence=STALE)

    assert not Seat.objects.exists()


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_later_holder_writes_and_an_earlier_one_is_refused(
    seat: Seat, write: Callable[[Any, Seat, int], Any]
) -> None:
    with pytest.raises(StaleFence):
        write(Seat.objects.all(), seat, STALE - 1)
    write(Seat.objects.all(), seat, NEWER)

    assert set(Seat.objects.values_list("fence", flat=True)) <= {NEWER}


class Lost:
    def check(self) -> None:
        raise LockLost("lost")


def test_the_guard_sees_the_writes_of_the_one_and_no_reads_of_the_other(seat: Seat) -> None:
    with guard(Lost()):
        assert Seat.objects.get().price == 0
        with pytest.raises(LockLost):
            seat.save()


def test_a_lock_is_held_until_the_writes_are_committed(seat: Seat, primary: str) -> None:
    with transaction.atomic(primary):
        with lock("a"):
            list(Seat.objects.all())
        inside = databases.state("a")

    assert (inside, databases.state("a")) == ("locked", "open")


def test_reads_alone_put_off_no_release(seat: Seat) -> None:
    with lock("a"):
        list(Seat.objects.all())

    assert databases.state("a") == "open"
