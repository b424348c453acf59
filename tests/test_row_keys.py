"""Text that is another spelling of a value, given to what is locked by the value."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from django.db import models
from django.http import Http404, HttpRequest, HttpResponse
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

from django_setnx_lock import inspector, lock, redis_lock
from django_setnx_lock.contrib.rest_framework import redis_lock as api_lock
from django_setnx_lock.signals import lock_acquired
from tests.rows.models import Label, Parcel, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import FakeServer

pytestmark = [pytest.mark.urls(__name__), pytest.mark.usefixtures("fake_connections")]

CODE = uuid.UUID("c0ffee00-1234-4abc-8def-0123456789ab")

by_type = redis_lock("ticket:<pk:int>")
by_model = redis_lock("ticket:<pk>", model=Ticket)


def seen(pk: Any) -> str:
    return f"{type(pk).__name__} {'locked' if lock(f'ticket:{pk}').locked() else 'open'}"


@by_type
def function(request: HttpRequest, pk: Any) -> HttpResponse:
    return HttpResponse(seen(pk))


@by_model
def of_model(request: HttpRequest, pk: Any) -> HttpResponse:
    return HttpResponse(seen(pk))


@by_type
async def coroutine(request: HttpRequest, pk: Any) -> HttpResponse:
    return HttpResponse(f"str {'locked' if await lock(f'ticket:{pk}').alocked() else 'open'}")


@method_decorator(by_type, name="dispatch")
class ByDispatch(View):
    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return HttpResponse(seen(kwargs["pk"]))


class ByMethod(View):
    @by_model
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
    @api_lock("ticket:<pk>", model=Ticket)
    def post(self, request: Request, pk: Any) -> Response:
        return Response(seen(pk))


class Tickets(ViewSet):
    @action(detail=True, methods=["post"])
    @api_lock("ticket:<pk:int>")
    def pay(self, request: Request, pk: Any) -> Response:
        return Response(seen(pk))


router = SimpleRouter()
router.register("viewset", Tickets, basename="ticket")

urlpatterns = [
    path("function/<pk>/pay/", function),
    path("model/<pk>/pay/", of_model),
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
        *("function", "model", "coroutine", "dispatch", "method", "as-view"),
        *("api-view", "api-method", "viewset"),
    ],
)


@each_view
def test_a_view_runs_under_the_lock_of_the_value(where: str, client: Client) -> None:
    response = client.post(f"/{where}/42/pay/")

    assert response.content.strip(b'"') == b"str locked"


@each_view
def test_another_spelling_is_404(where: str, client: Client) -> None:
    assert client.post(f"/{where}/042/pay/").status_code == 404


@each_view
def test_a_text_that_is_no_value_is_404(where: str, client: Client) -> None:
    assert client.post(f"/{where}/abc/pay/").status_code == 404


@each_view
def test_it_is_404_before_redis_is_asked(
    where: str, client: Client, fake_server: FakeServer
) -> None:
    fake_server.connected = False

    assert client.post(f"/{where}/042/pay/").status_code == 404
    assert client.post(f"/{where}/42/pay/").status_code == 503


def test_it_is_404_under_asgi_too() -> None:
    async def post(text: str) -> int:
        return (await AsyncClient().post(f"/coroutine/{text}/pay/")).status_code

    assert asyncio.run(post("042")) == 404


def test_the_404_of_an_api_says_what_is_to_be_written(client: Client) -> None:
    response = client.post("/viewset/042/pay/", headers={"accept": "application/json"})

    assert response.json() == {"detail": "<pk> is '042', and has to be written '42'"}


def test_signals_carry_the_template_as_it_is_written() -> None:
    told: list[str] = []

    def note(template: str, **kwargs: Any) -> None:
        told.append(template)

    lock_acquired.connect(note)
    try:
        function(RequestFactory().post("/"), pk="42")
    finally:
        lock_acquired.disconnect(note)

    assert told[0] == "ticket:<pk:int>"


def test_a_busy_row_is_409_by_its_key_only(client: Client) -> None:
    with lock("ticket:42"):
        assert client.post("/function/42/pay/").status_code == 409
        assert client.post("/function/042/pay/").status_code == 404


def test_a_value_of_another_type_is_a_mistake_and_no_404() -> None:
    with pytest.raises(TypeError, match="<pk> is UUID"):
        function(RequestFactory().post("/"), pk=CODE)


@pytest.mark.parametrize("decorate", [by_type, by_model], ids=["type", "model"])
def test_a_function_raises_value_error(decorate: Callable[..., Any]) -> None:
    @decorate
    def pay(pk: Any) -> str:
        return seen(pk)

    assert pay("42") == "str locked"
    assert pay(42) == "int locked"
    with pytest.raises(ValueError, match="<pk> is '042', and has to be written '42'"):
        pay("042")
    with pytest.raises(ValueError, match="<pk> is 'x': "):
        pay("x")


def test_a_coroutine_function_raises_value_error() -> None:
    @by_type
    async def pay(pk: Any) -> None: ...

    with pytest.raises(ValueError, match="<pk> is '042'"):
        asyncio.run(pay("042"))


def key_of(decorate: Callable[..., Any], **values: Any) -> str:
    """Return the key of a view that is decorated so; raises Http404."""
    keys: list[str] = []

    @decorate
    def view(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        keys.extend(one.key for one in inspector().page().locks)
        return HttpResponse()

    view(RequestFactory().post("/"), **values)
    (key,) = keys
    return key


@pytest.mark.parametrize(
    ("template", "model", "value", "key"),
    [
        ("a:<pk>", Ticket, "42", "a:42"),
        ("a:<pk>", Ticket, 42, "a:42"),
        ("a:<id>", Ticket, "42", "a:42"),
        ("a:<code>", Ticket, "x-Y", "a:x-Y"),
        ("a:<pk>", Parcel, str(CODE), f"a:{CODE}"),
        ("a:<pk>", Parcel, CODE, f"a:{CODE}"),
        ("a:<pk>", Label, str(CODE), f"a:{CODE}"),
        ("a:<parcel>", Label, str(CODE), f"a:{CODE}"),
        ("a:<parcel_id>", Label, CODE, f"a:{CODE}"),
    ],
    ids=repr,
)
def test_the_key_is_made_of_the_value_of_the_field(
    template: str, model: type[models.Model], value: object, key: str
) -> None:
    name = template[3:-1]

    assert key_of(redis_lock(template, model=model), **{name: value}) == key


@pytest.mark.parametrize("name", ["pk", "parcel", "parcel_id"])
def test_the_field_of_another_models_key_is_read_as_that_is(name: str) -> None:
    decorate = redis_lock(f"a:<{name}>", model=Label)

    with pytest.raises(Http404, match=f"has to be written '{CODE}'"):
        key_of(decorate, **{name: CODE.hex})


def test_beside_a_model_a_type_and_an_attribute_are_as_ever() -> None:
    decorate = redis_lock("<pk>:<day:str>:<request.method>", model=Ticket)

    assert key_of(decorate, pk="7", day="007") == "7:007:POST"


def test_none_is_refused_for_a_field_too() -> None:
    with pytest.raises(ValueError, match="<pk> is None"):
        key_of(by_model, pk=None)


def test_an_instance_is_refused_for_a_field_with_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"write <pk\.pk>"):
        key_of(by_model, pk=Ticket(pk=42))


class Abstract(models.Model):
    class Meta:
        app_label = "rows"
        abstract = True


@pytest.mark.parametrize("model", ["rows.Ticket", Abstract, Ticket(), dict])
def test_what_is_no_model_with_rows_is_refused_at_once(model: Any) -> None:
    with pytest.raises(TypeError, match="model is a class of a model that has a table, not "):
        redis_lock("a:<pk>", model=model)


@pytest.mark.parametrize("template", ["a", "a:<pk:int>", "a:<user.pk>"])
def test_a_model_that_no_field_is_taken_of_is_refused_at_once(template: str) -> None:
    with pytest.raises(ValueError, match=r"names no field of rows\.Ticket; leave model out"):
        redis_lock(template, model=Ticket)


def test_a_name_that_is_no_field_of_the_model_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"no field of rows.Ticket; .* as in <ticket_id:int>"):
        redis_lock("a:<ticket_id>", model=Ticket)


def test_a_field_of_which_one_value_has_several_texts_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="<weight>, a DecimalField, whose values have several"):
        redis_lock("a:<weight>", model=Label)


def test_a_relation_without_a_column_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="<label>, which is no single column of "):
        redis_lock("a:<label>", model=Parcel)
