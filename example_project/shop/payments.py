"""Payments, and a stand-in for their provider: it takes a moment, and charges as often as asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from django.db import transaction
from django.utils import timezone

from .models import Charge, Order

if TYPE_CHECKING:
    from django_setnx_lock.contrib.fencing.fences import HasFence

ANSWERS_AFTER = 1.0  # seconds


def pay(order: Order, who: str, fence: HasFence | int) -> None:
    """Charge the customer for ``order``, and note that ``who`` has paid it, under its lock.

    ``fence`` is the handle of the lock, or its number, with which ``order`` was claimed. Raises
    StaleFence when somebody has had the lock and claimed the order since: then no charge is made,
    and nothing is noted.
    """
    await_answer()
    order.paid_at, order.paid_by = timezone.now(), who
    with transaction.atomic():
        order.save(update_fields=["paid_at", "paid_by"], fence=fence)
        Charge.objects.create(order=order, amount=order.amount)


def refund(order: Order, fence: HasFence | int) -> None:
    """Undo the payment. Raises StaleFence as :func:`pay`."""
    order.paid_at, order.paid_by = None, ""
    with transaction.atomic():
        order.save(update_fields=["paid_at", "paid_by"], fence=fence)
        order.charges.all().delete()


def await_answer() -> None:
    """Return when the provider has answered."""
    time.sleep(ANSWERS_AFTER)
