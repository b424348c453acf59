"""However a transaction ends on PostgreSQL, the lock outlives it, and is free right after."""

from __future__ import annotations

import contextlib
import copy
import threading
from typing import TYPE_CHECKING, Any

import pytest
from django.db import DatabaseError, InterfaceError, connections, transaction
from django.test import override_settings

from django_setnx_lock import LockLost, lock
from example_project.shop.models import Order
from tests.databases import state
from tests.postgres.conftest import ALIAS
from tests.postgres.test_lost_updates import FEWER_TIMES, THREADS, amount_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

READS = "reads"
pytestmark = [
    pytest.mark.usefixtures("real_cache", "postgres"),
    pytest.mark.xdist_group("postgres"),
]


class Planned(Exception):
    """What a test raises in a transaction."""


def run(sql: str) -> None:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(sql)


def raise_planned() -> None:
    raise Planned


def mark() -> None:
    transaction.set_rollback(True, using=ALIAS)


def fail_at_commit() -> None:
    run("SET CONSTRAINTS ALL DEFERRED; UPDATE shop_order SET amount = 7")
    run(
        "CREATE OR REPLACE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'no'; END $$"
    )


def fail_in_query() -> None:
    run("SELECT 1 / 0")


def lose_connection() -> None:
    run("SELECT pg_terminate_backend(pg_backend_pid())")


def lose_lock() -> None:
    lock("a").client.delete("lock:a")


ENDS: dict[str, Callable[[], None]] = {
    "an exception": raise_planned,
    "a mark": mark,
    "a commit that fails": fail_at_commit,
    "a query that fails": fail_in_query,
    "a connection that breaks": lose_connection,
    "a lock that is lost": lose_lock,
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_rollback_of_any_kind_releases_and_leaves_nothing_written(
    end: Callable[[], None],
) -> None:
    Order.objects.using(ALIAS).create(pk=1, number="1", amount=0)
    within = []

    with (
        contextlib.suppress(Planned, DatabaseError, InterfaceError, LockLost),
        transaction.atomic(using=ALIAS),
    ):
        with lock("a"):
            Order.objects.using(ALIAS).update(amount=1)
        within.append(state("a"))
        end()

    assert (within, state("a")) == (["locked"], "open")
    assert Order.objects.using(ALIAS).get().amount == 0


def test_the_rollback_to_a_savepoint_releases_nothing() -> None:
    with transaction.atomic(using=ALIAS):
        with contextlib.suppress(Planned), transaction.atomic(using=ALIAS), lock("a"):
            raise Planned
        after = state("a")

    assert (after, state("a")) == ("locked", "open")


class Router:
    """Reads by another connection than it writes."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return READS

    def db_for_write(self, model: Any, **hints: Any) -> str:
        return ALIAS


@pytest.fixture
def reads(postgres: str) -> Iterator[None]:
    connections.settings[READS] = copy.deepcopy(connections.settings[postgres])
    try:
        with override_settings(DATABASE_ROUTERS=[f"{__name__}.Router"]):
            yield
    finally:
        connections[READS].close()
        del connections[READS]
        del connections.settings[READS]


@pytest.mark.usefixtures("reads")
def test_reads_by_another_alias_than_writes_lose_no_update() -> None:
    def work(pk: int) -> None:
        with transaction.atomic(using=ALIAS), lock(f"order:{pk}", blocking_timeout=60):
            order = Order.objects.get(pk=pk)
            order.amount += 1
            order.save()

    assert amount_after(work, FEWER_TIMES) == THREADS * FEWER_TIMES


@pytest.mark.usefixtures("reads")
def test_both_of_two_databases_are_waited_for() -> None:
    seen: list[bool] = []

    def look() -> None:
        seen.append(lock("a").acquire(blocking=False))

    with transaction.atomic(using=ALIAS):
        with transaction.atomic(using=READS), lock("a"):
            pass
        thread = threading.Thread(target=look)
        thread.start()
        thread.join(10)

    assert (seen, state("a")) == ([False], "open")
