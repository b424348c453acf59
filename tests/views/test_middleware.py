"""``LockMiddleware``: what code of a view raises of locks is answered; ``FAILURE_VIEW``."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest
from django.core import mail
from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path

from django_setnx_lock import (
    LockBusy,
    LockDeadlock,
    LockError,
    LockLost,
    LockUnavailable,
    LockUnsupported,
    lock,
    redis_lock,
)
from django_setnx_lock.views import lock_failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import FakeServer

pytestmark = pytest.mark.urls(__name__)

ERRORS: dict[str, LockError] = {
    "busy": LockBusy("the lock 'order:42' is held", key="order:42", remaining=0.5),
    "deadlock": LockDeadlock("they wait for each other", key="order:42"),
    "unavailable": LockUnavailable("redis:6379 is away", key="order:42", cause="unreachable"),
    "lost": LockLost("force-released by bob", key="order:42", forced_by="bob"),
    "unsupported": LockUnsupported("this kind of lock cannot do that", key="order:42"),
}


def fails(request: HttpRequest, error: str) -> HttpResponse:
    raise ERRORS[error]


async def afails(request: HttpRequest, error: str) -> HttpResponse:
    raise ERRORS[error]


def fails_as_it_renders(request: HttpRequest, error: str) -> HttpResponse:
    def fail() -> None:
        raise ERRORS[error]

    template: Any = engines["django"].from_string("{{ fail }}")
    return TemplateResponse(request, template, {"fail": fail})


def paid(request: HttpRequest, error: str) -> HttpResponse:
    return HttpResponse("paid")


def no_answer(request: HttpRequest, error: LockError) -> Any: ...


FAILING: dict[str, Any] = {
    "sync": fails,
    "async": afails,
    "rendering": fails_as_it_renders,
    "decorated": redis_lock("order:<error>")(fails),
}
VIEWS = {
    **FAILING,
    "paid": redis_lock("order:<error>")(paid),
    "unanswered": redis_lock("order:<error>", on_busy=no_answer)(paid),
}
urlpatterns = [path(f"{name}/<error>/", view) for name, view in VIEWS.items()]


def get(where: str) -> Any:
    return Client().get(where)


def aget(where: str) -> Any:
    return asyncio.run(AsyncClient().get(where))


@pytest.mark.parametrize("ask", [get, aget])
@pytest.mark.parametrize("view", FAILING)
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("busy", (409, "1")),
        ("deadlock", (409, "2")),
        ("unavailable", (503, "5")),
        ("lost", (503, None)),
    ],
)
def test_an_error_of_a_lock_is_answered_wherever_it_is_raised(
    view: str, error: str, expected: tuple[int, str | None], ask: Callable[[str], Any]
) -> None:
    response = ask(f"/{view}/{error}/")

    assert (response.status_code, response.headers.get("Retry-After")) == expected


@pytest.mark.parametrize(("middleware", "error"), [(None, "unsupported"), ([], "busy")])
def test_other_errors_and_all_without_it_come_out(
    middleware: list[str] | None, error: str, settings: Any
) -> None:
    if middleware is not None:
        settings.MIDDLEWARE = middleware

    with pytest.raises(type(ERRORS[error])):
        Client().get(f"/sync/{error}/")


@override_settings(ADMINS=[("Ann", "ann@example.com")])
@pytest.mark.parametrize("error", ["unavailable", "lost"])
def test_a_503_is_logged_once_with_its_cause_and_mailed_to_nobody(
    error: str, caplog: pytest.LogCaptureFixture
) -> None:
    get(f"/sync/{error}/")

    said = [(one.name, one.levelno, one.getMessage()) for one in caplog.records]
    assert said == [("django_setnx_lock.views", logging.ERROR, str(ERRORS[error]))]
    assert mail.outbox == []


def own_failure(request: HttpRequest, error: LockError) -> HttpResponse:
    response = lock_failure(request, error)
    response.status_code = 500 if isinstance(error, LockLost) else 423
    response["X-Own"] = type(error).__name__
    return response


@override_settings(SETNX_LOCK={"FAILURE_VIEW": f"{__name__}.own_failure"})
def test_the_failure_view_answers_for_the_decorator_and_the_middleware(
    fake_server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    seen = [get("/sync/busy/"), get("/sync/lost/")]
    fake_server.connected = False
    seen.append(get("/paid/busy/"))

    assert [(one.status_code, one["X-Own"]) for one in seen] == [
        (423, "LockBusy"),
        (500, "LockLost"),
        (423, "LockUnavailable"),
    ]
    assert "django.request" not in {one.name for one in caplog.records if one.levelno > 30}


@pytest.mark.parametrize(
    ("view", "name"),
    [("unanswered", "on_busy"), ("paid", "FAILURE_VIEW"), ("sync", "FAILURE_VIEW")],
)
@override_settings(SETNX_LOCK={"FAILURE_VIEW": f"{__name__}.no_answer", "REENTRANT": False})
def test_an_answer_that_is_none_is_refused_as_that_of_a_view(view: str, name: str) -> None:
    message = f"{name} didn't return an HttpResponse object. It returned None instead."

    with lock("order:busy"), pytest.raises(ValueError, match=message):
        get(f"/{view}/busy/")
