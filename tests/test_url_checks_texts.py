"""W005: a field that is named like a key, and that a route gives as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.core.checks.registry import registry
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import include, path, re_path, register_converter
from django.urls.converters import REGISTERED_CONVERTERS, StringConverter, get_converters
from rest_framework.routers import SimpleRouter

from django_setnx_lock import redis_lock
from django_setnx_lock.checks import check_views
from tests.checked_views import Orders, every_view, found, pk_needed, plain

if TYPE_CHECKING:
    from collections.abc import Iterator


@every_view
@pytest.mark.parametrize("field", ["<pk>", "<str:pk>", "<slug:pk>", "<path:pk>"])
def test_a_key_that_a_route_gives_as_text_is_a_warning(field: str, view: Any) -> None:
    (warning,) = found("W005", path(f"orders/{field}/", view))

    assert warning.id == "django_setnx_lock.W005"
    assert f"at 'orders/{field}/' is locked by 'order:<pk>'" in warning.msg
    assert "gives 'pk' as text" in warning.msg


@every_view
@pytest.mark.parametrize("field", ["<int:pk>", "<uuid:pk>"])
def test_a_key_that_a_route_converts_is_none(field: str, view: Any) -> None:
    assert found("W005", path(f"orders/{field}/", view)) == []


def test_the_hint_says_what_to_write() -> None:
    view = redis_lock("order:<order_id>")(plain)

    (warning,) = found("W005", path("orders/<order_id>/", view))

    assert warning.hint is not None
    for written in ("<order_id:int>", "<order_id:uuid>", "<order_id:str>", "checks.html#w005"):
        assert written in warning.hint


@every_view
def test_a_group_of_a_regular_expression_is_text(view: Any) -> None:
    assert len(found("W005", re_path(r"^orders/(?P<pk>\d+)/$", view))) == 1


def test_an_unnamed_group_is_text() -> None:
    assert len(found("W005", re_path(r"^orders/(\d+)/$", pk_needed))) == 1


def test_what_an_including_route_gives_counts() -> None:
    as_text = path("orders/<slug:pk>/", include([path("pay/", plain_lock("<pk>"))]))
    as_int = path("orders/<int:pk>/", include([path("pay/", plain_lock("<pk>"))]))

    assert len(found("W005", as_text)) == 1
    assert found("W005", as_int) == []


def plain_lock(field: str, **options: Any) -> Any:
    return redis_lock(f"order:{field}", **options)(plain)


@pytest.mark.parametrize("name", ["id", "uuid", "order_pk", "order_id", "parcel_uuid"])
def test_what_is_named_like_a_key_is_a_warning(name: str) -> None:
    view = plain_lock(f"<{name}>")

    assert len(found("W005", path(f"orders/<{name}>/", view))) == 1


@pytest.mark.parametrize("name", ["slug", "name", "code", "paid", "pk_of", "idea"])
def test_what_is_not_named_like_a_key_is_none(name: str) -> None:
    view = plain_lock(f"<{name}>")

    assert found("W005", path(f"orders/<{name}>/", view)) == []


@pytest.mark.parametrize("kind", ["int", "uuid", "str"])
def test_a_field_with_a_type_is_none(kind: str) -> None:
    assert found("W005", path("orders/<pk>/", plain_lock(f"<pk:{kind}>"))) == []


def test_an_attribute_is_none() -> None:
    assert found("W005", path("orders/<pk>/", plain_lock("<request.tenant.pk>"))) == []


def test_a_default_argument_of_the_route_is_none() -> None:
    assert found("W005", path("orders/", plain_lock("<pk>"), {"pk": "42"})) == []


def test_a_field_that_is_named_twice_is_warned_of_once() -> None:
    assert len(found("W005", path("orders/<pk>/", plain_lock("<pk>:<pk>")))) == 1


def test_a_view_that_cannot_be_called_so_is_left_to_others() -> None:
    assert found("W005", path("orders/<slug:name>/", pk_needed)) == []


def test_the_routes_of_a_router_give_text() -> None:
    router = SimpleRouter()
    router.register("orders", Orders, basename="order")

    warnings = found("W005", path("", include(router.urls)))

    assert ["/pay/" in one.msg for one in warnings] == [True]


def test_the_routes_of_a_router_with_a_converter_do_not() -> None:
    class Numbered(Orders):
        lookup_value_converter = "int"

    router = SimpleRouter(use_regex_path=False)
    router.register("orders", Numbered, basename="order")

    assert found("W005", path("", include(router.urls))) == []


class Loud(StringConverter):
    """Gives text, as what it inherits from."""


class Number(StringConverter):
    regex = "[0-9]+"

    def to_python(self, value: str) -> Any:
        return int(value)


@pytest.fixture
def own_converters() -> Iterator[None]:
    for kind in (Loud, Number):
        register_converter(kind, kind.__name__.lower())
    yield
    for kind in (Loud, Number):
        del REGISTERED_CONVERTERS[kind.__name__.lower()]
    get_converters.cache_clear()  # type: ignore[attr-defined]  # it is cached


@pytest.mark.usefixtures("own_converters")
def test_a_converter_of_the_projects_own_counts_by_whether_it_converts() -> None:
    view = plain_lock("<pk>")

    assert len(found("W005", path("orders/<loud:pk>/", view))) == 1
    assert found("W005", path("orders/<number:pk>/", view)) == []


def test_a_function_view_is_named() -> None:
    @redis_lock("order:<pk>")
    def pay(request: HttpRequest, pk: str) -> HttpResponse:
        return HttpResponse()

    (warning,) = found("W005", path("orders/<pk>/", pay))

    assert "test_a_function_view_is_named.<locals>.pay at 'orders/<pk>/'" in warning.msg


@override_settings(ROOT_URLCONF="example_project.urls")
def test_the_shop_has_none() -> None:
    assert check_views(None) == []


def test_the_check_is_registered() -> None:
    assert check_views in registry.get_checks()
