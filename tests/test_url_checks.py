"""E010, E011, W005 and W007: what a route gives to a locked view."""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.contrib.auth.decorators import (
    login_not_required,
    login_required,
    permission_required,
)
from django.contrib.auth.mixins import LoginRequiredMixin
from django.core.checks import CheckMessage, Tags, run_checks
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import include, path, re_path, register_converter
from django.urls.converters import REGISTERED_CONVERTERS, StringConverter, get_converters
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from rest_framework.decorators import action
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_setnx_lock import redis_lock
from django_setnx_lock.views import LockedViewMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


order_lock = redis_lock("order:<pk>")


def found(number: str, *routes: Any) -> list[CheckMessage]:
    """Return what the check ``number`` says of a URLconf of these ``routes``."""
    with override_settings(ROOT_URLCONF=routes):
        return [
            one for one in run_checks(tags=[Tags.urls]) if one.id == f"django_setnx_lock.{number}"
        ]


def plain(request: Any, **kwargs: Any) -> HttpResponse:
    return HttpResponse()


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


@method_decorator(order_lock, name="post")
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


VIEWS: dict[str, Any] = {
    "function": anything,
    "csrf_exempt": csrf_exempt(anything),
    "partial": partial(anything, shop="north"),
    "dispatch": ByDispatch.as_view(),
    "named method": ByNamedMethod.as_view(),
    "method": ByMethod.as_view(),
    "as_view": order_lock(Unlocked.as_view()),
    "api method": ApiMethod.as_view(),
    "viewset": Orders.as_view({"post": "pay"}),
    "decorated viewset": order_lock(Orders.as_view({"get": "list"})),
}
every_view = pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())


def locked(template: str, **options: Any) -> Any:
    return redis_lock(template, **options)(plain)


