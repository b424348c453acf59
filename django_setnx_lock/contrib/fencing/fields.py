"""The column that keeps the largest fencing number a row was written with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.checks import CheckMessage, Error
from django.core.exceptions import FieldDoesNotExist
from django.db import models

if TYPE_CHECKING:
    _BigIntegerField = models.BigIntegerField[int, int]
else:
    _BigIntegerField = models.BigIntegerField


class FenceField(_BigIntegerField):
    """The fencing number of the last holder that wrote the row; 0 before the first.

    For a :class:`~.models.FencedModel`. It is set by fenced writes, and no form shows it. Raises
    TypeError for ``null=True``: a fence that is unknown would let no write through.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("null"):
            raise TypeError("a FenceField cannot be null: rows never written with a fence have 0")
        kwargs.setdefault("default", 0)
        kwargs.setdefault("editable", False)
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> tuple[str, str, Any, dict[str, Any]]:
        name, _, args, kwargs = super().deconstruct()
        if kwargs.get("default") == 0:
            del kwargs["default"]
        if not self.editable:
            del kwargs["editable"]
        else:
            kwargs["editable"] = True
        return name, "django_setnx_lock.contrib.fencing.FenceField", args, kwargs

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        """E020: the model writes it as it has to be written. Else an old number would come back."""
        found: list[CheckMessage] = super().check(**kwargs)
        if not hasattr(self.model, "_saving_with"):
            found.append(
                Error(
                    f"{self.model._meta.label} has a FenceField, and is no FencedModel.",
                    hint="Its save() would put back an older fence. Make it a subclass of "
                    "django_setnx_lock.contrib.fencing.FencedModel. See docs/checks.md#e020.",
                    obj=self,
                    id="django_setnx_lock.E020",
                )
            )
        return found


def fence_field(model: type[models.Model]) -> FenceField:
    """The FenceField of ``model``. Raises FieldDoesNotExist when it has none."""
    for field in model._meta.concrete_fields:
        if isinstance(field, FenceField):
            return field
    raise FieldDoesNotExist(
        f"{model._meta.label} has no FenceField: add `fence = FenceField()` to it, and a migration"
    )
