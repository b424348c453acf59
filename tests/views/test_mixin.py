"""``LockedViewMixin``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.mixins import LoginRequiredMixin
from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import AsyncClient, Client
from django.urls import path
from django.views import View

from django_setnx_lock import lock
from django_setnx_lock.views import LockedViewMixin
from tests.databases import state

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from django.test import RequestFactory

pytestmark = [pytest.mark.urls(__name__), pytest.mark.usefixtures("fake_connections")]


class Posts(LockedViewMixin, View):
    lock_key = "group:<pk:int>"

    def get(self, request: HttpRequest, pk: str) -> HttpResponse:
        return HttpResponse(state("group:7"))

    def post(self, request: Any, pk: str) -> HttpResponse:
        return HttpResponse(f"{request.lock.key} {state('group:7')}")


class OfUser(LockedViewMixin, View):
    lock_methods = ("GET",)
    lock_options = {"timeout": 5, "on_busy": lambda request, error: HttpResponse("later")}  # noqa: RUF012 - as a project writes it

    def get_lock_key(self) -> list[str]:
        return [f"user:{self.kwargs['pk']}", "users"]

    def get(self, request: Any, pk: int) -> HttpResponse:
        return HttpResponse(f"{' '.join(request.lock)} {request.lock.timeout:g}")

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse("unlocked")


class Typed(LoginRequiredMixin, LockedViewMixin, View):
    lock_key = ("cart:<user.pk>", "shop:<shop>")
    lock_methods = None

    def get(self, request: Any, shop: str) -> HttpResponse:
        return HttpResponse(" ".join(request.lock))


def render(request: HttpRequest) -> HttpResponse:
    template: Any = engines["django"].from_string("{{ state }}")
    return TemplateResponse(request, template, {"state": lambda: state("group:7")})


class Page(LockedViewMixin, View):
    lock_key = "group:7"
    lock_methods = None

    def get(self, request: HttpRequest) -> HttpResponseBase:
        return render(request)


class Stream(Page):
    def get(self, request: HttpRequest) -> HttpResponseBase:
        return StreamingHttpResponse(map(state, ["group:7"]))


class WholeStream(Stream):
    lock_until_rendered = True


class AsyncStream(LockedViewMixin, View):
    lock_key = "group:7"
    lock_methods = None
    lock_until_rendered = True

    async def get(self, request: HttpRequest) -> HttpResponseBase:
        async def parts() -> AsyncIterator[str]:
            yield "locked" if await lock("group:7").alocked() else "open"

        return StreamingHttpResponse(parts())


urlpatterns = [
    path("posts/<pk>/", Posts.as_view()),
    path("user/<int:pk>/", OfUser.as_view()),
    path("typed/<shop>/", Typed.as_view()),
    path("page/", Page.as_view()),
    path("whole-page/", Page.as_view(lock_until_rendered=True)),
    path("stream/", Stream.as_view()),
    path("whole-stream/", WholeStream.as_view()),
    path("async-stream/", AsyncStream.as_view()),
]


def test_what_is_sent_is_taken_under_the_lock_and_a_page_is_shown_without_it() -> None:
    with lock("group:7"):
        assert Client().get("/posts/7/").content == b"locked"
        assert Client().post("/posts/7/").status_code == 409
    assert Client().post("/posts/7/").content == b"group:7 locked"
    assert Client().get("/posts/7/").content == b"open"


def test_the_keys_the_methods_and_the_options_are_the_views_own() -> None:
    assert Client().get("/user/7/").content == b"user:7 users 5"
    with lock("users"):
        assert Client().get("/user/7/").content == b"later"
        assert Client().post("/user/7/").content == b"unlocked"


def test_a_login_is_asked_for_before_the_lock(rf: RequestFactory) -> None:
    request = rf.get("/")
    request.user = AnonymousUser()
    with lock("shop:north"):
        assert Typed.as_view()(request, shop="north").status_code == 302
    request.user = User(pk=3)
    response: Any = Typed.as_view()(request, shop="north")

    assert response.content == b"cart:3 shop:north"


@pytest.mark.parametrize(
    ("where", "then"),
    [
        ("page", b"open"),
        ("whole-page", b"locked"),
        ("stream", b"open"),
        ("whole-stream", b"locked"),
    ],
)
def test_a_response_is_rendered_or_sent_under_the_lock_where_that_is_asked_for(
    where: str, then: bytes
) -> None:
    response: Any = Client().get(f"/{where}/")

    assert (b"".join(response) if response.streaming else response.content) == then
    assert state("group:7") == "open"


def test_an_async_response_is_sent_under_the_lock_where_that_is_asked_for() -> None:
    async def read() -> bytes:
        response: Any = await AsyncClient().get("/async-stream/")
        return b"".join([part async for part in response])

    assert asyncio.run(read()) == b"locked"
    assert state("group:7") == "open"


# The end of a request looks at the connection that another test may have left open.
@pytest.mark.django_db
def test_a_response_that_is_closed_before_it_was_sent_lets_the_lock_go_once(
    rf: RequestFactory, caplog: pytest.LogCaptureFixture
) -> None:
    response = WholeStream.as_view()(rf.get("/"))
    before = state("group:7")

    response.close()
    response.close()

    assert (before, state("group:7")) == ("locked", "open")
    assert [record.getMessage() for record in caplog.records if record.levelno > 20] == []


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "Wrong needs a key: write lock_key"),
        ({"lock_key": "group:<pk"}, "without its partner"),
        ({"lock_key": "group:<pk>", "lock_options": {"timeout": 0}}, "timeout"),
    ],
)
def test_what_cannot_be_is_refused_where_the_routes_are_made(
    attributes: dict[str, Any], message: str
) -> None:
    wrong: Any = type("Wrong", (LockedViewMixin, View), attributes)

    with pytest.raises((TypeError, ValueError), match=message):
        wrong.as_view()
