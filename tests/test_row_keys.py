"""Text that is another spelling of a value, given to what is locked by the value."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.decorators import action, api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_setnx_lock import lock, locked, redis_lock
from django_setnx_lock.signals import lock_acquired

if TYPE_CHECKING:
    from tests.servers import FakeServer

pytestmark = [pytest.mark.urls(__name__), pytest.mark.usefixtures("fake_connections")]

CODE = uuid.UUID("c0ffee00-1234-4abc-8def-0123456789ab")

by_type = redis_lock("ticket:<pk:int>")


def seen(pk: Any) -> str:
    return f"{type(pk).__name__} {'locked' if lock(f'ticket:{pk}').locked() else 'open'}"


@by_type
def function(request: HttpRequest, pk: Any) -> HttpResponse:
    return HttpResponse(seen(pk))


@by_type
async def coroutine(request: HttpRequest, pk: Any) -> HttpResponse:
    return HttpResponse(f"str {'locked' if await lock(f'ticket:{pk}').alocked() else 'open'}")


@method_decorator(by_type, name="dispatch")
class ByDispatch(View):
    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return HttpResponse(seen(kwargs["pk"]))


class ByMethod(View):
    @by_type
    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return HttpResponse(seen(kwargs["pk"]))


class Unlocked(View):
    def post(self, request: HttpRequest, pk: Any) -> HttpResponse:
        return HttpResponse(seen(pk))


@api_view(["POST"])
@by_type
def by_api_view(request: Request, pk: Any) -> Response:
    return Response(seen(pk))


class ApiMethod(APIView):
    @by_type
    def post(self, request: Request, pk: Any) -> Response:
        return Response(seen(pk))


class Tickets(ViewSet):
    @action(detail=True, methods=["post"])
    @by_type
    def pay(self, request: Request, pk: Any) -> Response:
        return Response(seen(pk))


router = SimpleRouter()
router.register("viewset", Tickets, basename="ticket")

urlpatterns = [
    path("function/<pk>/pay/", function),
    path("coroutine/<pk>/pay/", coroutine),
    path("dispatch/<pk>/pay/", ByDispatch.as_view()),
    path("method/<pk>/pay/", ByMethod.as_view()),
    path("as-view/<pk>/pay/", by_type(Unlocked.as_view())),
    path("api-view/<pk>/pay/", by_api_view),
    path("api-method/<pk>/pay/", ApiMethod.as_view()),
    path("", include(router.urls)),
]
each_view = pytest.mark.parametrize(
    "where",
    [
        *("function", "coroutine", "dispatch", "method", "as-view"),
        *("api-view", "api-method", "viewset"),
    ],
)


@each_view
def test_a_view_runs_under_the_lock_of_the_value(where: str, client: Client) -> None:
    response = client.post(f"/{where}/42/pay/")

    assert response.content.strip(b'"') == b"str locked"


@each_view
@pytest.mark.parametrize("text", ["042", "abc"])
def test_another_text_is_404_before_redis_is_asked(
    where: str, text: str, client: Client, fake_server: FakeServer
) -> None:
    fake_server.connected = False

    assert client.post(f"/{where}/{text}/pay/").status_code == 404
    assert client.post(f"/{where}/42/pay/").status_code == 503


def test_it_is_404_under_asgi_too() -> None:
    async def post(text: str) -> int:
        return (await AsyncClient().post(f"/coroutine/{text}/pay/")).status_code

    assert asyncio.run(post("042")) == 404


def test_the_404_of_an_api_says_what_is_to_be_written(client: Client) -> None:
    response = client.post("/viewset/042/pay/", headers={"accept": "application/json"})

    assert response.json() == {"detail": "<pk> is '042', and has to be written '42'"}


def test_signals_carry_the_template_without_types() -> None:
    told: list[str] = []

    def note(template: str, **kwargs: Any) -> None:
        told.append(template)

    lock_acquired.connect(note)
    try:
        function(RequestFactory().post("/"), pk="42")
    finally:
        lock_acquired.disconnect(note)

    assert told[0] == "ticket:<pk>"


def test_a_busy_row_is_409_by_its_key_only(client: Client) -> None:
    with lock("ticket:42"):
        assert client.post("/function/42/pay/").status_code == 409
        assert client.post("/function/042/pay/").status_code == 404


def test_a_value_of_another_type_is_a_mistake_and_no_404() -> None:
    with pytest.raises(TypeError, match="<pk> is UUID"):
        function(RequestFactory().post("/"), pk=CODE)


def test_a_function_raises_value_error() -> None:
    @locked("ticket:<pk:int>")
    def pay(pk: Any) -> str:
        return seen(pk)

    assert pay("42") == "str locked"
    assert pay(42) == "int locked"
    with pytest.raises(ValueError, match="<pk> is '042', and has to be written '42'"):
        pay("042")
    with pytest.raises(ValueError, match="<pk> is 'x': "):
        pay("x")


def test_a_coroutine_function_raises_value_error() -> None:
    @locked("ticket:<pk:int>")
    async def pay(pk: Any) -> None: ...

    with pytest.raises(ValueError, match="<pk> is '042'"):
        asyncio.run(pay("042"))
