"""Models that are found by keys of several types."""

from __future__ import annotations

import uuid

from django.db import models


class Ticket(models.Model):
    """Found by a number."""

    code = models.SlugField(unique=True)

    def __str__(self) -> str:
        return self.code


class Parcel(models.Model):
    """Found by a UUID."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)

    def __str__(self) -> str:
        return str(self.pk)


class Label(models.Model):
    """Found by the key of another model."""

    parcel = models.OneToOneField(Parcel, models.CASCADE, primary_key=True)

    def __str__(self) -> str:
        return str(self.pk)
