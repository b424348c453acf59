from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings
from django.urls import include, path
from django.utils.decorators import method_decorator
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action, api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_setnx_lock.contrib.rest_framework import redis_lock

order_lock = redis_lock("order:<pk>")


def patterns() -> list[Any]:
    """Routes of views, which are made as drf-spectacular is set up at the time."""

    @extend_schema(request=None, responses={200: str})
    @api_view(["POST"])
    @order_lock
    def by_function(request: Request, pk: int) -> Response:
        return Response("paid")

    class ByMethod(APIView):
        @extend_schema(responses={200: str})
        def get(self, request: Request, pk: int) -> Response:
            return Response("unpaid")

        @extend_schema(request=None, responses={200: str})
        @order_lock
        def post(self, request: Request, pk: int) -> Response:
            return Response("paid")

        @extend_schema(request=None, responses={200: str, 409: str})
        @order_lock
        def put(self, request: Request, pk: int) -> Response:
            return Response("paid")

    @method_decorator(order_lock, name="dispatch")
    class ByDispatch(APIView):
        @extend_schema(request=None, responses={200: str})
        def post(self, request: Request, pk: int) -> Response:
            return Response("paid")

    class ByAction(ViewSet):
        @extend_schema(request=None, responses={200: str})
        @action(detail=True, methods=["post"])
        @order_lock
        def pay(self, request: Request, pk: int) -> Response:
            return Response("paid")

        @extend_schema(request=None, responses={200: str})
        @action(detail=True, methods=["post"])
        def look(self, request: Request, pk: int) -> Response:
            return Response("unpaid")

    router = SimpleRouter()
    router.register("action", ByAction, basename="action")
    return [
        path("function/<int:pk>/", by_function),
        path("method/<int:pk>/", ByMethod.as_view()),
        path("dispatch/<int:pk>/", ByDispatch.as_view()),
        path("", include(router.urls)),
    ]


@pytest.fixture(params=["django_setnx_lock.contrib.spectacular.AutoSchema"])
def schema(request: pytest.FixtureRequest) -> Any:
    """Give the paths of a schema that is made with the class that is the param."""
    with override_settings(REST_FRAMEWORK={"DEFAULT_SCHEMA_CLASS": request.param}):
        generator: Any = SchemaGenerator  # which has no types
        return generator(patterns=patterns()).get_schema(request=None, public=True)["paths"]


LOCKED = [
    ("/function/{id}/", "post"),
    ("/method/{id}/", "post"),
    ("/dispatch/{id}/", "post"),
    ("/action/{id}/pay/", "post"),
]


@pytest.mark.parametrize(("address", "method"), LOCKED)
def test_a_locked_view_says_when_it_is_busy_and_unavailable(
    schema: Any, address: str, method: str
) -> None:
    responses = schema[address][method]["responses"]

    assert set(responses) == {"200", "409", "503"}
    assert responses["409"]["description"].startswith("Somebody else")
    assert responses["503"]["headers"]["Retry-After"]["schema"]["type"] == "integer"


@pytest.mark.parametrize("schema", ["drf_spectacular.openapi.AutoSchema"], indirect=True)
@pytest.mark.parametrize(("address", "method"), LOCKED)
def test_without_it_the_schema_says_nothing_of_that(schema: Any, address: str, method: str) -> None:
    assert set(schema[address][method]["responses"]) == {"200"}


@pytest.mark.parametrize(
    ("address", "method"), [("/method/{id}/", "get"), ("/action/{id}/look/", "post")]
)
def test_a_view_that_takes_no_lock_says_nothing_of_it(
    schema: Any, address: str, method: str
) -> None:
    assert set(schema[address][method]["responses"]) == {"200"}


def test_what_a_view_says_itself_stays(schema: Any) -> None:
    responses = schema["/method/{id}/"]["put"]["responses"]

    assert "content" in responses["409"]
    assert "503" in responses
