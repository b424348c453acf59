from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.utils.decorators import method_decorator
from django.utils.functional import SimpleLazyObject
from django.views import View

from django_setnx_lock import LockBusy, lock, redis_lock
from django_setnx_lock.core import Holder

if TYPE_CHECKING:
    from django.http import HttpResponseBase
    from django.test import RequestFactory

pytestmark = pytest.mark.urls("tests.views_urls")


def holder_of(key: str) -> Holder:
    with pytest.raises(LockBusy) as caught:
        lock(key).take(0)
    assert caught.value.holder is not None
    return caught.value.holder


def body_of(response: HttpResponseBase) -> bytes:
    assert isinstance(response, HttpResponse)
    return response.content


def test_the_holder_record_names_the_view_and_the_note(rf: RequestFactory) -> None:
    @redis_lock("order:<pk>", note="till 3")
    def pay(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(str(holder_of("order:42")))

    response = pay(rf.post("/"), pk=42)

    assert f"(view {__name__}.{pay.__qualname__}; till 3)" in response.content.decode()


def test_the_holder_record_names_the_class_behind_a_decorated_method(rf: RequestFactory) -> None:
    @method_decorator(redis_lock("order:<pk>"), name="dispatch")
    class Pay(View):
        def post(self, request: HttpRequest, pk: int) -> HttpResponse:
            return HttpResponse(holder_of("order:42").label)

    response = Pay.as_view()(rf.post("/"), pk=42)

    assert body_of(response).decode() == f"view {__name__}.{Pay.__qualname__}.dispatch"


def test_the_label_can_be_chosen(rf: RequestFactory) -> None:
    @redis_lock("order:<pk>", label="payment")
    def pay(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(holder_of("order:42").label)

    assert pay(rf.post("/"), 42).content == b"payment"


@redis_lock("order:42")
def tell_user(request: HttpRequest) -> HttpResponse:
    return HttpResponse(holder_of("order:42").user)


def test_the_holder_record_names_a_user_who_was_looked_up_already(rf: RequestFactory) -> None:
    request = rf.post("/")
    request._cached_user = User(username="ann")  # type: ignore[attr-defined]  # as auth does
    request.user = SimpleLazyObject(lambda: get_user(request))  # type: ignore[assignment]  # as auth does

    assert tell_user(request).content == b"ann"


def test_the_holder_record_names_a_user_whom_a_middleware_set(rf: RequestFactory) -> None:
    request = rf.post("/")
    request.user = User(username="ann")

    assert tell_user(request).content == b"ann"


def test_a_user_is_not_looked_up_for_the_holder_record(rf: RequestFactory) -> None:
    looked_up: list[str] = []
    request = rf.post("/")
    request.user = SimpleLazyObject(lambda: looked_up.append("user"))  # type: ignore[assignment]  # as auth does

    response = tell_user(request)

    assert (response.content, looked_up) == (b"", [])


def test_a_busy_page_does_not_vary_on_the_cookie() -> None:
    with lock("order:42"):
        response = Client().post("/function/42/")

    assert response["Vary"] == "Accept"
