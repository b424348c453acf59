from __future__ import annotations

import inspect
from functools import partial, wraps
from typing import Any

import pytest

from django_setnx_lock.arguments import (
    arguments_in,
    dotted_name,
    names_in,
    own_signature,
    signature_of,
    takes_any_name,
)


def pay(request: object, pk: int, *rest: int, note: str = "none", **more: object) -> None: ...


def passing_on(func: Any) -> Any:
    @wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapper


class Till:
    @passing_on
    def open(self, number: int) -> None: ...

    @classmethod
    def count(cls) -> None: ...

    def __call__(self, number: int) -> None: ...


def bound_as_method_decorator_does() -> Any:
    return wraps(Till.open)(partial(Till.open.__get__(Till(), Till)))


@pytest.mark.parametrize(
    ("func", "names"),
    [
        (pay, ["request", "pk", "note"]),
        (passing_on(pay), ["request", "pk", "note"]),
        (passing_on(passing_on(pay)), ["request", "pk", "note"]),
        (partial(pay, 1), ["pk", "note"]),
        (Till.open, ["self", "number"]),
        (Till().open, ["number"]),
        (Till(), ["number"]),
        (bound_as_method_decorator_does(), ["number"]),
        (passing_on(bound_as_method_decorator_does()), ["number"]),
        (max, []),
    ],
    ids=range(10),
)
def test_a_callable_takes_these_names(func: Any, names: list[str]) -> None:
    assert names_in(signature_of(func)) == names


def test_a_decorator_that_takes_other_arguments_is_taken_at_its_word() -> None:
    @wraps(pay)
    def by_number(number: int) -> None: ...

    assert names_in(signature_of(by_number)) == ["number"]


def test_the_own_signature_looks_through_nothing() -> None:
    assert names_in(own_signature(passing_on(pay))) == []


@pytest.mark.parametrize(("func", "any_name"), [(pay, True), (Till.open, False), (max, True)])
def test_only_double_stars_take_any_name(func: Any, any_name: bool) -> None:
    assert takes_any_name(signature_of(func)) is any_name


def test_arguments_are_found_however_they_were_given() -> None:
    found = arguments_in(inspect.signature(pay), ("r", 42, 1, 2), {"shop": "north"})

    assert found == {"request": "r", "pk": 42, "note": "none", "shop": "north"}


def test_arguments_that_do_not_fit_are_a_type_error() -> None:
    with pytest.raises(TypeError, match="pk"):
        arguments_in(inspect.signature(pay), ("r",), {})


@pytest.mark.parametrize(
    ("func", "name"),
    [
        (pay, "pay"),
        (passing_on(pay), "pay"),
        (partial(pay, 1), "pay"),
        (Till().open, "Till.open"),
        (Till.count, "Till.count"),
        (Till(), "Till"),
        (bound_as_method_decorator_does(), "Till.open"),
    ],
    ids=range(7),
)
def test_a_callable_is_named_by_module_and_name(func: Any, name: str) -> None:
    assert dotted_name(func) == f"{__name__}.{name}"
