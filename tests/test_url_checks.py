from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import include, path, re_path
from django.utils.decorators import method_decorator
from django.views import View

from django_setnx_lock import redis_lock
from django_setnx_lock.checks import check_views
from django_setnx_lock.core.docs import docs_url
from tests.checked_views import (
    ByDispatch,
    Orders,
    Unlocked,
    anything,
    every_view,
    found,
    order_lock,
    pk_needed,
    pk_or_none,
    pk_or_seven,
)

if TYPE_CHECKING:
    from collections.abc import Callable


@every_view
def test_a_route_that_cannot_fill_the_template_is_an_error(view: Any) -> None:
    (error,) = found("E010", path("orders/<int:order_id>/", view))

    assert error.id == "django_setnx_lock.E010"
    assert "at 'orders/<int:order_id>/' is locked by 'order:<pk>'" in error.msg
    assert "<pk>" in error.msg


def test_a_class_that_inherits_the_locked_dispatch_is_named_itself() -> None:
    (error,) = found("E010", path("orders/<int:order_id>/", ByDispatch.as_view()))

    assert "The view tests.checked_views.ByDispatch at" in error.msg


@every_view
def test_a_route_that_fills_the_template_is_none(view: Any) -> None:
    assert found("E010", path("orders/<int:pk>/", view)) == []


@every_view
def test_a_default_argument_of_the_route_fills_the_template(view: Any) -> None:
    assert found("E010", path("orders/", view, {"pk": 1})) == []


@every_view
def test_an_including_route_fills_the_template(view: Any) -> None:
    routes = path("orders/<int:pk>/", include([path("pay/", view)]))

    assert found("E010", routes) == []


def test_the_hint_names_what_the_route_gives_and_where_to_read_on() -> None:
    (error,) = found("E010", path("<int:shop>/<int:order_id>/", anything))

    assert error.hint == f"The route gives shop, order_id. See {docs_url('checks', 'E010')}"


def test_the_error_names_the_view_and_the_whole_route() -> None:
    (error,) = found("E010", path("shop/", include([path("pay/", anything)])))

    assert f"{anything.__module__}.anything at 'shop/pay/'" in error.msg
    assert error.hint is not None
    assert error.hint.startswith("The route gives no names.")


def test_an_include_with_default_arguments_fills_the_template() -> None:
    routes = path("orders/", include([path("pay/", anything)]), {"pk": 1})

    assert found("E010", routes) == []


def test_a_default_argument_of_none_does_not_fill_the_template() -> None:
    assert len(found("E010", path("orders/", anything, {"pk": None}))) == 1


def test_a_default_of_none_does_not_fill_the_template() -> None:
    assert len(found("E010", path("orders/", pk_or_none))) == 1


def test_a_default_of_the_view_fills_the_template() -> None:
    assert found("E010", path("orders/", pk_or_seven)) == []


def test_a_named_group_fills_the_template() -> None:
    assert found("E010", re_path(r"^orders/(?P<pk>\d+)/$", anything)) == []


def test_an_unnamed_group_fills_a_parameter() -> None:
    assert found("E010", re_path(r"^orders/(\d+)/$", pk_or_none)) == []


def test_unnamed_groups_of_an_include_are_passed_on() -> None:
    routes = re_path(r"^orders/(\d+)/", include([path("pay/", pk_or_none)]))

    assert found("E010", routes) == []


def test_a_named_group_pushes_the_unnamed_ones_out() -> None:
    routes = re_path(r"^(?P<shop>\w+)/(\d+)/$", ByDispatch.as_view())

    assert len(found("E010", routes)) == 1


def test_a_view_between_whose_decorators_arguments_change_is_left_alone() -> None:
    def load_order(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        @wraps(view)
        def loaded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            return view(request, pk=1)

        return loaded

    assert found("E010", path("orders/<slug:name>/", load_order(pk_needed))) == []


def test_a_stacked_lock_is_checked_too() -> None:
    view = redis_lock("shop:<shop>")(anything)

    errors = found("E010", path("orders/", view))

    assert len(errors) == 2


def test_both_locks_of_one_method_decorator_are_checked() -> None:
    @method_decorator([order_lock, redis_lock("shop:<shop>")], name="dispatch")
    class Pay(View):
        pass

    assert len(found("E010", path("orders/", Pay.as_view()))) == 2


def test_a_viewset_route_is_not_judged_by_its_other_actions() -> None:
    assert found("E010", path("orders/", Orders.as_view({"get": "list"}))) == []


def test_a_view_without_a_lock_is_left_alone() -> None:
    assert found("E010", path("orders/", Unlocked.as_view())) == []


@override_settings(ROOT_URLCONF="tests.no_such_urls")
def test_a_broken_urlconf_is_left_to_djangos_own_checks() -> None:
    assert check_views(None) == []


def test_an_argument_whose_default_has_no_attributes_is_an_error() -> None:
    @redis_lock("order:<order.pk>")
    def pay(request: HttpRequest, order: Any = None) -> HttpResponse:
        return HttpResponse()

    assert len(found("E010", path("orders/", pay))) == 1