def load_order(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    @wraps(view)
    def loaded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return view(request, pk=1)

    return loaded


@redis_lock("order:<order.pk>")
def order_or_none(request: HttpRequest, order: Any = None) -> HttpResponse:
    return HttpResponse()


@method_decorator([order_lock, redis_lock("shop:<shop>")], name="dispatch")
class Twice(View):
    pass


class OfUser(LoginRequiredMixin, LockedViewMixin, View):
    lock_key = "cart:<user.pk>"


class ByMixin(LockedViewMixin, View):
    lock_key = "order:<pk>"


class Numbered(Orders):
    lookup_value_converter = "int"


def routed(viewset: Any, **options: Any) -> Any:
    router = SimpleRouter(**options)
    router.register("orders", viewset, basename="order")
    return path("", include(router.urls))


@every_view
def test_a_route_that_cannot_fill_the_template_is_an_error(view: Any) -> None:
    (error,) = found("E010", path("orders/<int:order_id>/", view))

    assert "at 'orders/<int:order_id>/' is locked by 'order:<pk>'" in error.msg
    assert "<pk>" in error.msg


@every_view
@pytest.mark.parametrize(
    "route",
    [
        lambda view: path("orders/<int:pk>/", view),
        lambda view: path("orders/", view, {"pk": 1}),
        lambda view: path("orders/<uuid:pk>/", include([path("pay/", view)])),
        lambda view: path("orders/", include([path("pay/", view)]), {"pk": 1}),
    ],
    ids=["int", "default", "include", "default of an include"],
)
def test_a_route_that_gives_the_value_is_none(view: Any, route: Callable[[Any], Any]) -> None:
    assert found("E010", route(view)) == []
    assert found("W005", route(view)) == []


@every_view
def test_a_key_that_a_route_gives_as_text_is_a_warning(view: Any) -> None:
    (warning,) = found("W005", path("orders/<pk>/", view))

    assert "at 'orders/<pk>/' is locked by 'order:<pk>'" in warning.msg
    assert "gives 'pk' as text" in warning.msg


ROUTES: dict[str, tuple[str, int, Any]] = {
    "a default of None in the route": ("E010", 1, path("", anything, {"pk": None})),
    "a default of None in the view": ("E010", 1, path("", pk_or_none)),
    "a default without attributes": ("E010", 1, path("", order_or_none)),
    "a default of the view": ("E010", 0, path("", pk_or_seven)),
    "a named group": ("E010", 0, re_path(r"^(?P<pk>\d+)/$", anything)),
    "an unnamed group": ("E010", 0, re_path(r"^(\d+)/$", pk_or_none)),
    "an unnamed group of an include": (
        "E010",
        0,
        re_path(r"^(\d+)/", include([path("pay/", pk_or_none)])),
    ),
    "a named group beside an unnamed one": (
        "E010",
        1,
        re_path(r"^(?P<shop>\w+)/(\d+)/$", ByDispatch.as_view()),
    ),
    "a decorator that changes the arguments": (
        "E010",
        0,
        path("<slug:name>/", load_order(pk_needed)),
    ),
    "a stacked lock": ("E010", 2, path("", redis_lock("shop:<shop>")(anything))),
    "two locks of one method_decorator": ("E010", 2, path("", Twice.as_view())),
    "another action of a viewset": ("E010", 0, path("", Orders.as_view({"get": "list"}))),
    "a view without a lock": ("E010", 0, path("", Unlocked.as_view())),
    "an attribute of the request": ("E010", 0, path("", locked("cart:<user.pk>"))),
    "an attribute of an argument": ("E010", 0, path("<slug:order>/", locked("<order.pk>"))),
    "a cache that can hold locks": ("E011", 0, path("", locked("all", using="default"))),
    **{
        f"text by the converter {kind}": ("W005", 1, path(f"<{kind}:pk>/", anything))
        for kind in ("str", "slug", "path")
    },
    "text in a named group": ("W005", 1, re_path(r"^(?P<pk>\d+)/$", anything)),
    "text in an unnamed group": ("W005", 1, re_path(r"^(\d+)/$", pk_needed)),
    "text of an include": (
        "W005",
        1,
        path("<slug:pk>/", include([path("pay/", locked("<pk>"))])),
    ),
    "an attribute called pk": ("W005", 0, path("<pk>/", locked("<request.tenant.pk>"))),
    "text as a default of the route": ("W005", 0, path("", locked("<pk>"), {"pk": "42"})),
    "a field that is named twice": ("W005", 1, path("<pk>/", locked("<pk>:<pk>"))),
    "a view that cannot be called so": ("W005", 0, path("<slug:name>/", pk_needed)),
    "a router": ("W005", 1, routed(Orders)),
    "a router with a converter": ("W005", 0, routed(Numbered, use_regex_path=False)),
    **{
        f"text called {name}": ("W005", 1, path(f"<{name}>/", locked(f"<{name}>")))
        for name in ("id", "uuid", "order_pk", "order_id", "parcel_uuid")
    },
    **{
        f"text called {name}": ("W005", 0, path(f"<{name}>/", locked(f"<{name}>")))
        for name in ("slug", "name", "code", "paid", "pk_of", "idea")
    },
    **{
        f"a field of type {kind}": ("W005", 0, path("<pk>/", locked(f"<pk:{kind}>")))
        for kind in ("int", "uuid", "str")
    },
}


@pytest.mark.parametrize(("number", "count", "route"), ROUTES.values(), ids=ROUTES)
def test_a_check_says_of_a_route_what_it_gives(number: str, count: int, route: Any) -> None:
    assert len(found(number, route)) == count


def test_the_error_names_the_view_the_whole_route_and_what_it_gives() -> None:
    routes = path("<int:shop>/", include([path("<int:order_id>/", anything)]))

    (error,) = found("E010", routes)

    assert f"{anything.__module__}.anything at '<int:shop>/<int:order_id>/'" in error.msg
    assert error.hint is not None
    assert error.hint.startswith("The route gives shop, order_id. See https://")
    assert error.hint.endswith("troubleshooting.html#e010")


@pytest.mark.parametrize(
    ("caches", "wrong"),
    [
        ({}, "there is no cache 'other' in CACHES"),
        (
            {"other": {"BACKEND": "django_redis.cache.RedisCache"}},
            "the cache 'other' has no LOCATION",
        ),
    ],
    ids=["none", "no location"],
)
def test_a_cache_that_cannot_hold_locks_is_an_error(caches: dict[str, Any], wrong: str) -> None:
    with override_settings(CACHES={**settings.CACHES, **caches}):
        (error,) = found("E011", path("orders/", locked("all", using="other")))

    assert f"using='other': {wrong}" in error.msg


def test_the_hint_for_a_text_says_what_to_write() -> None:
    (warning,) = found("W005", path("orders/<order_id>/", locked("order:<order_id>")))

    for written in ("<order_id:int>", "<order_id:uuid>", "<order_id:str>", "shooting.html#w005"):
        assert written in str(warning.hint)


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
    view = locked("<pk>")

    assert len(found("W005", path("orders/<loud:pk>/", view))) == 1
    assert found("W005", path("orders/<number:pk>/", view)) == []


USERS: dict[str, tuple[int, Any]] = {
    "nothing that requires a login": (1, locked("cart:<user.pk>")),
    "the user of the request": (1, locked("cart:<request.user.pk>")),
    "a login above": (0, login_required(locked("cart:<user.pk>"))),
    "a permission above": (0, permission_required("x")(locked("cart:<user.pk>"))),
    "a mixin for the login": (0, OfUser.as_view()),
    "a view of REST framework": (0, redis_lock("cart:<user.pk>")(ApiMethod.as_view())),
    "another attribute of the request": (0, locked("by:<request.method>")),
    "no user at all": (0, locked("order:<pk>")),
}


@pytest.mark.parametrize(("count", "view"), USERS.values(), ids=USERS)
def test_a_key_of_the_user_is_a_warning_where_nothing_requires_a_login(
    count: int, view: Any
) -> None:
    assert len(found("W007", path("<int:pk>/", view))) == count


def test_a_middleware_that_requires_a_login_is_enough() -> None:
    of_all = "django.contrib.auth.middleware.LoginRequiredMiddleware"
    view, public = locked("cart:<user.pk>"), login_not_required(locked("cart:<user.pk>"))

    with override_settings(MIDDLEWARE=[*settings.MIDDLEWARE, of_all]):
        assert len(found("W007", path("", view), path("public/", public))) == 1


def test_a_view_with_the_mixin_is_checked_as_a_decorated_one() -> None:
    assert len(found("E010", path("<int:order_id>/", ByMixin.as_view()))) == 1
    assert len(found("W005", path("<pk>/", ByMixin.as_view()))) == 1


def test_a_project_without_the_middleware_is_told_what_to_add() -> None:
    with override_settings(MIDDLEWARE=[]):
        (warning,) = found("W006")

    assert "'django_setnx_lock.middleware.LockMiddleware'" in str(warning.hint)
    assert found("W006") == []


@pytest.mark.parametrize("view", ["shop.nowhere", "django_setnx_lock.views.nothing"])
def test_a_failure_view_that_is_not_there_is_an_error(view: str) -> None:
    with override_settings(SETNX_LOCK={"FAILURE_VIEW": view}):
        messages = [one.id for one in run_checks(tags=[Tags.caches])]

    assert "django_setnx_lock.E016" in messages


@override_settings(ROOT_URLCONF="example_project.urls")
def test_the_shop_has_none() -> None:
    assert run_checks(tags=[Tags.urls]) == []
