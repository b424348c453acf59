"""The exception handler: errors of locks in the format of a project's own, as REST framework's.

What each kind of view of REST framework answers, ``tests/views/test_shapes.py`` tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings
from rest_framework.exceptions import NotFound
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnavailable, lock, redis_lock
from django_setnx_lock.contrib.rest_framework import exception_handler

order_lock = redis_lock("order:<pk>")


class Lines(BaseRenderer):
    """Another format than JSON."""

    media_type = "text/x-lines"
    format = "lines"

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        return "".join(f"{name}={data[name]}\n" for name in data).encode()


def own_format(exc: Exception, context: dict[str, Any]) -> Response | None:
    """Answer errors as the project of these tests does."""
    response = exception_handler(exc, context)
    if response is not None:
        detail = response.data["detail"]
        response.data = {"code": detail.code, "message": detail}
    return response


class Pay(APIView):
    renderer_classes = [JSONRenderer, Lines]  # noqa: RUF012 - as a project writes it

    @order_lock
    def post(self, request: Request, pk: int) -> Response:
        return Response({"paid": pk})


class Fails(APIView):
    """Raises the ``error`` it is made with, as a service would."""

    error: Exception = NotFound()

    def post(self, request: Request, pk: int) -> Response:
        raise self.error


@pytest.fixture(autouse=True)
def project() -> Iterator[None]:
    handler = f"{__name__}.own_format"
    with override_settings(REST_FRAMEWORK={"EXCEPTION_HANDLER": handler}):
        assert api_settings.EXCEPTION_HANDLER is own_format
        yield


def post(view: Any, accept: str = "application/json") -> Any:
    response = view(APIRequestFactory().post("/", headers={"accept": accept}), pk=42)
    return response.render() if hasattr(response, "render") else response


@pytest.mark.parametrize(
    ("error", "status", "retry_after", "code"),
    [
        (LockBusy("busy", key="order:42", remaining=1.0), 409, "1", "lock_busy"),
        (LockUnavailable("away", key="order:42"), 503, "5", "lock_unavailable"),
        (LockLost("lost", key="order:42"), 503, None, "lock_lost"),
    ],
)
def test_what_a_service_raises_is_answered_in_the_own_format(
    error: LockError, status: int, retry_after: str | None, code: str
) -> None:
    response = post(Fails.as_view(error=error))

    assert (response.status_code, response.headers.get("Retry-After")) == (status, retry_after)
    assert response.data["code"] == code
    assert "order" not in response.data["message"]


def test_the_renderer_of_a_busy_answer_is_the_one_that_was_negotiated() -> None:
    with lock("order:42"):
        response = post(Pay.as_view(), "text/x-lines")

    assert response["Content-Type"].startswith("text/x-lines")
    assert response.content.startswith(b"code=lock_busy\n")


def test_answers_of_the_views_own_are_given_in_their_place() -> None:
    class Own(APIView):
        @redis_lock("order:<pk>", on_busy=lambda request, error: Response({"own": 1}, status=423))
        def post(self, request: Request, pk: int) -> Response:
            return Response({"paid": pk})

    with lock("order:42"):
        assert post(Own.as_view()).status_code == 423


def test_around_the_whole_view_the_lock_is_answered_without_the_handler() -> None:
    with lock("order:42"):
        response = post(order_lock(Pay.as_view()))

    assert (response.status_code, response["Content-Type"]) == (409, "application/json")


@override_settings(REST_FRAMEWORK={})
def test_without_the_exception_handler_the_middleware_has_it() -> None:
    with lock("order:42"), pytest.raises(LockBusy):
        post(Pay.as_view(), "text/x-lines")


def test_other_exceptions_are_left_to_rest_framework() -> None:
    assert post(Fails.as_view()).status_code == 404
    with pytest.raises(KeyError):
        post(Fails.as_view(error=KeyError(42)))
