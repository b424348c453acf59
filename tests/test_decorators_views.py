from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest, HttpResponse
from django.test import Client

from django_setnx_lock import lock, redis_lock
from django_setnx_lock.core.locks.mailbox import Mailbox
from django_setnx_lock.key_template import MissingValue
from tests.views_urls import ROUTES, ByDispatch, ByMethod, seen

if TYPE_CHECKING:
    from django.test import RequestFactory

    from tests.servers import FakeServer

pytestmark = pytest.mark.urls("tests.views_urls")


@pytest.mark.parametrize("route", ROUTES)
def test_every_kind_of_view_runs_under_its_lock(route: str) -> None:
    response = Client().post(f"/{route}")

    assert response.status_code == 200
    assert b"locked" in response.content


@pytest.mark.parametrize("route", ROUTES)
def test_every_kind_of_view_answers_409_while_its_lock_is_held(route: str) -> None:
    with lock("order:42"):
        response = Client().post(f"/{route}")

    assert response.status_code == 409


@pytest.mark.parametrize("route", ROUTES)
def test_no_kind_of_view_waits_by_itself(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(_mailbox: Mailbox, _token: str, seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(Mailbox, "sleep", sleep)

    with lock("order:42"):
        Client().post(f"/{route}")

    assert waits == []


@pytest.mark.parametrize("route", ROUTES)
def test_nothing_is_locked_after_any_kind_of_view(route: str) -> None:
    Client().post(f"/{route}")

    assert not lock("order:42").locked()


def test_a_method_that_is_not_named_runs_without_the_lock() -> None:
    response = Client().get("/named-method/42/")

    assert response.content == b"open"


def test_another_order_is_another_lock() -> None:
    with lock("order:42"):
        response = Client().post("/function/43/")

    assert response.status_code == 200


def test_a_view_waits_when_told_to_and_only_so_long(rf: RequestFactory) -> None:
    @redis_lock("order:<pk>", blocking_timeout=5)
    def pay(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(seen(pk))

    lock("order:42", timeout=1, renew=False).take(0)
    response = pay(rf.post("/"), 42)

    assert response.content == b"locked"


def test_a_key_can_name_attributes_of_the_request(rf: RequestFactory) -> None:
    @redis_lock("cart:<user.pk>")
    def check_out(request: HttpRequest) -> HttpResponse:
        return HttpResponse(str(lock("cart:7").locked()))

    request = rf.post("/")
    request.user = User(pk=7)

    assert check_out(request).content == b"True"


def test_an_argument_goes_before_an_attribute_of_the_request(rf: RequestFactory) -> None:
    @redis_lock("cart:<user.pk>")
    def check_out(request: HttpRequest, user: User) -> HttpResponse:
        return HttpResponse(str(lock("cart:8").locked()))

    request = rf.post("/")
    request.user = User(pk=7)

    assert check_out(request, user=User(pk=8)).content == b"True"


def test_a_key_can_name_the_request_whatever_the_view_calls_it(rf: RequestFactory) -> None:
    @redis_lock("by:<request.method>")
    def view(req: HttpRequest) -> HttpResponse:
        return HttpResponse(str(lock("by:POST").locked()))

    assert view(rf.post("/")).content == b"True"


def test_a_visitor_without_a_user_does_not_share_a_lock_with_all_others(
    rf: RequestFactory,
) -> None:
    @redis_lock("cart:<user.pk>")
    def check_out(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    request = rf.post("/")
    request.user = AnonymousUser()

    with pytest.raises(ValueError, match=r"<user\.pk> is None"):
        check_out(request)


def test_an_attribute_that_the_request_lacks_is_named_in_the_error(rf: RequestFactory) -> None:
    @redis_lock("shop:<tenant.pk>")
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    with pytest.raises(MissingValue, match=r"<tenant\.pk>"):
        view(rf.post("/"))


def test_the_body_of_the_request_is_left_for_the_view(rf: RequestFactory) -> None:
    @redis_lock("order:<pk>")
    def upload(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(request.read(4))

    response = upload(rf.post("/", b"data and more", content_type="text/plain"), pk=1)

    assert response.content == b"data"


def test_the_body_of_the_request_is_left_unread_by_the_busy_answer(rf: RequestFactory) -> None:
    @redis_lock("order:<pk>")
    def upload(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse()

    request = rf.post("/", b"data", content_type="text/plain")
    with lock("order:1"):
        upload(request, pk=1)

    assert request.read() == b"data"


def test_a_page_under_csrf_protection_answers_403_before_the_lock_is_asked(
    fake_server: FakeServer,
) -> None:
    fake_server.connected = False

    response = Client(enforce_csrf_checks=True).post("/function/42/")

    assert response.status_code == 403


def test_a_decorated_class_keeps_its_methods_introspectable() -> None:
    assert ByMethod.post.__name__ == "post"
    assert ByDispatch.dispatch.__name__ == "dispatch"
