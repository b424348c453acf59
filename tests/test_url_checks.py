from __future__ import annotations

import sys
from functools import partial, wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from django.core.checks import CheckMessage
from django.core.checks.registry import registry
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import include, path, re_path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from rest_framework.decorators import action, api_view
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_setnx_lock import redis_lock
from django_setnx_lock.url_checks import (
    check_aliases,
    check_attributes,
    check_sync,
    check_templates,
)

if TYPE_CHECKING:
    from collections.abc import Callable

order_lock = redis_lock("order:<pk>")


def found(check: Callable[..., list[CheckMessage]], *routes: Any) -> list[CheckMessage]:
    """What ``check`` says of a URLconf of these ``routes``."""
    urlconf = ModuleType("tests.checked_urls")
    urlconf.urlpatterns = routes  # type: ignore[attr-defined]  # that is what makes it a URLconf
    sys.modules[urlconf.__name__] = urlconf
    try:
        with override_settings(ROOT_URLCONF=urlconf.__name__):
            return check(None)
    finally:
        del sys.modules[urlconf.__name__]


@order_lock
def anything(request: HttpRequest, **kwargs: Any) -> HttpResponse:
    return HttpResponse()


@order_lock
def pk_or_none(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    return HttpResponse()


@order_lock
def pk_or_seven(request: HttpRequest, pk: int = 7) -> HttpResponse:
    return HttpResponse()


@order_lock
def pk_needed(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse()


@method_decorator(order_lock, name="dispatch")
class ByDispatch(View):
    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return HttpResponse()


@method_decorator([never_cache, order_lock], name="post")
class ByNamedMethod(View):
    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return HttpResponse()


class ByMethod(View):
    @order_lock
    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return HttpResponse()


class Unlocked(View):
    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return HttpResponse()


@api_view(["GET", "POST"])
@order_lock
def by_api_view(request: Any, /, **kwargs: Any) -> HttpResponse:
    return HttpResponse()


class ApiMethod(APIView):
    @order_lock
    def post(self, request: Any, **kwargs: Any) -> HttpResponse:
        return HttpResponse()


class Orders(ViewSet):
    @action(detail=True, methods=["post"])
    @order_lock
    def pay(self, request: Any, **kwargs: Any) -> HttpResponse:
        return HttpResponse()

    def list(self, request: Any, **kwargs: Any) -> HttpResponse:
        return HttpResponse()


def plain(request: HttpRequest, **kwargs: Any) -> HttpResponse:
    return HttpResponse()


VIEWS: dict[str, Any] = {
    "function": anything,
    "csrf_exempt": csrf_exempt(anything),
    "partial": partial(anything, shop="north"),
    "dispatch": ByDispatch.as_view(),
    "named method": ByNamedMethod.as_view(),
    "method": ByMethod.as_view(),
    "as_view": order_lock(Unlocked.as_view()),
    "api_view": by_api_view,
    "api method": ApiMethod.as_view(),
    "viewset": Orders.as_view({"post": "pay"}),
    "decorated viewset": order_lock(Orders.as_view({"get": "list"})),
}
every_view = pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())


@every_view
def test_a_route_that_cannot_fill_the_template_is_an_error(view: Any) -> None:
    (error,) = found(check_templates, path("orders/<int:order_id>/", view))

    assert error.id == "django_setnx_lock.E010"
    assert "at 'orders/<int:order_id>/' is locked by 'order:<pk>'" in error.msg
    assert "<pk>" in error.msg


@every_view
def test_a_route_that_fills_the_template_is_none(view: Any) -> None:
    assert found(check_templates, path("orders/<int:pk>/", view)) == []


@every_view
def test_a_default_argument_of_the_route_fills_the_template(view: Any) -> None:
    assert found(check_templates, path("orders/", view, {"pk": 1})) == []


@every_view
def test_an_including_route_fills_the_template(view: Any) -> None:
    routes = path("orders/<int:pk>/", include([path("pay/", view)]))

    assert found(check_templates, routes) == []


def test_the_hint_names_what_the_route_gives_and_where_to_read_on() -> None:
    (error,) = found(check_templates, path("<int:shop>/<int:order_id>/", anything))

    assert error.hint == "The route gives shop, order_id. See docs/checks.md#e010."


def test_the_error_names_the_view_and_the_whole_route() -> None:
    (error,) = found(check_templates, path("shop/", include([path("pay/", anything)])))

    assert f"{__name__}.anything at 'shop/pay/'" in error.msg
    assert error.hint is not None
    assert error.hint.startswith("The route gives no names.")


def test_an_include_with_default_arguments_fills_the_template() -> None:
    routes = path("orders/", include([path("pay/", anything)]), {"pk": 1})

    assert found(check_templates, routes) == []


def test_a_default_argument_of_none_does_not_fill_the_template() -> None:
    assert len(found(check_templates, path("orders/", anything, {"pk": None}))) == 1


def test_a_default_of_none_does_not_fill_the_template() -> None:
    assert len(found(check_templates, path("orders/", pk_or_none))) == 1


def test_a_default_of_the_view_fills_the_template() -> None:
    assert found(check_templates, path("orders/", pk_or_seven)) == []


def test_a_named_group_fills_the_template() -> None:
    assert found(check_templates, re_path(r"^orders/(?P<pk>\d+)/$", anything)) == []


def test_an_unnamed_group_fills_a_parameter() -> None:
    assert found(check_templates, re_path(r"^orders/(\d+)/$", pk_or_none)) == []


def test_unnamed_groups_of_an_include_are_passed_on() -> None:
    routes = re_path(r"^orders/(\d+)/", include([path("pay/", pk_or_none)]))

    assert found(check_templates, routes) == []


def test_a_named_group_pushes_the_unnamed_ones_out() -> None:
    routes = re_path(r"^(?P<shop>\w+)/(\d+)/$", ByDispatch.as_view())

    assert len(found(check_templates, routes)) == 1


def test_a_view_between_whose_decorators_arguments_change_is_left_alone() -> None:
    def load_order(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        @wraps(view)
        def loaded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            return view(request, pk=1)

        return loaded

    assert found(check_templates, path("orders/<slug:name>/", load_order(pk_needed))) == []


def test_an_attribute_of_the_request_needs_nothing_of_the_route() -> None:
    view = redis_lock("cart:<user.pk>")(plain)

    assert found(check_templates, path("cart/", view)) == []
    assert found(check_attributes, path("cart/", view)) == []


def test_a_stacked_lock_is_checked_too() -> None:
    view = redis_lock("shop:<shop>")(anything)

    errors = found(check_templates, path("orders/", view))

    assert len(errors) == 2


def test_both_locks_of_one_method_decorator_are_checked() -> None:
    @method_decorator([order_lock, redis_lock("shop:<shop>")], name="dispatch")
    class Pay(View):
        pass

    assert len(found(check_templates, path("orders/", Pay.as_view()))) == 2


def test_a_viewset_route_is_not_judged_by_its_other_actions() -> None:
    assert found(check_templates, path("orders/", Orders.as_view({"get": "list"}))) == []


def test_a_view_without_a_lock_is_left_alone() -> None:
    assert found(check_templates, path("orders/", Unlocked.as_view())) == []


@pytest.mark.parametrize("check", [check_templates, check_aliases, check_sync, check_attributes])
@override_settings(ROOT_URLCONF="tests.no_such_urls")
def test_a_broken_urlconf_is_left_to_djangos_own_checks(
    check: Callable[..., list[CheckMessage]],
) -> None:
    assert check(None) == []


def test_a_cache_that_does_not_exist_is_an_error() -> None:
    view = redis_lock("all", using="other")(plain)

    (error,) = found(check_aliases, path("orders/", view))

    assert error.id == "django_setnx_lock.E011"
    assert "using='other': there is no cache 'other' in CACHES" in error.msg


def test_a_cache_that_can_hold_locks_is_none() -> None:
    view = redis_lock("all", using="default")(plain)

    assert found(check_aliases, path("orders/", view)) == []


@method_decorator(order_lock, name="dispatch")
class AsyncByDispatch(View):
    async def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse()


@method_decorator(order_lock, name="post")
class AsyncByMethod(View):
    async def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse()


@pytest.mark.parametrize("view", [AsyncByDispatch, AsyncByMethod])
def test_a_locked_async_view_is_an_error(view: type[View]) -> None:
    (error,) = found(check_sync, path("orders/<int:pk>/", view.as_view()))

    assert error.id == "django_setnx_lock.E012"
    assert "is async" in error.msg


@every_view
def test_a_locked_synchronous_view_is_none(view: Any) -> None:
    assert found(check_sync, path("orders/<int:pk>/", view)) == []


def test_an_attribute_that_no_request_is_known_to_have_is_a_warning() -> None:
    view = redis_lock("order:<order.pk>")(plain)

    (warning,) = found(check_attributes, path("orders/<int:pk>/", view))

    assert warning.id == "django_setnx_lock.W004"
    assert warning.hint is not None
    assert "write <request.order.pk>" in warning.hint


def test_an_attribute_named_through_the_request_is_none() -> None:
    view = redis_lock("order:<request.order.pk>")(plain)

    assert found(check_attributes, path("orders/<int:pk>/", view)) == []


def test_an_attribute_of_an_argument_is_none() -> None:
    view = redis_lock("order:<order.pk>")(plain)

    assert found(check_attributes, path("orders/<slug:order>/", view)) == []


def test_an_argument_whose_default_has_no_attributes_is_an_error() -> None:
    @redis_lock("order:<order.pk>")
    def pay(request: HttpRequest, order: Any = None) -> HttpResponse:
        return HttpResponse()

    assert len(found(check_templates, path("orders/", pay))) == 1


@pytest.mark.parametrize("check", [check_templates, check_aliases, check_sync, check_attributes])
def test_the_checks_are_registered(check: Any) -> None:
    assert check in registry.get_checks()
