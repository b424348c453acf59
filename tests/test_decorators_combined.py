from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from django_setnx_lock import lock, redis_lock
from tests.views_urls import seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpResponseBase
    from django.test import RequestFactory


def body_of(response: HttpResponseBase) -> bytes:
    assert isinstance(response, HttpResponse)
    return response.content


def order_view(request: HttpRequest, pk: int) -> HttpResponse:
    """Pay an order."""
    return HttpResponse(seen(pk))


Decorator = Any  # Django's decorators keep no common type
OTHERS: list[Decorator] = [
    csrf_exempt,
    never_cache,
    login_required,
    require_POST,
    transaction.non_atomic_requests,
]
both_orders = pytest.mark.parametrize("lock_outside", [True, False], ids=["outside", "inside"])
all_others = pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.__name__)


def combined(other: Decorator, *, lock_outside: bool) -> Callable[..., HttpResponse]:
    order_lock = redis_lock("order:<pk>")
    view: Callable[..., HttpResponse] = (
        order_lock(other(order_view)) if lock_outside else other(order_lock(order_view))
    )
    return view


def with_user(request: HttpRequest) -> HttpRequest:
    request.user = User(pk=1)
    return request


@both_orders
@all_others
def test_a_view_with_another_decorator_runs_under_the_lock(
    other: Decorator, lock_outside: bool, rf: RequestFactory
) -> None:
    view = combined(other, lock_outside=lock_outside)

    response = view(with_user(rf.post("/")), pk=42)

    assert response.content == b"locked"


@both_orders
@all_others
def test_a_view_with_another_decorator_can_be_called_by_position(
    other: Decorator, lock_outside: bool, rf: RequestFactory
) -> None:
    view = combined(other, lock_outside=lock_outside)

    response = view(with_user(rf.post("/")), 42)

    assert response.content == b"locked"


@both_orders
@all_others
def test_a_view_with_another_decorator_keeps_its_name_and_docstring(
    other: Decorator, lock_outside: bool
) -> None:
    view = combined(other, lock_outside=lock_outside)

    assert (view.__name__, view.__doc__) == ("order_view", "Pay an order.")


@both_orders
def test_csrf_exempt_keeps_working(lock_outside: bool) -> None:
    view = combined(csrf_exempt, lock_outside=lock_outside)

    assert vars(view)["csrf_exempt"] is True


@both_orders
def test_non_atomic_requests_keeps_working(lock_outside: bool) -> None:
    view = combined(transaction.non_atomic_requests, lock_outside=lock_outside)

    assert vars(view)["_non_atomic_requests"] == {"default"}


@both_orders
def test_never_cache_keeps_working(lock_outside: bool, rf: RequestFactory) -> None:
    view = combined(never_cache, lock_outside=lock_outside)

    response = view(rf.post("/"), pk=42)

    assert "no-cache" in response["Cache-Control"]


@both_orders
def test_require_post_keeps_working(lock_outside: bool, rf: RequestFactory) -> None:
    view = combined(require_POST, lock_outside=lock_outside)

    assert view(rf.get("/"), pk=42).status_code == 405


@both_orders
def test_login_required_keeps_working(lock_outside: bool, rf: RequestFactory) -> None:
    view = combined(login_required, lock_outside=lock_outside)
    request = rf.post("/")
    request.user = AnonymousUser()

    assert view(request, pk=42).status_code == 302


@both_orders
def test_decorators_can_be_combined_in_one_method_decorator(
    lock_outside: bool, rf: RequestFactory
) -> None:
    decorators: list[Decorator] = [redis_lock("order:<pk>"), never_cache]
    if not lock_outside:
        decorators.reverse()

    @method_decorator(decorators, name="post")
    class Pay(View):
        def post(self, request: HttpRequest, pk: int) -> HttpResponse:
            return HttpResponse(seen(pk))

    response = Pay.as_view()(rf.post("/"), 42)

    assert (body_of(response), "no-cache" in response["Cache-Control"]) == (b"locked", True)


def test_two_locks_can_be_stacked(rf: RequestFactory) -> None:
    @redis_lock("shop:<shop>")
    @redis_lock("order:<pk>")
    def pay(request: HttpRequest, shop: str, pk: int) -> HttpResponse:
        return HttpResponse(f"{lock('shop:north').locked()} {seen(pk)}")

    assert pay(rf.post("/"), "north", pk=42).content == b"True locked"


def test_a_decorator_beneath_may_change_the_arguments(rf: RequestFactory) -> None:
    def load_order(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        @wraps(view)
        def loaded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            return view(request, order=f"order {kwargs.pop('pk')}")

        return loaded

    @redis_lock("till")
    @load_order
    def pay(request: HttpRequest, order: str) -> HttpResponse:
        return HttpResponse(order)

    assert pay(rf.post("/"), pk=42).content == b"order 42"
