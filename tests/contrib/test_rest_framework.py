"""The decorator on each kind of REST framework view, where errors have a format of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import override_settings
from django.utils.decorators import method_decorator
from rest_framework.decorators import action, api_view, renderer_classes
from rest_framework.exceptions import NotFound
from rest_framework.generics import GenericAPIView
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_setnx_lock import LockBusy, LockUnavailable, lock, redis_lock
from django_setnx_lock.contrib.rest_framework import exception_handler
from tests.servers import FakeServer

order_lock = redis_lock("order:<pk>")


class Lines(BaseRenderer):
    """Another format than JSON."""

    media_type = "text/x-lines"
    format = "lines"

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        return "".join(f"{name}={data[name]}\n" for name in data).encode()


RENDERERS = [JSONRenderer, Lines]


def own_format(exc: Exception, context: dict[str, Any]) -> Response | None:
    """Answer errors as the project of these tests does."""
    response = exception_handler(exc, context)
    if response is not None:
        detail = response.data["detail"]
        response.data = {"code": detail.code, "message": detail}
    return response


@api_view(["POST"])
@renderer_classes(RENDERERS)
@order_lock
def by_function(request: Request, pk: int) -> Response:
    return Response({"paid": pk})


class ByMethod(APIView):
    renderer_classes = RENDERERS

    @order_lock
    def post(self, request: Request, pk: int) -> Response:
        return Response({"paid": pk})


class ByGeneric(GenericAPIView[Any]):
    renderer_classes = RENDERERS

    @method_decorator(order_lock)
    def post(self, request: Request, pk: int) -> Response:
        return Response({"paid": pk})


class ByAction(ViewSet):
    renderer_classes = RENDERERS

    @action(detail=True, methods=["post"])
    @order_lock
    def pay(self, request: Request, pk: int) -> Response:
        return Response({"paid": pk})


VIEWS: dict[str, Any] = {
    "function": by_function,
    "method": ByMethod.as_view(),
    "generic": ByGeneric.as_view(),
    "action": ByAction.as_view({"post": "pay"}),
}
each_view = pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)


@pytest.fixture(autouse=True)
def project() -> Iterator[None]:
    handler = f"{__name__}.own_format"
    with override_settings(REST_FRAMEWORK={"EXCEPTION_HANDLER": handler}):
        assert api_settings.EXCEPTION_HANDLER is own_format
        yield


def post(view: Any, accept: str = "application/json") -> Any:
    response = view(APIRequestFactory().post("/", headers={"accept": accept}), pk=42)
    return response.render() if hasattr(response, "render") else response


@each_view
def test_a_free_lock_lets_the_view_answer(view: Callable[..., Any]) -> None:
    assert post(view).data == {"paid": 42}


@each_view
def test_a_busy_lock_is_409_in_the_own_format(view: Callable[..., Any]) -> None:
    with lock("order:42", timeout=7):
        response = post(view)

    assert response.status_code == 409
    assert 1 <= int(response["Retry-After"]) <= 7
    assert response.data["code"] == "lock_busy"
    assert response.data["message"].startswith("Somebody else is working on this")


@each_view
def test_the_renderer_is_the_one_that_was_negotiated(view: Callable[..., Any]) -> None:
    with lock("order:42"):
        response = post(view, "text/x-lines")

    assert response["Content-Type"].startswith("text/x-lines")
    assert response.content.startswith(b"code=lock_busy\n")


@each_view
def test_a_redis_that_cannot_say_is_503(view: Callable[..., Any], fake_server: FakeServer) -> None:
    fake_server.connected = False

    response = post(view)

    assert response.status_code == 503
    assert response["Retry-After"] == "5"
    assert response.data["code"] == "lock_unavailable"


def test_a_lock_lost_on_the_way_is_503_and_asks_nobody_to_try_again(
    fake_server: FakeServer,
) -> None:
    class Losing(APIView):
        @order_lock
        def post(self, request: Request, pk: int) -> Response:
            fake_server.client().delete("lock:order:42")
            return Response({"paid": pk})

    response = post(Losing.as_view())

    assert response.status_code == 503
    assert "Retry-After" not in response.headers
    assert response.data["code"] == "lock_lost"
    assert response.data["message"].startswith("This may have been done or not")


def test_what_is_said_names_neither_key_nor_holder() -> None:
    with lock("order:42", label="secret"):
        said = post(by_function).content.decode()

    assert "order" not in said
    assert "secret" not in said


def test_answers_of_the_views_own_are_given_in_their_place() -> None:
    class Own(APIView):
        @redis_lock("order:<pk>", on_busy=lambda request, error: Response({"own": 1}, status=423))
        def post(self, request: Request, pk: int) -> Response:
            return Response({"paid": pk})

    with lock("order:42"):
        assert post(Own.as_view()).status_code == 423


@pytest.mark.parametrize("connected", [True, False])
def test_around_the_whole_view_it_answers_as_ever(connected: bool, fake_server: FakeServer) -> None:
    with lock("order:42"):
        fake_server.connected = connected
        response = post(order_lock(VIEWS["method"]))
        fake_server.connected = True

    assert response.status_code == (409 if connected else 503)
    assert response["Content-Type"] == "application/json"


@pytest.mark.parametrize("connected", [True, False])
def test_without_the_exception_handler_the_middleware_has_it(
    connected: bool, fake_server: FakeServer
) -> None:
    with override_settings(REST_FRAMEWORK={}), lock("order:42"):
        fake_server.connected = connected
        with pytest.raises(LockBusy if connected else LockUnavailable):
            post(by_function, "text/x-lines")
        fake_server.connected = True


def test_what_a_service_raises_is_answered_in_the_own_format() -> None:
    class Deep(APIView):
        def post(self, request: Request, pk: int) -> Response:
            with lock(f"order:{pk}", blocking_timeout=0):
                raise AssertionError("not reached")

    with lock("order:42"):
        response = post(Deep.as_view())

    assert (response.status_code, response.data["code"]) == (409, "lock_busy")
    assert 1 <= int(response["Retry-After"]) <= 2


def test_other_exceptions_are_left_to_rest_framework() -> None:
    class Fails(APIView):
        def post(self, request: Request, pk: int) -> Response:
            raise NotFound

    class Breaks(APIView):
        def post(self, request: Request, pk: int) -> Response:
            raise KeyError(pk)

    assert post(Fails.as_view()).status_code == 404
    with pytest.raises(KeyError):
        post(Breaks.as_view())
