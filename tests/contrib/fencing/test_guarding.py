from __future__ import annotations

import asyncio
import time

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction

from django_setnx_lock import LockLost, LockUnavailable, lock
from django_setnx_lock.contrib.fencing import guard
from django_setnx_lock.contrib.fencing.guarding import _may_write
from tests.contrib.fencing.models import Seat, Venue
from tests.servers import FakeServer

pytestmark = pytest.mark.django_db


class Counting:
    """A handle that is asked so many times, and then lost."""

    def __init__(self, until: int = 99) -> None:
        self.asked, self.until = 0, until

    def check(self) -> None:
        self.asked += 1
        if self.asked > self.until:
            raise LockLost("lost")


def test_nothing_is_written_once_the_lock_is_lost(fake_server: FakeServer) -> None:
    with lock("seat:1", raise_on_release_error=False) as held, guard(held):
        Venue.objects.create(name="before")
        fake_server.client().delete(held.name)

        with pytest.raises(LockLost), transaction.atomic():
            Venue.objects.create(name="after")

    assert [venue.name for venue in Venue.objects.all()] == ["before"]


def test_without_the_guard_it_is_written_all_the_same(fake_server: FakeServer) -> None:
    with lock("seat:1", raise_on_release_error=False) as held:
        fake_server.client().delete(held.name)

        Venue.objects.create(name="after")

    assert Venue.objects.exists()


def test_nothing_is_written_while_redis_cannot_say(fake_server: FakeServer) -> None:
    with lock("seat:1", raise_on_release_error=False) as held, guard(held):
        fake_server.connected = False

        with pytest.raises(LockUnavailable), transaction.atomic():
            Venue.objects.create(name="after")

    assert not Venue.objects.exists()


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


def test_what_a_block_has_written_is_rolled_back_when_the_lock_is_lost() -> None:
    def write() -> None:
        with guard(Counting(until=1)), transaction.atomic():
            Venue.objects.create(name="first")
            Venue.objects.create(name="second")

    with pytest.raises(LockLost):
        write()

    assert not Venue.objects.exists()


def test_after_the_block_nobody_is_asked() -> None:
    held = Counting()

    with pytest.raises(ZeroDivisionError), guard(held):
        1 / 0  # noqa: B018 - it is to raise
    Seat.objects.create(row="A1")

    assert held.asked == 0


def test_it_is_refused_in_a_running_event_loop() -> None:
    async def use() -> None:
        with guard(Counting()):
            pass

    with pytest.raises(SynchronousOnlyOperation, match="guard"):
        asyncio.run(use())


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (1)",
        "update t set a = 1",
        "DELETE FROM t",
        "REPLACE INTO t VALUES (1)",
        "SELECT a FROM t FOR UPDATE",
        "SELECT a FROM t FOR NO KEY UPDATE SKIP LOCKED",
        "SELECT a FROM t FOR KEY SHARE",
        "SELECT a FROM t LOCK IN SHARE MODE",
        "SELECT a INTO u FROM t",
        "SELECT 1 /*!50000INTO OUTFILE 'u' */",
        "SELECT a FROM t; DELETE FROM t",
        "SELECT ';' ; DELETE FROM t",
        "BEGIN; DELETE FROM t",
        "ROLLBACK TO SAVEPOINT s; DELETE FROM t",
        "SET LOCAL a = 1; DELETE FROM t",
        "SET @a = work()",
        "EXPLAIN ANALYZE DELETE FROM t",
        "DESCRIBE ANALYZE DELETE FROM t",
        "PRAGMA user_version = 1",
        "WITH x AS (DELETE FROM t RETURNING a) SELECT a FROM x",
        "SELECT work()",
        "SELECT count(work(a)) FROM t",
        "SELECT a FROM t WHERE work (a) > 0",
        "SELECT own.count(a) FROM t",
        'SELECT "work"(a) FROM t',
        "SELECT `work`(a) FROM t",
        "SELECT [work](a) FROM t",
        "SELECT work/* a note */(a) FROM t",
        "SELECT work -- a note (\n(a) FROM t",
        "SELECT work # a note (\n(a) FROM t",
        "SELECT '/*', work(a), '*/' FROM t",
        "VALUES (work())",
        "/* a note */ UPDATE t SET a = 1",
        "-- a note\nUPDATE t SET a = 1",
        "CALL work()",
        "TRUNCATE t",
        "selection()",
        42,
    ],
    ids=str,
)
def test_what_may_write_is_known(sql: object) -> None:
    assert _may_write(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM t",
        "SELECT a FROM t;\n",
        "  (SELECT 1) UNION (SELECT 2)",
        "VALUES (1), (2)",
        "SHOW server_version",
        "/* of='a view' */ select 1 /*action='%2Forders',framework='django'*/",
        "SELECT COUNT (*), Lower(a) FROM t WHERE (a IN (1, 2) AND NOT (b)) OR EXISTS(SELECT 1)",
        """SELECT (a #>> %s) FROM t WHERE b LIKE %s ESCAPE '\\'""",
        'SELECT "t"."last_update", share, (a)::numeric(8, 2) FROM t',
        'SAVEPOINT "s1"',
        'RELEASE SAVEPOINT "s1"',
        'ROLLBACK TO SAVEPOINT "s1"',
        "BEGIN IMMEDIATE",
        "START TRANSACTION",
    ],
    ids=str,
)
def test_what_only_reads_is_known(sql: str) -> None:
    assert not _may_write(sql)


def test_a_long_statement_is_looked_at_in_no_time() -> None:
    long = "a" * 1_000_000

    begun = time.process_time()
    for sql in (f"SELECT '{long}'", f"SELECT {'/*' * 500_000}", f"SELECT {'f(' * 500_000}"):
        _may_write(sql)

    assert time.process_time() - begun < 20
