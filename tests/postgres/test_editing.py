"""The edit form on PostgreSQL, where rows can be locked."""

from __future__ import annotations

import pytest

from django_setnx_lock.testing import LockTester
from example_project.shop.models import Order
from tests.admin.orders import save_at_once, stored

pytestmark = [
    pytest.mark.urls("tests.admin.orders"),
    # One process starts the server.
    pytest.mark.xdist_group("postgres"),
]


@pytest.mark.matrix
@pytest.mark.usefixtures("whole_postgres")
def test_of_several_who_save_at_once_without_redis_one_has_saved() -> None:
    for number in range(5):
        order = Order.objects.create(number=str(number), customer="Ann Lee", amount="10.00")
        with LockTester("ignore") as redis, redis.unreachable():
            assert save_at_once(order, "ann", "bob", "cyd") == [stored(order)]
