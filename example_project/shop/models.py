from __future__ import annotations

from decimal import Decimal

from django.core.validators import MinValueValidator
from django.db import models

from django_setnx_lock.contrib.fencing import FencedModel, FenceField


class Order(FencedModel):
    number = models.CharField(max_length=20, unique=True)
    customer = models.CharField(max_length=100)
    amount = models.DecimalField(
        max_digits=8, decimal_places=2, validators=[MinValueValidator(Decimal("0.01"))]
    )
    paid_at = models.DateTimeField(null=True, blank=True)
    paid_by = models.CharField(max_length=150, blank=True)
    fence = FenceField()

    class Meta:
        ordering = ("number",)

    def __str__(self) -> str:
        return f"Order {self.number}"


class Charge(models.Model):
    """What the payment provider has put on the customer's bill. More than one an order is a bug."""

    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="charges")
    amount = models.DecimalField(max_digits=8, decimal_places=2)
    made_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.amount} for {self.order}"
