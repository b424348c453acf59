"""The fields of a model by which a key template names its rows, so that each row has one key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import models

from .core.keytemplate import KeyTemplate

# The database finds one row by several texts of these, and str() of the value is not always one.
_MANY_TEXTS = (
    models.BinaryField,
    models.DateTimeField,
    models.DecimalField,
    models.DurationField,
    models.FloatField,
    models.GeneratedField,
    models.GenericIPAddressField,
    models.JSONField,
    models.TimeField,
)


def parsers_for(model: Any, template: KeyTemplate) -> Mapping[str, Callable[[Any], Any]]:
    """What reads the values of those fields of ``template`` that are fields of ``model``.

    These are all that have neither a type nor a dot. Raises TypeError for what is no model
    with a table, ValueError where the model has no such field, or one of many texts.
    """
    if model is None:
        return {}
    if not (isinstance(model, type) and issubclass(model, models.Model)) or model._meta.abstract:
        raise TypeError(f"model is a class of a model that has a table, not {model!r}")
    names = [one for one in template.fields if "." not in one and one not in template.types]
    if not names:
        raise ValueError(
            f"the key template {template.text!r} names no field of {model._meta.label}; "
            "leave model out"
        )
    return {name: partial(_cleaned, _field(model, name, template)) for name in names}


def _field(model: type[models.Model], name: str, template: KeyTemplate) -> models.Field[Any, Any]:
    problem = ""
    try:
        found: Any = model._meta.pk if name == "pk" else model._meta.get_field(name)
    except FieldDoesNotExist:
        problem = f"which is no field of {model._meta.label}"
    else:
        if isinstance(found, _MANY_TEXTS):
            problem = f"a {type(found).__name__}, whose values have several texts"
        elif not found.concrete:
            problem = f"which is no single column of {model._meta.label}"
    if problem:
        raise ValueError(
            f"the key template {template.text!r} names <{name}>, {problem}; name another field, "
            f"or give it a type, as in <{name}:int>"
        )
    return found  # type: ignore[no-any-return]  # what is concrete is a Field


def _cleaned(field: models.Field[Any, Any], value: Any) -> Any:
    try:
        return field.to_python(value)
    except ValidationError as error:
        raise ValueError(" ".join(error.messages)) from None
