"""Under a guard, each statement that is no SELECT asks for the lock first."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections, transaction

from django_setnx_lock import LockError, LockLost, LockUnavailable, lock
from django_setnx_lock.contrib.fencing import guard
from tests.contrib.fencing.models import Seat, Venue

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.mark.django_db
def test_a_block_is_rolled_back_though_another_around_it_goes_on() -> None:
    def write() -> None:
        with transaction.atomic():
            Venue.objects.create(name="first")
            Venue.objects.create(name="second")

    with transaction.atomic():
        Venue.objects.create(name="outer")
        with pytest.raises(LockLost), guard(Counting(until=1)):
            write()

    assert [venue.name for venue in Venue.objects.all()] == ["outer"]


UPDATE = "UPDATE fencing_seat SET price = 9"
INSERT = "INSERT INTO fencing_seat (row, taken_by, price, fence) VALUES ('B1', '', 9, 0)"


def of_sql(sql: str, many: Any = ()) -> Callable[[Any], object]:
    def execute(rows: Any) -> None:
        with connections[rows.db].cursor() as cursor:
            _ = cursor.executemany(sql, many) if many else cursor.execute(sql)

    return execute


WRITES: dict[str, Callable[[Any], object]] = {
    "create": lambda rows: rows.create(row="B1"),
    "get_or_create": lambda rows: rows.get_or_create(row="B1"),
    "update_or_create": lambda rows: rows.update_or_create(row="A1", defaults={"price": 9}),
    "bulk_create": lambda rows: rows.bulk_create([Seat(row="B1")]),
    "bulk_update": lambda rows: rows.bulk_update([Seat(pk=rows.get().pk, price=9)], ["price"]),
    "save": lambda rows: Seat(pk=rows.get().pk, price=9).save(using=rows.db),
    "save with a fence": lambda rows: rows.get().save(fence=9),
    "claim": lambda rows: rows.claim(9, row="A1"),
    "update": lambda rows: rows.update(price=9),
    "delete": lambda rows: rows.all().delete(),
    "delete of a row": lambda rows: rows.get().delete(),
    "insert": of_sql(INSERT),
    "lower case": of_sql(f"\n  {UPDATE.lower()}"),
    "many": of_sql("UPDATE fencing_seat SET price = %s", [(8,), (9,)]),
    "explained": of_sql(f"EXPLAIN ANALYZE {UPDATE}"),
    "behind a setting": of_sql(f"SET LOCAL statement_timeout = 0; {UPDATE}"),
    "in a part": of_sql(f"WITH x AS ({UPDATE} RETURNING price) SELECT * FROM x"),  # noqa: S608 - of constants
    "in a block": of_sql(f"DO $$ BEGIN {UPDATE}; END $$"),
}


@pytest.mark.xdist_group("databases")
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
@pytest.mark.parametrize("is_guarded", [True, False], ids=["guarded", "bare"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_no_write_goes_past_the_guard(
    database: str, write: Callable[[Any], object], is_guarded: bool
) -> None:
    rows: Any = Seat.objects.using(database)
    rows.create(row="A1")
    before = list(rows.order_by("pk").values())

    if is_guarded:
        with pytest.raises(LockLost), guard(Counting(until=0)):
            write(rows)
    else:
        write(rows)

    assert (list(rows.order_by("pk").values()) == before) == is_guarded


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
