from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject
from rest_framework.request import Request

from django_setnx_lock.arguments import http_request, request_in, takes_request

if TYPE_CHECKING:
    from django.test import RequestFactory

REQUEST = HttpRequest()
API_REQUEST = Request(REQUEST)


@pytest.mark.parametrize("request_", [REQUEST, API_REQUEST])
@pytest.mark.parametrize("before", [(), ("self",)])
def test_a_request_is_the_first_or_second_argument(before: tuple[str, ...], request_: Any) -> None:
    assert request_in((*before, request_, 42), {}) is request_


def test_a_request_is_the_argument_called_so() -> None:
    assert request_in((), {"pk": 42, "request": REQUEST}) is REQUEST


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((42, "x"), {}), ((1, 2, REQUEST), {}), ((), {"other": REQUEST})],
)
def test_there_is_no_request_anywhere_else(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert request_in(args, kwargs) is None


def test_a_request_of_rest_framework_wraps_djangos() -> None:
    assert http_request(API_REQUEST) is REQUEST


def test_a_subclass_of_the_request_is_one(rf: RequestFactory) -> None:
    request = rf.get("/")

    assert http_request(request) is request


class Odd:
    """Has something private that only happens to be called so."""

    _request = "no request"


def test_something_else_under_the_same_private_name_is_no_request() -> None:
    assert http_request(Odd()) is None


def test_a_lazy_argument_is_not_evaluated() -> None:
    evaluated: list[str] = []
    lazy: Any = SimpleLazyObject(lambda: evaluated.append("query"))

    assert request_in((lazy,), {}) is None
    assert evaluated == []


class Eager:
    """Answers every attribute, as mocks and API clients do."""

    def __getattr__(self, name: str) -> Any:
        return REQUEST


def test_an_object_with_an_answer_to_everything_is_no_request() -> None:
    assert http_request(Eager()) is None


@pytest.mark.parametrize(
    ("func", "can"),
    [
        (lambda request, pk: None, True),
        (lambda self, request: None, True),
        (lambda req: None, True),
        (lambda _request: None, True),
        (lambda *args: None, True),
        (lambda **kwargs: None, True),
        (lambda a, b, *, request: None, True),
        (lambda pk: None, False),
        (lambda a, b, req: None, False),
        (lambda required, frequency: None, False),
        (lambda: None, False),
    ],
    ids=range(11),
)
def test_whether_a_callable_could_be_given_a_request(func: Any, can: bool) -> None:
    assert takes_request(inspect.signature(func)) is can


def test_an_annotation_tells_a_request_whatever_its_name() -> None:
    def view(r: HttpRequest) -> None: ...

    assert takes_request(inspect.signature(view)) is True
