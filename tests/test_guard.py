from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

import pytest
from django.http import Http404, HttpRequest, HttpResponse

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnavailable, lock, redis_lock
from django_setnx_lock.connection import get_client
from tests.processes import eventually
from tests.settings import FAKE

if TYPE_CHECKING:
    from django.test import RequestFactory

    from tests.servers import FakeServer


def teapot(request: HttpRequest, error: LockError) -> HttpResponse:
    return HttpResponse(f"{request.method} {type(error).__name__} {error.key}", status=418)


def lose(key: str) -> None:
    get_client().delete(f"lock:{key}")


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


def test_a_busy_view_does_not_wait_for_the_holder(rf: RequestFactory) -> None:
    # A view that waited would outlast this lease and be let in.
    lock("order:42", timeout=2, renew=False).take(0)

    response = pay(rf.post("/"), 42)

    assert response.status_code == 409


def test_a_busy_view_can_answer_in_its_own_way(rf: RequestFactory) -> None:
    view = redis_lock("order:<pk>", on_busy=teapot)(lambda request, pk: HttpResponse())

    with lock("order:42"):
        response = view(rf.post("/"), 42)

    assert (response.status_code, response.content) == (418, b"POST LockBusy order:42")


def test_a_busy_view_can_raise(rf: RequestFactory) -> None:
    view = redis_lock("order:<pk>", on_busy="raise")(lambda request, pk: HttpResponse())

    with lock("order:42"), pytest.raises(LockBusy):
        view(rf.post("/"), 42)


def test_a_view_answers_503_when_redis_cannot_say(
    rf: RequestFactory, fake_server: FakeServer
) -> None:
    fake_server.connected = False

    response = pay(rf.post("/"), 42)

    assert (response.status_code, response["Retry-After"]) == (503, "5")


