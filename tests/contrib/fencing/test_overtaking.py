"""A stale write that waits for the newer one, as databases make it, and is refused after it."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from django.db import OperationalError, connections, transaction

from django_setnx_lock import StaleFence
from tests.contrib.fencing.models import Seat, Venue
from tests.contrib.fencing.waiting import somebody_waits
from tests.contrib.fencing.writes import NEWER, STALE, WRITES
from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# SQLite lets one transaction write at a time.
MARIADB = pytest.param("mariadb", marks=pytest.mark.matrix)
on_each = pytest.mark.parametrize("database", ["postgres", MARIADB], indirect=True)
pytestmark = pytest.mark.xdist_group("databases")

LATEST = 9


@pytest.fixture
def seat(database: str) -> Seat:
    venue = Venue.objects.using(database).create(name="north")
    seat: Seat = Seat.objects.using(database).create(row="A1", venue=venue)
    return seat


def overtaken(seat: Seat, write: Callable[[], Any]) -> Any:
    """What ``write()`` gives that began while a newer holder wrote, who had not committed yet."""
    alias = seat._state.db or ""
    has_written, may_commit = threading.Event(), threading.Event()

    def newer() -> None:
        try:
            with transaction.atomic(alias):
                Seat.objects.using(alias).update(fence=NEWER, taken_by="the newer")
                has_written.set()
                assert may_commit.wait(20)
        finally:
            connections[alias].close()

    def stale() -> Any:
        try:
            assert has_written.wait(20)
            return write()
        finally:
            connections[alias].close()

    with ThreadPoolExecutor(2) as threads:
        first, second = threads.submit(newer), threads.submit(stale)
        try:
            eventually(lambda: somebody_waits(alias))
        finally:
            may_commit.set()
        first.result(20)
        return second.result(20)


def stored(seat: Seat) -> tuple[str, int]:
    row: tuple[str, int] = (
        Seat.objects.using(seat._state.db).values_list("taken_by", "fence").get(pk=seat.pk)
    )
    return row


def update_found(rows: Any, seat: Seat, fence: int) -> None:
    rows.filter(pk__in=rows.filter(venue__name="north")).update(fence=fence, taken_by="the stale")


ALL_WRITES = {**WRITES, "update found": update_found}


@on_each
@pytest.mark.parametrize("write", ALL_WRITES.values(), ids=ALL_WRITES)
def test_a_stale_write_that_waited_for_a_newer_one_is_refused(
    seat: Seat, write: Callable[[Any, Seat, int], Any]
) -> None:
    rows = Seat.objects.using(seat._state.db)

    with pytest.raises(StaleFence):
        overtaken(seat, lambda: write(rows, seat, STALE))

    assert stored(seat) == ("the newer", NEWER)


CLAIMS: dict[str, Callable[[Any, Seat], Any]] = {
    "claim": lambda rows, seat: rows.claim(LATEST, pk=seat.pk),
    "claim rows": lambda rows, seat: rows.claim_all(LATEST)[0],
}


@on_each
@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_that_waited_for_a_write_reads_what_was_written(
    seat: Seat, claim: Callable[[Any, Seat], Any]
) -> None:
    rows = Seat.objects.using(seat._state.db)

    claimed = overtaken(seat, lambda: claim(rows, seat))

    assert (claimed.taken_by, claimed.fence) == ("the newer", LATEST)


@pytest.fixture
def repeatable(database: str) -> Iterator[str]:
    """The alias of a database with whole transactions on one snapshot, in this thread."""
    connection = connections[database]
    command = {"postgres": "SET SESSION CHARACTERISTICS AS", "mariadb": "SET SESSION"}[database]
    with connection.cursor() as cursor:
        cursor.execute(f"{command} TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    yield database
    connection.close()


@on_each
@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_on_an_older_snapshot_reads_nothing_old(
    seat: Seat, repeatable: str, claim: Callable[[Any, Seat], Any]
) -> None:
    rows = Seat.objects.using(repeatable)
    seen = []

    with contextlib.suppress(OperationalError), transaction.atomic(repeatable):
        assert rows.get(pk=seat.pk).taken_by == ""
        in_another_thread(
            repeatable, lambda: rows.filter(pk=seat.pk).update(fence=NEWER, taken_by="the newer")
        )
        # PostgreSQL refuses, as the row has changed since.
        seen.append(claim(rows, seat).taken_by)

    assert seen == {"postgres": [], "mariadb": ["the newer"]}[repeatable]


@pytest.mark.parametrize("database", [MARIADB], indirect=True)
def test_a_second_claim_on_an_older_snapshot_reads_nothing_old(seat: Seat, repeatable: str) -> None:
    rows = Seat.objects.using(repeatable)
    rows.claim(LATEST, pk=seat.pk)

    with transaction.atomic(repeatable):
        assert rows.get(pk=seat.pk).taken_by == ""
        # With no fence, so that the UPDATE of the claim changes nothing.
        in_another_thread(repeatable, lambda: rows.update(taken_by="somebody"))
        claimed = rows.claim(LATEST, pk=seat.pk)

    assert claimed.taken_by == "somebody"


@pytest.mark.parametrize("database", [MARIADB], indirect=True)
def test_a_snapshot_that_is_older_than_the_newer_write_hides_it_from_nobody(
    seat: Seat, repeatable: str
) -> None:
    rows = Seat.objects.using(repeatable)

    with transaction.atomic(repeatable):
        assert rows.get(pk=seat.pk).fence == 0
        in_another_thread(repeatable, lambda: Seat(pk=seat.pk).save(using=repeatable, fence=NEWER))
        assert rows.get(pk=seat.pk).fence == 0
        with pytest.raises(StaleFence):
            rows.update(fence=STALE, taken_by="the stale")

    assert rows.get().taken_by == ""


def in_another_thread(alias: str, write: Callable[[], Any]) -> None:
    def call() -> None:
        try:
            write()
        finally:
            connections[alias].close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(call).result(20)
