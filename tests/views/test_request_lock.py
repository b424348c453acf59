"""``request.lock``, and which requests run under the lock: ``methods`` and the keys of a view."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.decorators import api_view
from rest_framework.request import Request
from rest_framework.response import Response

from django_setnx_lock import LockBusy, lock, redis_lock
from django_setnx_lock.core import LockHandle, MultiLockHandle
from tests.databases import state

if TYPE_CHECKING:
    from django.test import AsyncRequestFactory, RequestFactory

pytestmark = [pytest.mark.urls(__name__), pytest.mark.usefixtures("fake_connections")]


def tell(request: Any, **arguments: Any) -> HttpResponse:
    return HttpResponse(f"{request.lock.key} {request.lock.owned()}")


async def atell(request: Any, pk: int) -> HttpResponse:
    return HttpResponse(f"{request.lock.key} {await request.lock.aowned()}")


@method_decorator(redis_lock("order:<pk>"), name="dispatch")
class Tells(View):
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return tell(self.request)


@api_view(["POST"])
@redis_lock("order:<pk>")
def api_tells(request: Request, pk: int) -> Response:
    return Response(tell(request).content.decode())


def write(request: HttpRequest) -> HttpResponse:
    Group.objects.create(name="x")
    if "fail" in request.GET:
        raise ValueError("no")
    return HttpResponse(f"{connection.in_atomic_block} {hasattr(request, 'lock')}")


urlpatterns = [
    path("view/<int:pk>/", redis_lock("order:<pk>")(tell)),
    path("async/<int:pk>/", redis_lock("order:<pk>")(atell)),
    path("class/<int:pk>/", Tells.as_view()),
    path("api/<int:pk>/", api_tells),
    path("writes/", redis_lock("a", methods=["post", "PUT"])(write)),
]


@pytest.mark.parametrize("where", ["view", "async", "class", "api"])
def test_the_handle_is_at_the_request_while_the_view_runs(where: str) -> None:
    response = Client().post(f"/{where}/42/")

    assert response.content.strip(b'"') == b"order:42 True"


def test_the_handle_is_at_the_request_no_longer_when_the_view_has_ended(rf: RequestFactory) -> None:
    request = rf.post("/")

    redis_lock("order:<pk>")(tell)(request, pk=42)

    assert not hasattr(request, "lock")


def test_of_several_keys_the_handle_is_that_of_all(rf: RequestFactory) -> None:
    @redis_lock("from:<a>", lambda request, a: "to:9")
    def view(request: Any, a: int) -> HttpResponse:
        assert isinstance(request.lock, MultiLockHandle)
        return HttpResponse(" ".join(request.lock.fences))

    assert view(rf.post("/"), a=7).content == b"from:7 to:9"
    with lock("to:9"):
        assert view(rf.post("/"), a=7).status_code == 409
        assert state("from:7") == "open"


def test_in_a_view_that_is_decorated_twice_it_is_the_handle_of_the_inner_lock(
    rf: RequestFactory,
) -> None:
    seen: list[str] = []

    def note(view: Any) -> Any:
        def noting(request: Any) -> HttpResponse:
            response: HttpResponse = view(request)
            seen.append(request.lock.key)
            return response

        return noting

    @redis_lock("outer")
    @note
    @redis_lock("inner")
    def view(request: Any) -> HttpResponse:
        assert isinstance(request.lock, LockHandle)
        seen.append(request.lock.key)
        return HttpResponse()

    view(rf.post("/"))

    assert seen == ["inner", "outer"]


def test_the_handle_can_be_given_away(rf: RequestFactory) -> None:
    tickets: list[str] = []

    @redis_lock("order:<pk>")
    def begin(request: Any, pk: int) -> HttpResponse:
        tickets.append(request.lock.give_away())
        return HttpResponse()

    assert begin(rf.post("/"), pk=42).status_code == 200
    assert state("order:42") == "locked"
    lock("order:42").adopt(tickets[0]).release()
    assert state("order:42") == "open"


@pytest.mark.parametrize(("method", "status"), [("get", 200), ("post", 409), ("put", 409)])
@pytest.mark.django_db
def test_only_the_methods_that_are_named_run_under_the_lock(method: str, status: int) -> None:
    with lock("a"):
        response = getattr(Client(), method)("/writes/")

    assert response.status_code == status


@pytest.mark.django_db(transaction=True)
def test_the_other_methods_have_the_transaction_of_the_request_without_the_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)

    assert Client().get("/writes/").content == b"True False"
    assert Client(raise_request_exception=False).get("/writes/?fail").status_code == 500
    assert Group.objects.count() == 1


def test_a_key_can_be_made_of_the_request(rf: RequestFactory) -> None:
    view = redis_lock(lambda request, pk: f"basket:{request.POST['basket']}:{pk}")(tell)

    assert view(rf.post("/", {"basket": 3}), pk=42).content == b"basket:3:42 True"


def test_a_key_of_a_method_is_made_of_the_request_and_not_of_the_view(rf: RequestFactory) -> None:
    class Orders(View):
        @redis_lock(lambda request, pk: f"{request.method}:{pk}")
        def post(self, request: HttpRequest, pk: int) -> HttpResponse:
            return tell(request)

    response: Any = Orders.as_view()(rf.post("/"), pk=42)

    assert response.content == b"POST:42 True"


def of_nobody(request: Any) -> Any:
    request.user = AnonymousUser()
    return request


@pytest.mark.parametrize("field", ["<user.pk>", "<user.username>", "<request.user.pk>"])
def test_a_key_of_the_user_forbids_a_visitor_who_has_not_logged_in(
    field: str, rf: RequestFactory, async_rf: AsyncRequestFactory
) -> None:
    view, aview = redis_lock(f"cart:{field}")(tell), redis_lock(f"cart:{field}")(atell_of_user)

    with pytest.raises(PermissionDenied):
        view(of_nobody(rf.post("/")))
    with pytest.raises(PermissionDenied):
        asyncio.run(aview(of_nobody(async_rf.post("/"))))


async def atell_of_user(request: Any) -> HttpResponse:
    raise AssertionError("not reached")


def test_a_key_of_the_user_is_of_who_has_logged_in(rf: RequestFactory) -> None:
    request = rf.post("/")
    request.user = User(pk=7)

    assert redis_lock("cart:<user.pk>")(tell)(request).content == b"cart:7 True"


def test_a_view_does_not_take_the_error_of_a_service_for_its_own(rf: RequestFactory) -> None:
    @redis_lock("order:42", on_busy=lambda request, error: HttpResponse("busy"))
    def view(request: HttpRequest) -> HttpResponse:
        with lock("stock", blocking_timeout=0):
            raise AssertionError("not reached")

    with lock("stock"), pytest.raises(LockBusy, match="stock"):
        view(rf.post("/"))