def test_an_unreachable_redis_is_logged_at_error(
    rf: RequestFactory, fake_server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    fake_server.connected = False

    pay(rf.post("/"), 42)

    assert caplog.record_tuples[0][:2] == ("django_setnx_lock.views", logging.ERROR)
    assert "the lock 'order:42' is unavailable" in caplog.text


def test_an_unreachable_redis_can_be_answered_in_its_own_way(
    rf: RequestFactory, fake_server: FakeServer
) -> None:
    view = redis_lock("order:<pk>", on_unavailable=teapot)(lambda request, pk: HttpResponse())
    fake_server.connected = False

    response = view(rf.post("/"), 42)

    assert (response.status_code, response.content) == (418, b"POST LockUnavailable order:42")


def test_an_unreachable_redis_can_raise(rf: RequestFactory, fake_server: FakeServer) -> None:
    view = redis_lock("order:<pk>", on_unavailable="raise")(lambda request, pk: HttpResponse())
    fake_server.connected = False

    with pytest.raises(LockUnavailable):
        view(rf.post("/"), 42)


def test_an_unreachable_redis_is_not_taken_for_a_busy_lock(
    rf: RequestFactory, fake_server: FakeServer
) -> None:
    view = redis_lock("order:<pk>", on_busy="raise")(lambda request, pk: HttpResponse())
    fake_server.connected = False

    assert view(rf.post("/"), 42).status_code == 503


def test_a_view_that_lost_its_lock_does_not_answer_200(rf: RequestFactory) -> None:
    response = pay_and_lose(rf.post("/"), 42)

    assert response.status_code == 503


def test_a_view_that_lost_its_lock_asks_nobody_to_send_the_request_again(
    rf: RequestFactory,
) -> None:
    response = pay_and_lose(rf.post("/", headers={"accept": "application/json"}), 42)

    assert "Retry-After" not in response
    assert b"retry_after" not in response.content


def test_a_lost_lock_is_logged_at_error(
    rf: RequestFactory, caplog: pytest.LogCaptureFixture
) -> None:
    pay_and_lose(rf.post("/"), 42)

    assert caplog.record_tuples[0][:2] == ("django_setnx_lock.views", logging.ERROR)
    assert "the lock 'order:42' is no longer ours" in caplog.text


def test_a_lost_lock_can_be_answered_in_its_own_way(rf: RequestFactory) -> None:
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        lose("order:42")
        return HttpResponse()

    response = redis_lock("order:<pk>", on_unavailable=teapot)(view)(rf.post("/"), 42)

    assert response.content == b"POST LockLost order:42"


def test_a_lost_lock_can_raise(rf: RequestFactory) -> None:
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        lose("order:42")
        return HttpResponse()

    with pytest.raises(LockLost):
        redis_lock("order:<pk>", on_unavailable="raise")(view)(rf.post("/"), 42)


def test_a_lost_lock_can_have_an_answer_of_its_own(rf: RequestFactory) -> None:
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        lose("order:42")
        return HttpResponse()

    response = redis_lock("order:<pk>", on_lost=teapot, on_unavailable="raise")(view)(
        rf.post("/"), 42
    )

    assert response.content == b"POST LockLost order:42"


def test_a_lost_lock_can_raise_though_redis_being_away_is_answered(rf: RequestFactory) -> None:
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        lose("order:42")
        return HttpResponse()

    with pytest.raises(LockLost):
        redis_lock("order:<pk>", on_lost="raise", on_unavailable=teapot)(view)(rf.post("/"), 42)


def test_an_answer_to_a_loss_is_none_to_redis_being_away(
    rf: RequestFactory, fake_server: FakeServer
) -> None:
    view = redis_lock("order:<pk>", on_lost=teapot)(lambda request, pk: HttpResponse())
    fake_server.connected = False

    assert view(rf.post("/"), 42).status_code == 503


@pytest.mark.parametrize(("renew", "status"), [(True, 200), (False, 503)])
def test_a_view_may_outlast_its_lease_when_that_is_renewed(
    rf: RequestFactory, renew: bool, status: int
) -> None:
    lease = 1.5 if renew else 0.05

    @redis_lock("order:<pk>", timeout=lease, renew=renew)
    def pay(request: HttpRequest, pk: int) -> HttpResponse:
        began = time.monotonic()
        eventually(lambda: time.monotonic() > began + lease + 0.1)
        return HttpResponse()

    assert pay(rf.post("/"), 42).status_code == status


def test_a_view_that_reached_its_max_hold_does_not_answer_200(rf: RequestFactory) -> None:
    @redis_lock("order:<pk>", max_hold=0.05)
    def pay(request: HttpRequest, pk: int) -> HttpResponse:
        began = time.monotonic()
        eventually(lambda: time.monotonic() > began + 0.1)
        return HttpResponse()

    assert pay(rf.post("/"), 42).status_code == 503


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


def test_a_view_that_finds_out_itself_that_its_lock_is_lost_answers_503(
    rf: RequestFactory,
) -> None:
    view = redis_lock("order:<pk>", reentrant=True)(find_out)

    response = view(rf.post("/"), 42)

    assert response.status_code == 503


def test_what_a_view_found_out_itself_can_be_answered_in_its_own_way(rf: RequestFactory) -> None:
    view = redis_lock("order:<pk>", reentrant=True, on_lost=teapot)(find_out)

    response = view(rf.post("/"), 42)

    assert response.content == b"POST LockLost order:42"


def test_what_a_view_found_out_itself_can_come_out(rf: RequestFactory) -> None:
    view = redis_lock("order:<pk>", reentrant=True, on_lost="raise")(find_out)

    with pytest.raises(LockLost):
        view(rf.post("/"), 42)


def test_the_loss_of_another_lock_inside_the_view_is_not_taken_for_its_own(
    rf: RequestFactory,
) -> None:
    view = redis_lock("shelf:<pk>")(find_out)

    with pytest.raises(LockLost):
        view(rf.post("/"), 42)


def test_a_busy_lock_inside_the_view_is_not_taken_for_its_own(rf: RequestFactory) -> None:
    @redis_lock("order:<pk>")
    def nested(request: HttpRequest, pk: int) -> HttpResponse:
        with lock("stock", blocking=False):
            return HttpResponse()

    with lock("stock"), pytest.raises(LockBusy) as caught:
        nested(rf.get("/"), 42)

    assert caught.value.key == "stock"
