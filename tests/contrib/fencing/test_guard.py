"""Under a guard, each statement that is no SELECT asks for the lock first."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, connections, transaction

from django_setnx_lock import LockError, LockLost, LockUnavailable, lock
from django_setnx_lock.contrib.fencing import guard
from tests.contrib.fencing.models import Seat, Venue
from tests.servers import FakeServer


class Counting:
    """A handle that is asked so many times, and then lost."""

    def __init__(self, until: int = 99) -> None:
        self.asked, self.until = 0, until

    def check(self) -> None:
        self.asked += 1
        if self.asked > self.until:
            raise LockLost("lost")


@pytest.mark.django_db
def test_nothing_is_written_once_the_lock_is_lost(fake_server: FakeServer) -> None:
    with suppress(LockError), lock("seat:1") as held, guard(held):
        Venue.objects.create(name="before")
        fake_server.client().delete(held.name)

        with pytest.raises(LockLost), transaction.atomic():
            Venue.objects.create(name="after")

    assert [venue.name for venue in Venue.objects.all()] == ["before"]


@pytest.mark.django_db
def test_without_the_guard_it_is_written_all_the_same(fake_server: FakeServer) -> None:
    with suppress(LockError), lock("seat:1") as held:
        fake_server.client().delete(held.name)

        Venue.objects.create(name="after")

    assert Venue.objects.exists()


@pytest.mark.django_db
def test_nothing_is_written_while_redis_cannot_say(fake_server: FakeServer) -> None:
    with suppress(LockError), lock("seat:1") as held, guard(held):
        fake_server.connected = False

        with pytest.raises(LockUnavailable), transaction.atomic():
            Venue.objects.create(name="after")

    assert not Venue.objects.exists()


@pytest.mark.django_db
def test_each_write_asks_and_no_read_does() -> None:
    held = Counting()

    with guard(held):
        venue = Venue.objects.create(name="north")
        venue.name = "south"
        venue.save()
        list(Venue.objects.filter(name="south"))
        assert Venue.objects.count() == 1
        with transaction.atomic():
            venue.delete()

    assert held.asked == 3


def two_venues() -> None:
    with transaction.atomic():
        Venue.objects.create(name="first")
        Venue.objects.create(name="second")


@pytest.mark.django_db
def test_a_block_is_rolled_back_though_another_around_it_goes_on() -> None:
    with transaction.atomic():
        Venue.objects.create(name="outer")
        with pytest.raises(LockLost), guard(Counting(until=1)):
            two_venues()

    assert [venue.name for venue in Venue.objects.all()] == ["outer"]


@pytest.mark.parametrize("sql", ["update fencing_seat set price = 1", "\nDELETE FROM fencing_seat"])
@pytest.mark.django_db
def test_so_does_sql_of_your_own(sql: str) -> None:
    with pytest.raises(LockLost), guard(Counting(until=0)), connection.cursor() as cursor:
        cursor.execute(sql)


@pytest.mark.xdist_group("databases")
def test_on_every_database_nothing_is_written_and_reads_go_through(database: str) -> None:
    rows: Any = Seat.objects.using(database)
    rows.create(row="A1")

    with guard(Counting(until=0)):
        with transaction.atomic(database, durable=True):
            assert [row.row for row in rows.select_related("venue").filter(price=0)] == ["A1"]
        with pytest.raises(LockLost):
            rows.update(price=9)

    assert rows.get().price == 0


def test_after_the_block_nobody_is_asked() -> None:
    with pytest.raises(ZeroDivisionError), guard(Counting()):
        1 / 0  # noqa: B018 - it is to raise

    assert [one.execute_wrappers for one in connections.all()] == [[] for _ in connections]


def test_it_is_refused_in_a_running_event_loop() -> None:
    async def use() -> None:
        with guard(Counting()):
            pass

    with pytest.raises(SynchronousOnlyOperation, match="guard"):
        asyncio.run(use())
