"""The form under its lock in real transactions, with ATOMIC_REQUESTS, and in several threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from django_setnx_lock.testing import LockTester
from example_project.shop.models import Order
from tests import databases
from tests.admin.orders import Person, at_once, save_at_once, stored, while_saving

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.admin.orders")]


@pytest.fixture(autouse=True)
def redis() -> Iterator[LockTester]:
    with LockTester("ignore") as tester:
        yield tester


@pytest.fixture
def order() -> Any:
    return Order.objects.create(number="7", customer="Ann Lee", amount="10.00")


@pytest.fixture
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)


@pytest.mark.usefixtures("atomic_requests")
def test_with_atomic_requests_a_mistake_keeps_the_lock_and_the_commit_releases_it(
    redis: LockTester, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Person("ann").open(order).refused(amount="much")
    redis.assert_locked(f"order:{order.pk}")
    ends = databases.journal(monkeypatch, f"order:{order.pk}")

    page.saved(amount="11.00")

    assert ends[0] == "commit default locked"
    redis.assert_released(f"order:{order.pk}")


@pytest.mark.usefixtures("atomic_requests")
def test_with_atomic_requests_a_lock_that_is_lost_rolls_back_and_keeps_what_was_typed(
    redis: LockTester, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_saving(monkeypatch, lambda one: redis.lost(f"order:{one.pk}", by="bob"))

    Person("ann").open(order).refused(customer="Ann Moe")

    assert stored(order) == "Ann Lee"


def test_of_several_who_save_at_once_without_redis_one_has_saved(
    redis: LockTester, order: Order
) -> None:
    with redis.unreachable():
        assert save_at_once(order, "ann", "bob", "cyd") == [stored(order)]


def test_the_requests_of_one_person_about_one_row_come_one_after_the_other(
    redis: LockTester, order: Order
) -> None:
    ann = Person("ann")
    for _ in range(5):
        page = ann.open(order)
        _left, again, problem = at_once(page.leave, lambda: ann.open(order), page.beacon)

        assert again.is_editable
        assert problem == ""
        # Whatever came first, the page that is open now has the lock when it says so.
        assert again.beacon() == ""
        again.leave()
        redis.assert_released(f"order:{order.pk}")
