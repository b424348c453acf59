"""Text that is another spelling of a value, given to what is locked by the value."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory
from django.urls import path
from rest_framework.decorators import api_view
from rest_framework.request import Request
from rest_framework.response import Response

from django_setnx_lock import lock, locked, redis_lock
from django_setnx_lock.views import LockedViewMixin
from tests.views.shapes import Posts

if TYPE_CHECKING:
    from tests.servers import FakeServer

pytestmark = [pytest.mark.urls(__name__), pytest.mark.usefixtures("fake_connections")]

by_type = redis_lock("ticket:<pk:int>")


def seen(pk: Any) -> str:
    return f"{type(pk).__name__} {'locked' if lock(f'ticket:{pk}').locked() else 'open'}"


@by_type
def function(request: HttpRequest, pk: Any) -> HttpResponse:
    return HttpResponse(seen(pk))


@by_type
async def coroutine(request: HttpRequest, pk: Any) -> HttpResponse:
    return HttpResponse(f"str {'locked' if await lock(f'ticket:{pk}').alocked() else 'open'}")


class ByMixin(LockedViewMixin, Posts):
    lock_key = "ticket:<pk:int>"

    def post(self, request: HttpRequest, pk: Any) -> HttpResponse:
        return HttpResponse(seen(pk))


@api_view(["POST"])
@by_type
def by_api_view(request: Request, pk: Any) -> Response:
    return Response(seen(pk))


VIEWS = {
    "function": function,
    "coroutine": coroutine,
    "mixin": ByMixin.as_view(),
    "api": by_api_view,
}
urlpatterns = [path(f"{name}/<pk>/", view) for name, view in VIEWS.items()]


@pytest.mark.parametrize("where", VIEWS)
def test_a_view_is_locked_by_the_value_and_404_for_another_spelling(
    where: str, client: Client, fake_server: FakeServer
) -> None:
    response = client.post(f"/{where}/42/")
    fake_server.connected = False
    statuses = {text: client.post(f"/{where}/{text}/").status_code for text in ("042", "abc", "42")}

    assert response.content.strip(b'"') == b"str locked"
    # Redis is not asked for what is no row.
    assert statuses == {"042": 404, "abc": 404, "42": 503}


def test_the_404_of_an_api_says_what_is_to_be_written(client: Client) -> None:
    response = client.post("/api/042/", headers={"accept": "application/json"})

    assert response.json() == {"detail": "<pk> is '042', and has to be written '42'"}


def test_a_value_of_another_type_is_a_mistake_and_no_404() -> None:
    with pytest.raises(TypeError, match="<pk> is UUID"):
        function(RequestFactory().post("/"), pk=uuid.uuid4())


@locked("ticket:<pk:int>")
def pay(pk: Any) -> str:
    return seen(pk)


@locked("ticket:<pk:int>")
async def apay(pk: Any) -> None: ...


def test_a_function_raises_value_error() -> None:
    assert (pay("42"), pay(42)) == ("str locked", "int locked")
    for call in (lambda: pay("042"), lambda: asyncio.run(apay("042"))):
        with pytest.raises(ValueError, match="<pk> is '042', and has to be written '42'"):
            call()
    with pytest.raises(ValueError, match="<pk> is 'x': "):
        pay("x")
