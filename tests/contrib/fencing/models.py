"""Models whose rows are fenced, in an app of their own."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models

from django_setnx_lock.contrib.fencing import FencedManager, FencedModel, FenceField


class Venue(models.Model):
    name = models.CharField(max_length=20)

    def __str__(self) -> str:
        return self.name


class Seat(FencedModel):
    row = models.CharField(max_length=20)
    taken_by = models.CharField(max_length=20, blank=True)
    price = models.IntegerField(default=0)
    venue = models.ForeignKey(Venue, models.CASCADE, null=True, related_name="seats")
    fence = FenceField()

    objects: ClassVar[FencedManager[Any]] = FencedManager()

    def __str__(self) -> str:
        return self.row


class Box(Seat):
    """Its fence is in the table of what it inherits from."""

    guests = models.IntegerField(default=0)


class Stall(FencedModel, Venue):
    """Its fence is in its own table, and it inherits from another one."""

    sells = models.CharField(max_length=20, blank=True)
    fence = FenceField()


class LookedAt(FencedModel):
    """Looked for before it is written."""

    name = models.CharField(max_length=20)
    last = FenceField(db_column="f")

    class Meta:
        select_on_save = True

    def __str__(self) -> str:
        return self.name


class OldSeat(Seat):
    class Meta:
        proxy = True
