"""Each shape of a view, free, busy, lost, without Redis, with a busy service: what it answers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import django
import pytest
from django.contrib.auth.models import Group
from django.core import mail
from django.db import connection
from django.test import AsyncClient, Client, override_settings

from django_setnx_lock import lock
from tests.databases import state
from tests.views.shapes import SHAPES, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import FakeServer

    Post = Callable[[str], Any]

pytestmark = [
    pytest.mark.urls("tests.views.shapes"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("fake_connections"),
]
HANDLER = "django_setnx_lock.contrib.rest_framework.exception_handler"
JSON = {"accept": "application/json"}
# So many questions are asked of a shape.
QUESTIONS = 5


def each_shape(question: int) -> pytest.MarkDecorator:
    """Ask the ``question`` of each shape: those whose turn it is, the others for `make matrix`.

    The client of a shape's own kind posts to it; there the one of the other kind does, too.
    """
    return pytest.mark.parametrize(
        ("name", "post"),
        [
            pytest.param(name, kind, marks=() if is_turn and is_own else pytest.mark.matrix)
            for number, name in enumerate(SHAPES)
            for is_turn in [(number + question) % QUESTIONS < 2]
            for kind in ("sync", "async")
            for is_own in [name.startswith("async") == (kind == "async")]
        ],
        indirect=["post"],
    )


@pytest.fixture(autouse=True)
def project(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have mails to ADMINS, transactions of requests, and the exception handler for locks."""
    admins: Any = ["ann@example.com"] if django.VERSION >= (6,) else [("Ann", "ann@example.com")]
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    with override_settings(ADMINS=admins, REST_FRAMEWORK={"EXCEPTION_HANDLER": HANDLER}):
        yield


@pytest.fixture
def post(request: pytest.FixtureRequest) -> Post:
    """Give what posts to a path as a client of each kind does, and reads the whole response."""
    if request.param == "sync":
        return lambda where: read(Client(raise_request_exception=False).post(where, headers=JSON))

    async def apost(where: str) -> Any:
        response: Any = await AsyncClient(raise_request_exception=False).post(where, headers=JSON)
        if response.streaming and response.is_async:
            response.read = b"".join([part async for part in response])
            return response
        return read(response)

    return lambda where: asyncio.run(apost(where))


def read(response: Any) -> Any:
    response.read = b"".join(response) if response.streaming else response.content
    return response


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    """Return the loggers and levels of what was logged; a refusal alone may have a traceback."""
    records = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert [one for one in records if one.exc_info and one.levelno > logging.WARNING] == []
    return [(one.name, one.levelno) for one in records]


def answer(response: Any) -> tuple[int, str | None]:
    return response.status_code, response.headers.get("Retry-After")


def assert_body(response: Any, shape: Shape, code: str) -> None:
    """Hold the body to what clients are told, which is neither the key nor the holder."""
    assert response.headers["Content-Type"] == "application/json"
    assert b"detail" in response.read
    assert b"order" not in response.read
    if shape.is_api:
        assert response.data["detail"].code == code


@each_shape(0)
def test_a_view_whose_lock_is_free_answers_and_lets_it_go(
    name: str, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    shape = SHAPES[name]

    response = post(f"/{name}/7/")

    assert response.status_code == shape.status
    assert Group.objects.count() == (0 if shape.status >= 403 and shape.rolls_back else 1)
    assert (state("order:7"), mail.outbox) == ("open", [])
    assert logged(caplog) == [] or shape.status >= 403


@each_shape(1)
def test_a_view_whose_lock_is_busy_answers_409_without_running(
    name: str, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    with lock("order:7"):
        response = post(f"/{name}/7/")

    assert answer(response) == (409, "2")
    assert_body(response, SHAPES[name], "lock_busy")
    assert (Group.objects.count(), mail.outbox) == (0, [])
    assert logged(caplog) == [("django.request", logging.WARNING)]


@each_shape(2)
def test_a_view_answers_503_while_redis_cannot_say(
    name: str, post: Post, fake_server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    fake_server.connected = False

    response = post(f"/{name}/7/")

    assert answer(response) == (503, "5")
    assert_body(response, SHAPES[name], "lock_unavailable")
    assert (Group.objects.count(), mail.outbox) == (0, [])
    assert logged(caplog) == [("django_setnx_lock.views", logging.ERROR)]


@each_shape(3)
def test_a_view_that_loses_its_lock_is_rolled_back_and_answers_503(
    name: str, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    shape = SHAPES[name]

    response = post(f"/{name}/7/?then=lose")

    assert mail.outbox == []
    assert Group.objects.count() == (0 if shape.rolls_back else 1)
    if shape.status >= 403:
        # The exception of the view itself comes out.
        assert response.status_code == shape.status
        return
    assert answer(response) == (503, None)
    assert_body(response, SHAPES[name]._replace(is_api=False), "lock_lost")
    assert ("django_setnx_lock.views", logging.ERROR) in logged(caplog)
    assert ("django.request", logging.ERROR) not in logged(caplog)


@each_shape(4)
def test_a_view_with_a_service_that_finds_its_lock_busy_is_rolled_back_and_answers_409(
    name: str, post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    shape = SHAPES[name]

    with lock("stock"):
        response = post(f"/{name}/7/?then=service")

    assert answer(response) == (409, "2")
    assert_body(response, shape, "lock_busy")
    assert Group.objects.count() == (0 if shape.rolls_back else 1)
    assert (state("order:7"), mail.outbox) == ("open", [])
    assert logged(caplog) == [("django.request", logging.WARNING)]
