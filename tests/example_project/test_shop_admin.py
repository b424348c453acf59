from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.messages import get_messages

from django_setnx_lock import lock
from example_project.shop.models import Order

if TYPE_CHECKING:
    from django.test import Client

pytestmark = [pytest.mark.django_db, pytest.mark.urls("example_project.urls")]
ORDERS = "/admin/shop/order/"


@pytest.fixture
def orders() -> list[Order]:
    for number in ("1001", "1002"):
        Order(number=number, customer="Ada", amount=42).save()
    return list(Order.objects.all())


def act(client: Client, action: str, orders: list[Order], **fields: str) -> Any:
    return client.post(
        ORDERS, {"action": action, "_selected_action": [one.pk for one in orders], **fields}
    )


def test_an_order_that_is_being_paid_is_not_marked_as_paid(
    admin_client: Client, orders: list[Order]
) -> None:
    with lock(f"order:{orders[0].pk}", label="view pay"):
        answer = act(admin_client, "mark_paid", orders)

    said = [str(one) for one in get_messages(answer.wsgi_request)]
    assert said[0] == "1 order marked as paid."
    assert said[1].startswith("1 order was skipped: Order 1001")
    assert "view pay" in said[1]
    assert [one.paid_by for one in Order.objects.all()] == ["", "invoice, admin"]


def test_the_lock_of_a_selected_order_can_be_released(
    admin_client: Client, orders: list[Order]
) -> None:
    held = lock(f"order:{orders[0].pk}").take(0)

    question = act(admin_client, "release_locks_of_selected", orders)
    act(
        admin_client,
        "release_locks_of_selected",
        orders,
        post="yes",
        seen=question.context["seen"],
    )

    assert not held.owned()
