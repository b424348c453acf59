"""``@redis_lock`` on async views, methods and coroutine functions."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import SynchronousOnlyOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.utils.functional import SimpleLazyObject
from django.views import View

from django_setnx_lock import LockBusy, LockError, LockLost, lock, redis_lock
from django_setnx_lock.connection import get_client
from tests.core.aio.helpers import run, until
from tests.settings import FAKE

if TYPE_CHECKING:
    from django.test import AsyncRequestFactory, RequestFactory

    from tests.servers import FakeServer

pytestmark = pytest.mark.usefixtures("fake_connections")
LONG = 15


def value() -> Any:
    return get_client().get("lock:order:42")


@redis_lock("order:<pk>")
async def pay(request: HttpRequest, pk: int) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse(value() or b"nothing")


@redis_lock("order:<pk>", timeout=1, renew=False)
async def pay_slowly(request: HttpRequest, pk: int) -> HttpResponse:
    await asyncio.sleep(LONG)
    return HttpResponse("paid")


@method_decorator(redis_lock("order:<pk>"), name="dispatch")
class ByDispatch(View):
    async def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(value() or b"nothing")


@method_decorator(redis_lock("order:<pk>"), name="post")
class ByMethod(View):
    async def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(value() or b"nothing")


class Plain(View):
    async def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(value() or b"nothing")


VIEWS: dict[str, Any] = {
    "function": pay,
    "dispatch": ByDispatch.as_view(),
    "method": ByMethod.as_view(),
    "around": redis_lock("order:<pk>")(Plain.as_view()),
}
every_view = pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)


async def refused(request: HttpRequest, error: LockError) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse(type(error).__name__, status=418)


@every_view
def test_an_async_view_runs_under_its_lock(async_rf: AsyncRequestFactory, view: Any) -> None:
    response = run(view(async_rf.post("/"), pk=42))

    assert len(response.content) == 32
    assert value() is None


@every_view
def test_an_async_view_answers_409_when_its_lock_is_busy(
    async_rf: AsyncRequestFactory, view: Any
) -> None:
    with lock("order:42"):
        response = run(view(async_rf.post("/"), pk=42))

    assert response.status_code == 409


@every_view
def test_django_knows_it_to_be_async(view: Any) -> None:
    from asgiref.sync import iscoroutinefunction

    assert iscoroutinefunction(view)


def test_an_async_view_answers_503_when_redis_cannot_say(
    async_rf: AsyncRequestFactory, fake_server: FakeServer
) -> None:
    fake_server.connected = False

    response = run(pay(async_rf.post("/"), pk=42))

    assert response.status_code == 503


def test_an_async_view_that_loses_its_lock_is_cancelled_and_answers_503(
    async_rf: AsyncRequestFactory,
) -> None:
    response = run(pay_slowly(async_rf.post("/"), pk=42))

    assert response.status_code == 503
    assert "Retry-After" not in response


def test_an_async_view_that_finds_out_itself_that_its_lock_is_lost_answers_503(
    async_rf: AsyncRequestFactory,
) -> None:
    @redis_lock("order:<pk>", reentrant=True)
    async def find_out(request: HttpRequest, pk: int) -> HttpResponse:
        async with lock(f"order:{pk}", reentrant=True) as held:
            get_client().delete("lock:order:42")
            await held.acheck()
            raise AssertionError("not reached")

    response = run(find_out(async_rf.post("/"), 42))

    assert response.status_code == 503


@pytest.mark.parametrize("option", ["on_unavailable", "on_lost"])
def test_a_loss_can_be_answered_by_an_async_callable(
    async_rf: AsyncRequestFactory, option: str
) -> None:
    answers: dict[str, Any] = {option: refused}
    decorate = redis_lock("order:<pk>", timeout=1, renew=False, **answers)
    view = decorate(inspect.unwrap(pay_slowly))

    response = run(view(async_rf.post("/"), 42))

    assert (response.status_code, response.content) == (418, b"LockLost")


def test_a_loss_can_raise(async_rf: AsyncRequestFactory) -> None:
    view = redis_lock("order:<pk>", timeout=1, renew=False, on_lost="raise")(
        inspect.unwrap(pay_slowly)
    )

    with pytest.raises(LockLost):
        run(view(async_rf.post("/"), 42))


def test_a_busy_async_view_can_answer_in_its_own_way(async_rf: AsyncRequestFactory) -> None:
    view = redis_lock("order:<pk>", on_busy=refused)(inspect.unwrap(pay))

    with lock("order:42"):
        response = run(view(async_rf.post("/"), 42))

    assert response.content == b"LockBusy"


def test_a_busy_async_view_can_be_answered_by_what_blocks(async_rf: AsyncRequestFactory) -> None:
    def answer(request: HttpRequest, error: LockError) -> HttpResponse:
        # No call that blocks is refused here.
        return HttpResponse(str(lock("order:42").locked()), status=418)

    view = redis_lock("order:<pk>", on_busy=answer)(inspect.unwrap(pay))

    with lock("order:42"):
        response = run(view(async_rf.post("/"), 42))

    assert response.content == b"True"


def test_a_busy_async_view_can_raise(async_rf: AsyncRequestFactory) -> None:
    view = redis_lock("order:<pk>", on_busy="raise")(inspect.unwrap(pay))

    with lock("order:42"), pytest.raises(LockBusy):
        run(view(async_rf.post("/"), 42))


def test_the_exception_of_an_async_view_comes_out(async_rf: AsyncRequestFactory) -> None:
    @redis_lock("order:<pk>")
    async def missing(request: HttpRequest, pk: int) -> HttpResponse:
        raise Http404

    with pytest.raises(Http404):
        run(missing(async_rf.post("/"), pk=42))

    assert value() is None


def test_an_async_view_that_cannot_let_go_has_its_response_stand(
    async_rf: AsyncRequestFactory,
) -> None:
    @redis_lock("order:<pk>")
    async def disconnect(request: HttpRequest, pk: int) -> HttpResponse:
        FAKE.connected = False
        return HttpResponse("paid")

    response = run(disconnect(async_rf.post("/"), pk=42))

    assert response.content == b"paid"


def test_a_client_that_goes_away_leaves_no_lock(async_rf: AsyncRequestFactory) -> None:
    async def work() -> None:
        task = asyncio.ensure_future(pay_slowly(async_rf.post("/"), pk=42))
        await until(value)
        # As Django does when the client has disconnected.
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work())

    assert value() is None


def test_a_user_who_is_still_to_be_looked_up_can_be_in_the_key(
    async_rf: AsyncRequestFactory,
) -> None:
    def look_up() -> AnonymousUser:
        # As the ORM does.
        lock("any").locked()
        user = AnonymousUser()
        user.pk = 7  # type: ignore[assignment]  # stands in for one who has logged in
        return user

    @redis_lock("cart:<user.pk>")
    async def show(request: HttpRequest) -> HttpResponse:
        return HttpResponse(str(get_client().exists("lock:cart:7")))

    request: Any = async_rf.get("/")
    request.user = SimpleLazyObject(look_up)

    assert run(show(request)).content == b"1"


def test_a_coroutine_function_runs_under_its_lock() -> None:
    @redis_lock("order:<pk>")
    async def send(pk: int) -> Any:
        return value()

    assert inspect.iscoroutinefunction(send)
    assert run(send(42)) is not None


def test_a_coroutine_function_raises_what_the_lock_does() -> None:
    @redis_lock("order:<pk>", blocking_timeout=0)
    async def send(pk: int) -> None:
        pass

    with lock("order:42"), pytest.raises(LockBusy):
        run(send(42))


def test_a_synchronous_view_with_an_async_answer_is_refused_at_once() -> None:
    def view(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse()

    with pytest.raises(TypeError, match=r"on_busy must not be async, as .*view is not"):
        redis_lock("order:<pk>", on_busy=refused)(view)


def test_what_gives_a_coroutine_unannounced_is_refused(rf: RequestFactory) -> None:
    def view(request: HttpRequest, pk: int) -> Any:
        return inspect.unwrap(pay)(request, pk)

    with pytest.raises(TypeError, match="gives a coroutine but is no coroutine function"):
        redis_lock("order:<pk>")(view)(rf.post("/"), 42)

    assert value() is None


def test_a_lock_that_blocks_is_refused_as_the_orm_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        with lock("order:42"):
            pass

    with pytest.raises(SynchronousOnlyOperation, match="use the method with the prefix a"):
        run(work())
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    run(work())
