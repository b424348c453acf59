"""The shop's locks, tested without Redis: ``python manage.py test example_project``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from django.test import TestCase

from django_setnx_lock.testing import LockTestMixin

from . import payments
from .models import Charge, Order

if TYPE_CHECKING:
    from django.http import HttpResponseBase

CHARGE = "example_project.shop.payments.await_answer"
JSON: dict[str, Any] = {"headers": {"accept": "application/json"}}


def make_order() -> Order:
    order = Order(number="1001", customer="Ada", amount=42)
    order.save()
    return order


@patch.object(payments, "ANSWERS_AFTER", 0)
class PayTests(LockTestMixin, TestCase):
    def setUp(self) -> None:
        super().setUp()
        self.order = make_order()
        self.key = f"order:{self.order.pk}"

    def pay(self) -> HttpResponseBase:
        return self.client.post(f"/orders/{self.order.pk}/pay/", **JSON)

    def test_a_payment_lets_the_order_go(self) -> None:
        answer = self.pay()

        self.assertEqual(answer.status_code, 200)
        self.assert_released(self.key)

    def test_an_order_is_locked_while_it_is_charged(self) -> None:
        with patch(CHARGE, side_effect=lambda: self.assert_locked(self.key)) as charge:
            self.pay()

        charge.assert_called_once()

    def test_an_order_that_is_being_paid_is_left_alone(self) -> None:
        with self.held_elsewhere(self.key, timeout=30):
            answer = self.pay()

        self.assertEqual(answer.status_code, 409)
        self.assertEqual(answer.headers["Retry-After"], "2")
        self.assertFalse(Charge.objects.exists())

    def test_an_order_whose_lock_is_lost_is_answered_with_503(self) -> None:
        with patch(CHARGE, side_effect=lambda: self.lost(self.key)):
            answer = self.pay()

        self.assertEqual(answer.status_code, 503)

    def test_no_order_is_charged_while_redis_is_away(self) -> None:
        with self.unreachable():
            answer = self.pay()

        self.assertEqual(answer.status_code, 503)
        self.assertFalse(Charge.objects.exists())

    def test_a_slow_payment_keeps_its_lock(self) -> None:
        with patch(CHARGE, side_effect=lambda: self.advance(60)):
            answer = self.pay()

        self.assertEqual(answer.status_code, 200)

    def test_an_order_can_be_paid_when_the_lease_of_a_dead_process_is_over(self) -> None:
        with self.held_elsewhere(self.key, timeout=10, renew=False):
            self.assertEqual(self.pay().status_code, 409)
            self.advance(11)
            self.assertEqual(self.pay().status_code, 200)
