"""What a locked view answers when its lock is busy, unavailable or lost."""

from __future__ import annotations

import inspect
import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest
from django.http import Http404, HttpRequest, HttpResponse

from django_setnx_lock import LockBusy, LockError, LockLost, lock, redis_lock
from django_setnx_lock.testing import LockTester
from tests.settings import FAKE

if TYPE_CHECKING:
    from django.test import RequestFactory

    from tests.servers import FakeServer


def teapot(request: HttpRequest, error: LockError) -> HttpResponse:
    return HttpResponse(f"{request.method} {type(error).__name__} {error.key}", status=418)


def lose(key: str) -> None:
    FAKE.client().delete(f"lock:{key}")


@redis_lock("order:<pk>")
def pay(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse("paid")


@redis_lock("order:<pk>")
def pay_and_lose(request: HttpRequest, pk: int) -> HttpResponse:
    lose(f"order:{pk}")
    return HttpResponse("paid")


@redis_lock("order:<pk>")
def pay_and_disconnect(request: HttpRequest, pk: int) -> HttpResponse:
    FAKE.connected = False
    return HttpResponse("paid")


def lost_view(request: HttpRequest, pk: int) -> HttpResponse:
    lose(f"order:{pk}")
    return HttpResponse("paid")


# What each of the options makes of a busy lock, of Redis being away, and of a loss.
ANSWERS: list[tuple[dict[str, Any], tuple[object, object, object]]] = [
    ({}, (409, 503, 503)),
    ({"on_busy": teapot}, (b"POST LockBusy order:42", 503, 503)),
]


def answer_of(view: Any, request: HttpRequest) -> object:
    """Return the class of the error, the body of an answer of one's own, or the status."""
    try:
        response = view(request, 42)
    except LockError as error:
        return type(error)
    return response.content if response.status_code == 418 else response.status_code


@pytest.mark.parametrize(("options", "expected"), ANSWERS, ids=range(len(ANSWERS)))
def test_each_failure_is_answered_as_the_options_say(
    options: dict[str, Any],
    expected: tuple[object, object, object],
    rf: RequestFactory,
    fake_server: FakeServer,
) -> None:
    decorate = redis_lock("order:<pk>", **options)
    view, losing = decorate(inspect.unwrap(pay)), decorate(lost_view)

    with lock("order:42"):
        busy = answer_of(view, rf.post("/"))
    fake_server.connected = False
    away = answer_of(view, rf.post("/"))
    fake_server.connected = True
    lost = answer_of(losing, rf.post("/"))

    assert (busy, away, lost) == expected


def test_redis_away_and_a_loss_are_logged_at_error(
    rf: RequestFactory, fake_server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    pay_and_lose(rf.post("/"), 42)
    fake_server.connected = False
    pay(rf.post("/"), 42)

    ours = [one for one in caplog.record_tuples if one[0] == "django_setnx_lock.views"]
    assert [level for _, level, _ in ours] == [logging.ERROR] * 2
    assert "the lock 'order:42' is no longer ours" in ours[0][2]
    assert "the lock 'order:42' is unavailable" in ours[1][2]


def test_a_view_that_lost_its_lock_asks_nobody_to_send_the_request_again(
    rf: RequestFactory,
) -> None:
    response = pay_and_lose(rf.post("/", headers={"accept": "application/json"}), 42)

    assert "Retry-After" not in response
    assert b"retry_after" not in response.content


@pytest.mark.parametrize(
    ("options", "status"),
    [({}, 200), ({"renew": False}, 503), ({"max_hold": 20}, 503)],
    ids=repr,
)
def test_a_view_may_outlast_its_lease_when_that_is_renewed(
    rf: RequestFactory, options: dict[str, Any], status: int
) -> None:
    with LockTester() as locks:

        @redis_lock("order:<pk>", timeout=30, **options)
        def work(request: HttpRequest, pk: int) -> HttpResponse:
            locks.advance(60)
            return HttpResponse()

        assert work(rf.post("/"), 42).status_code == status


def test_a_response_stands_when_redis_goes_away_after_the_view(
    rf: RequestFactory, caplog: pytest.LogCaptureFixture
) -> None:
    response = pay_and_disconnect(rf.post("/"), 42)

    assert (response.status_code, response.content) == (200, b"paid")
    assert caplog.record_tuples[0][:2] == ("django_setnx_lock.views", logging.ERROR)


def test_a_view_that_raises_lets_the_lock_go(rf: RequestFactory) -> None:
    @redis_lock("order:<pk>")
    def missing(request: HttpRequest, pk: int) -> HttpResponse:
        raise Http404

    with pytest.raises(Http404):
        missing(rf.get("/"), 42)

    assert not lock("order:42").locked()


def test_a_view_that_is_interrupted_lets_the_lock_go(rf: RequestFactory) -> None:
    @redis_lock("order:<pk>")
    def interrupted(request: HttpRequest, pk: int) -> HttpResponse:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(rf.get("/"), 42)

    assert not lock("order:42").locked()


def test_an_exception_of_the_view_is_not_hidden_by_the_loss_of_its_lock(
    rf: RequestFactory,
) -> None:
    @redis_lock("order:<pk>")
    def fail(request: HttpRequest, pk: int) -> HttpResponse:
        lose("order:42")
        raise KeyError(pk)

    with pytest.raises(KeyError) as caught:
        fail(rf.get("/"), 42)

    if sys.version_info >= (3, 11):
        assert "no longer ours" in caught.value.__notes__[0]


def find_out(request: HttpRequest, pk: int) -> HttpResponse:
    with lock(f"order:{pk}", reentrant=True) as held:
        lose(f"order:{pk}")
        held.check()
        raise AssertionError("not reached")


def test_a_loss_that_a_view_finds_out_itself_is_answered_likewise(rf: RequestFactory) -> None:
    view = redis_lock("order:<pk>", reentrant=True)(find_out)

    assert view(rf.post("/"), 42).status_code == 503


def test_the_loss_of_another_lock_inside_the_view_is_not_taken_for_its_own(
    rf: RequestFactory,
) -> None:
    view = redis_lock("shelf:<pk>")(find_out)

    with pytest.raises(LockLost):
        view(rf.post("/"), 42)


def test_a_busy_lock_inside_the_view_is_not_taken_for_its_own(rf: RequestFactory) -> None:
    @redis_lock("order:<pk>")
    def nested(request: HttpRequest, pk: int) -> HttpResponse:
        with lock("stock", blocking_timeout=0):
            return HttpResponse()

    with lock("stock"), pytest.raises(LockBusy) as caught:
        nested(rf.get("/"), 42)

    assert caught.value.key == "stock"
