"""Stands in for a payment provider: it takes a moment, and charges as often as it is asked."""

from __future__ import annotations

import time

from .models import Charge, Order

ANSWERS_AFTER = 1.0  # seconds


def charge(order: Order) -> None:
    """Charge the customer for ``order``."""
    await_answer()
    Charge.objects.create(order=order, amount=order.amount)


def await_answer() -> None:
    """Return when the provider has answered."""
    time.sleep(ANSWERS_AFTER)
