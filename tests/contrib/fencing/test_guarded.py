"""Under a guard, no way to write that a database has leads past the question for the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, transaction
from django.db.models import (
    CharField,
    Count,
    DateTimeField,
    Exists,
    ExpressionWrapper,
    F,
    OuterRef,
    Q,
    Sum,
    Value,
    Window,
)
from django.db.models.functions import (
    Cast,
    Coalesce,
    Concat,
    ExtractYear,
    Length,
    Now,
    Rank,
    TruncDate,
    Upper,
)

from django_setnx_lock import LockLost
from django_setnx_lock.contrib.fencing import guard
from tests.contrib.fencing.models import Seat, Venue

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.xdist_group("databases")

LOOKS = """
SELECT (SELECT sum(price) FROM fencing_seat), (SELECT count(*) FROM fencing_seat),
    (SELECT last_value FROM fencing_seat_id_seq), to_regclass('leaked')::text
"""
FUNCTION = """
CREATE FUNCTION written() RETURNS int LANGUAGE sql AS
'UPDATE fencing_seat SET price = 9 RETURNING price'
"""
UPDATE = "UPDATE fencing_seat SET price = 9"


class Lost:
    def check(self) -> None:
        raise LockLost("lost")


def copy(cursor: Any) -> None:
    with cursor.copy("COPY fencing_seat (row, taken_by, price, fence) FROM STDIN") as rows:
        rows.write_row(("Z9", "", 9, 0))


def said(sql: str) -> Callable[[Any], object]:
    return lambda cursor: cursor.execute(sql)


WAYS: dict[str, Callable[[Any], object]] = {
    "explained": said(f"EXPLAIN ANALYZE {UPDATE}"),
    "behind a read": said(f"SELECT 1; {UPDATE}"),
    "behind a setting": said(f"SET LOCAL statement_timeout = 0; {UPDATE}"),
    "into a table": said("SELECT * INTO leaked FROM fencing_seat"),
    "of a sequence": said("SELECT setval('fencing_seat_id_seq', 4711)"),
    "by a sequence": said("SELECT nextval('fencing_seat_id_seq'), nextval('fencing_seat_id_seq')"),
    "by values": said("VALUES (setval('fencing_seat_id_seq', 4711))"),
    "by a function": said("SELECT written()"),
    "by a function with a schema": said('SELECT public."written"()'),
    "by a function in a filter": said("SELECT 1 WHERE written /* a note */ () = 9"),
    "by a part": said(f"WITH x AS ({UPDATE} RETURNING price) SELECT * FROM x"),  # noqa: S608 - of constants
    "by a block": said(f"DO $$ BEGIN {UPDATE}; END $$"),
    "copied": copy,
    "streamed": lambda cursor: list(cursor.stream(f"{UPDATE} RETURNING price")),
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
on_postgres = pytest.mark.parametrize("database", ["postgres"], indirect=True)


def looks(alias: str) -> Any:
    with connections[alias].cursor() as cursor:
        cursor.execute(LOOKS)
        return cursor.fetchone()


def tried(alias: str, way: Callable[[Any], object], *, guarded: bool) -> bool:
    """Whether something was written that way, which is undone."""
    with transaction.atomic(alias):
        Seat.objects.using(alias).create(row="A1")
        with connections[alias].cursor() as cursor:
            cursor.execute(FUNCTION)
        before = looks(alias)
        if guarded:
            with pytest.raises(LockLost), guard(Lost()), connections[alias].cursor() as cursor:
                way(cursor)
        else:
            with connections[alias].cursor() as cursor:
                way(cursor)
        after = looks(alias)
        transaction.set_rollback(True, alias)
    return bool(after != before)


@on_postgres
@each_way
def test_nothing_is_written_that_way_once_the_lock_is_lost(
    database: str, way: Callable[[Any], object]
) -> None:
    assert not tried(database, way, guarded=True)


@on_postgres
@each_way
def test_without_the_guard_it_is_written_that_way(
    database: str, way: Callable[[Any], object]
) -> None:
    assert tried(database, way, guarded=False)


@pytest.mark.parametrize("database", ["mariadb"], indirect=True)
def test_no_procedure_is_called_once_the_lock_is_lost(database: str) -> None:
    with pytest.raises(LockLost), guard(Lost()), connections[database].cursor() as cursor:
        cursor.callproc("written")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_no_script_is_run_once_the_lock_is_lost(database: str) -> None:
    Seat.objects.using(database).create(row="A1")

    with pytest.raises(LockLost), guard(Lost()), connections[database].cursor() as cursor:
        cursor.executescript(UPDATE)

    assert Seat.objects.using(database).get().price == 0


READS: dict[str, Callable[[Any], object]] = {
    "all": list,
    "a filter": lambda rows: list(rows.filter(Q(row__icontains="a", pk__in=[1, 2]) | ~Q(price=3))),
    "a relation": lambda rows: list(rows.select_related("venue").prefetch_related("venue")),
    "get": lambda rows: rows.get(row="A1"),
    "exists": lambda rows: rows.filter(row="A1").exists(),
    "count": lambda rows: rows.count(),
    "aggregates": lambda rows: rows.aggregate(Sum("price"), n=Count("venue", distinct=True)),
    "groups": lambda rows: list(rows.values("venue__name").annotate(n=Count("pk")).filter(n__gt=0)),
    "functions": lambda rows: list(
        rows.annotate(
            name=Concat(Upper("row"), Value("-"), Coalesce("taken_by", Value(""))),
            size=Length("row"),
            text=Cast("price", CharField(max_length=9)),
        )
    ),
    "times": lambda rows: list(
        rows.annotate(now=ExpressionWrapper(Now(), DateTimeField())).annotate(
            day=TruncDate("now"), year=ExtractYear("now")
        )
    ),
    "a subquery": lambda rows: list(
        rows.filter(Exists(Venue.objects.using(rows.db).filter(pk=OuterRef("venue"))))
    ),
    "a window": lambda rows: list(rows.annotate(rank=Window(Rank(), order_by=F("price").asc()))),
    "a union": lambda rows: list(rows.filter(price=0).union(rows.filter(price=1))),
    "an iterator": lambda rows: list(rows.iterator()),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reads_go_through_though_the_lock_is_lost(
    database: str, read: Callable[[Any], object]
) -> None:
    Seat.objects.using(database).create(row="A1")

    with guard(Lost()), transaction.atomic(database), transaction.atomic(database):
        read(Seat.objects.using(database))


@on_postgres
def test_after_the_guard_connections_are_what_they_were(database: str) -> None:
    before = dict(connections[database].__dict__)

    with guard(Lost()), guard(Lost()):
        pass

    assert connections[database].__dict__ == before


@on_postgres
def test_a_cursor_under_the_guard_is_used_as_any_other(database: str) -> None:
    Seat.objects.using(database).create(row="A1")

    with guard(Lost()), connections[database].cursor() as cursor:
        cursor.execute("SELECT row FROM fencing_seat")
        assert (cursor.rowcount, list(cursor)) == (1, [("A1",)])
        assert cursor.db is connections[database]
