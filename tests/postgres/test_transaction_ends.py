"""However a transaction ends on PostgreSQL, the lock outlives it, and is free right after."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from django.db import DatabaseError, InterfaceError, connections, transaction

from django_setnx_lock import LockLost, lock
from example_project.shop.models import Order
from tests.databases import state
from tests.postgres.conftest import ALIAS

if TYPE_CHECKING:
    from collections.abc import Callable

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
