"""Several spellings of one row's key in the URL, at once, on a threaded server and a real Redis."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

import pytest
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import include, path, re_path
from django.views.decorators.csrf import csrf_exempt
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.viewsets import GenericViewSet

from django_setnx_lock import redis_lock
from tests.racing import post_all, stay_inside
from tests.rows.models import Parcel, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_django.live_server_helper import LiveServer

    Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

pytestmark = [
    pytest.mark.urls(__name__),
    # The server's threads have connections of their own.
    pytest.mark.django_db(transaction=True),
]

# What int() and UUID() take for one and the same.
NUMBERS = ["42", "042", "+42", " 42", "4_2", "٤٢"]
CODE = "c0ffee00-1234-4abc-8def-0123456789ab"
UUIDS = [CODE, CODE.upper(), CODE.replace("-", ""), f"{{{CODE}}}", f"urn:uuid:{CODE}"]


def api(rows: Any, converter: str, decorate: Decorator) -> type[GenericViewSet[Any]]:
    """Give the viewset of these rows, locked so."""

    class Rows(GenericViewSet[Any]):
        queryset = rows
        lookup_value_converter = converter

        @action(detail=True, methods=["post"])
        @decorate
        def pay(self, request: Request, pk: Any) -> Response:
            self.get_object()
            stay_inside()
            return Response()

    return Rows


def pay(request: HttpRequest, pk: Any) -> HttpResponse:
    get_object_or_404(Ticket, pk=pk)
    stay_inside()
    return HttpResponse()


def routes(name: str, number: str, code: str) -> Any:
    """Give the views by keys of these types, as an API, with a slug and a regular expression."""
    number_lock = redis_lock(f"ticket:<{number}>")
    # Only a router that uses no regular expressions has the route convert anything.
    router, converting = SimpleRouter(), SimpleRouter(use_regex_path=False)
    for one in (router, converting):
        one.register("tickets", api(Ticket.objects.all(), "int", number_lock))
        one.register("parcels", api(Parcel.objects.all(), "uuid", redis_lock(f"parcel:<{code}>")))
    locked = csrf_exempt(number_lock(pay))
    found: list[Any] = [
        path("", include(router.urls)),
        path("converter/", include(converting.urls)),
        path("int/<int:pk>/pay/", locked),
        path("slug/<slug:pk>/pay/", locked),
        re_path(r"^regex/(?P<pk>\d+)/pay/$", locked),
        re_path(r"^group/(\d+)/pay/$", locked),
    ]
    return path(f"{name}/", include(found))


urlpatterns = [routes("text", "pk", "pk"), routes("type", "pk:int", "pk:uuid")]


@pytest.fixture(autouse=True)
def rows() -> None:
    Ticket.objects.create(pk=42, code="a")
    Parcel.objects.create(pk=UUID(CODE))


def post_spellings(server: LiveServer, where: str) -> list[int]:
    """POST to one row by the key itself, twice, and by all other spellings of it, at once."""
    key, *others = UUIDS if "parcels" in where else NUMBERS
    return post_all(server, [f"/{where}/{quote(text)}/pay/" for text in (key, key, *others)])


@pytest.mark.usefixtures("real_cache")
@pytest.mark.parametrize("where", ["tickets", "slug", "regex", "group", "parcels"])
def test_by_its_value_one_row_has_one_key(where: str, live_server: LiveServer) -> None:
    answers = post_spellings(live_server, f"type/{where}")

    assert sorted(answers[:2]) == [200, 409]
    assert set(answers[2:]) == {404}


@pytest.mark.usefixtures("real_cache")
@pytest.mark.parametrize("where", ["converter/tickets", "int", "converter/parcels"])
def test_by_what_the_route_converts_one_row_has_one_key(
    where: str, live_server: LiveServer
) -> None:
    answers = Counter(post_spellings(live_server, f"text/{where}"))

    assert answers[200] == 1
    assert set(answers) == {200, 404, 409}


@pytest.mark.usefixtures("real_cache")
@pytest.mark.parametrize(("where", "inside"), [("tickets", 6), ("slug", 3), ("parcels", 5)])
def test_by_its_text_one_row_has_many_keys(
    where: str, inside: int, live_server: LiveServer
) -> None:
    answers = Counter(post_spellings(live_server, f"text/{where}"))

    assert (answers[200], answers[409]) == (inside, 1)
