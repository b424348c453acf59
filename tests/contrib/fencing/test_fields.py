from __future__ import annotations

from typing import Any

import pytest
from django.db import models
from django.forms import modelform_factory
from django.test.utils import isolate_apps

from django_setnx_lock.contrib.fencing import FencedModel, FenceField
from tests.contrib.fencing.models import Box, LookedAt, Seat, Stall

HERE = "tests.contrib.fencing"


def ids(model: type[models.Model]) -> list[str]:
    return [message.id or "" for message in model.check() if "setnx_lock" in (message.id or "")]


@pytest.mark.parametrize(
    "field", [FenceField(), FenceField("latest", db_index=True)], ids=["plain", "other"]
)
def test_a_migration_makes_the_field_again(field: FenceField) -> None:
    _, path, args, kwargs = field.deconstruct()

    again = FenceField(*args, **kwargs)

    assert path == "django_setnx_lock.contrib.fencing.FenceField"
    assert again.deconstruct() == field.deconstruct()
    assert (again.default, again.editable) == (0, False)
    assert "fence" not in modelform_factory(Seat, fields="__all__").base_fields


def test_a_fence_cannot_be_null() -> None:
    with pytest.raises(TypeError, match="cannot be null"):
        FenceField(null=True)  # type: ignore[misc]  # what is refused


@pytest.mark.parametrize("model", [Seat, Box, Stall, LookedAt])
def test_models_as_they_should_be_pass_the_checks(model: type[models.Model]) -> None:
    assert ids(model) == []


@isolate_apps(HERE)
def test_e020_a_field_in_a_model_that_is_not_fenced() -> None:
    class Plain(models.Model):  # noqa: DJ008 - nobody sees one
        fence = FenceField()

        class Meta:
            app_label = "fencing"

    assert ids(Plain) == ["django_setnx_lock.E020"]


@isolate_apps(HERE)
@pytest.mark.parametrize("names", [(), ("one", "two")])
def test_e021_a_model_with_no_field_or_two(names: tuple[str, ...]) -> None:
    class Meta:
        app_label = "fencing"

    fields = {name: FenceField() for name in names}
    model: Any = type("Odd", (FencedModel,), {"__module__": HERE, "Meta": Meta, **fields})

    messages = [message for message in model.check() if message.id == "django_setnx_lock.E021"]

    assert len(messages) == 1
    assert ("one, two" if names else "no FenceField") in messages[0].msg


@isolate_apps(HERE)
def test_w020_a_default_manager_that_fences_nothing() -> None:
    class Other(FencedModel):
        fence = FenceField()
        objects = models.Manager()

        class Meta:
            app_label = "fencing"

    assert ids(Other) == ["django_setnx_lock.W020"]
