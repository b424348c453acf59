"""``@redis_lock`` on a view beyond what each shape answers: its key, its handle, its options."""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.utils.decorators import method_decorator
from django.utils.functional import SimpleLazyObject
from django.views import View
from rest_framework.decorators import api_view
from rest_framework.request import Request
from rest_framework.response import Response

from django_setnx_lock import LockBusy, LockError, LockLost, lock, redis_lock
from tests.databases import state

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import AsyncRequestFactory, RequestFactory

    from tests.servers import FakeServer

pytestmark = [pytest.mark.urls(__name__), pytest.mark.usefixtures("fake_connections")]
order_lock = redis_lock("order:<pk>")


def tell(request: Any, **arguments: Any) -> HttpResponse:
    return HttpResponse(f"{request.lock.key} {request.lock.owned()}")


async def atell(request: Any, **arguments: Any) -> HttpResponse:
    return HttpResponse(f"{request.lock.key} {await request.lock.aowned()}")


@method_decorator(order_lock, name="dispatch")
class Tells(View):
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return tell(self.request)


@api_view(["POST"])
@order_lock
def api_tells(request: Request, pk: int) -> Response:
    return Response(tell(request).content.decode())


def write(request: HttpRequest) -> HttpResponse:
    Group.objects.create(name="x")
    if "fail" in request.GET:
        raise ValueError("no")
    return HttpResponse(f"{connection.in_atomic_block} {hasattr(request, 'lock')}")


urlpatterns = [
    path("view/<int:pk>/", order_lock(tell)),
    path("async/<int:pk>/", order_lock(atell)),
    path("class/<int:pk>/", Tells.as_view()),
    path("api/<int:pk>/", api_tells),
    path("writes/", redis_lock("a", methods=["post", "PUT"])(write)),
]


def test_a_view_waits_for_its_lock_only_where_it_is_told_to(rf: RequestFactory) -> None:
    waiting = redis_lock("order:<pk>", blocking_timeout=5)(tell)

    held = lock("order:42", timeout=4, renew=False).take(0)

    assert Client().post("/view/42/").status_code == 409
    lock("any").client.pexpire(held.name, 200)
    assert waiting(rf.post("/"), pk=42).content == b"order:42 True"


@pytest.mark.parametrize("where", ["view", "async", "class", "api"])
def test_the_handle_is_at_the_request_while_the_view_runs(where: str) -> None:
    response = Client().post(f"/{where}/42/")

    assert response.content.strip(b'"') == b"order:42 True"


def test_of_several_keys_the_handle_is_that_of_all(rf: RequestFactory) -> None:
    @redis_lock("from:<a>", lambda request, a: "to:9")
    def view(request: Any, a: int) -> HttpResponse:
        return HttpResponse(" ".join(request.lock.fences))

    assert view(rf.post("/"), a=7).content == b"from:7 to:9"


def test_in_a_view_that_is_decorated_twice_it_is_the_handle_of_the_inner_lock(
    rf: RequestFactory,
) -> None:
    inner = redis_lock("inner")(tell)

    @redis_lock("outer")
    def view(request: Any) -> HttpResponse:
        return HttpResponse(inner(request).content + b", " + tell(request).content)

    request = rf.post("/")

    assert view(request).content == b"inner True, outer True"
    assert not hasattr(request, "lock")


def test_the_handle_can_be_given_away(rf: RequestFactory) -> None:
    tickets: list[str] = []

    @order_lock
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


def by_user(request: Any, user: Any) -> Any:
    request.user = user
    return request


KEYS: dict[str, tuple[Any, str]] = {
    # An argument goes before an attribute of the request.
    "an argument": ("order:<pk>", "order:42"),
    "a callable": (lambda request, pk: f"basket:{request.POST['basket']}:{pk}", "basket:3:42"),
    "the request": ("by:<request.method>", "by:POST"),
    "the user": ("cart:<user.pk>", "cart:7"),
}


@pytest.mark.parametrize(("key", "made"), KEYS.values(), ids=KEYS)
def test_a_key_can_be_made_of_the_request(key: Any, made: str, rf: RequestFactory) -> None:
    request = by_user(rf.post("/", {"basket": 3}), User(pk=7))
    request.pk = 43

    assert redis_lock(key)(tell)(request, pk=42).content.decode() == f"{made} True"


def test_a_key_of_a_method_is_made_of_the_request_and_not_of_the_view(rf: RequestFactory) -> None:
    class Orders(View):
        @redis_lock(lambda request, pk: f"{request.method}:{pk}")
        def post(self, request: HttpRequest, pk: int) -> HttpResponse:
            return tell(request)

    response: Any = Orders.as_view()(rf.post("/"), pk=42)

    assert response.content == b"POST:42 True"


@pytest.mark.parametrize("field", ["<user.pk>", "<user.username>", "<request.user.pk>"])
def test_a_key_of_the_user_forbids_a_visitor_who_has_not_logged_in(
    field: str, rf: RequestFactory, async_rf: AsyncRequestFactory
) -> None:
    decorate, nobody = redis_lock(f"cart:{field}"), AnonymousUser()

    with pytest.raises(PermissionDenied):
        decorate(tell)(by_user(rf.post("/"), nobody))
    with pytest.raises(PermissionDenied):
        asyncio.run(decorate(atell)(by_user(async_rf.post("/"), nobody)))
    with pytest.raises(LookupError, match=field):
        decorate(tell)(rf.post("/"))


def test_a_user_who_is_still_to_be_looked_up_can_be_in_the_key_of_an_async_view(
    async_rf: AsyncRequestFactory,
) -> None:
    def look_up() -> User:
        # It blocks, as the ORM does.
        lock("any").locked()
        return User(pk=7)

    request = by_user(async_rf.get("/"), SimpleLazyObject(look_up))

    assert asyncio.run(redis_lock("cart:<user.pk>")(atell)(request)).content == b"cart:7 True"


def test_the_body_of_the_request_is_left_unread(rf: RequestFactory) -> None:
    @order_lock
    def upload(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(request.read(4))

    request = rf.post("/", b"data and more", content_type="text/plain")

    assert upload(request, pk=1).content == b"data"


def test_a_decorator_beneath_may_change_the_arguments(rf: RequestFactory) -> None:
    def load_order(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        return wraps(view)(lambda request, pk: view(request, order=f"order {pk}"))

    @redis_lock("till")
    @load_order
    def sell(request: HttpRequest, order: str) -> HttpResponse:
        return HttpResponse(order)

    assert sell(rf.post("/"), pk=42).content == b"order 42"


def answered(request: HttpRequest, error: LockError) -> HttpResponse:
    # Nothing refuses a call that blocks, in an async view neither.
    return HttpResponse(f"{type(error).__name__} {lock('any').locked()}")


async def aanswered(request: HttpRequest, error: LockError) -> HttpResponse:
    return HttpResponse(f"{type(error).__name__} {await lock('any').alocked()}")


@pytest.mark.parametrize("answer", [answered, aanswered])
def test_a_view_answers_busy_in_its_own_way(
    rf: RequestFactory, async_rf: AsyncRequestFactory, answer: Any
) -> None:
    decorate = redis_lock("order:<pk>", on_busy=answer)

    with lock("order:42"):
        response = decorate(tell)(rf.post("/"), pk=42)
        aresponse = asyncio.run(decorate(atell)(async_rf.post("/"), pk=42))

    assert response.content == aresponse.content == b"LockBusy False"


def test_an_async_view_that_loses_its_lock_is_cancelled_and_answers_503(
    async_rf: AsyncRequestFactory,
) -> None:
    @redis_lock("order:<pk>", timeout=0.3, renew=False)
    async def stay(request: HttpRequest, pk: int) -> HttpResponse:
        await asyncio.sleep(15)
        raise AssertionError("not reached")

    assert asyncio.run(stay(async_rf.post("/"), pk=42)).status_code == 503


def find_out(request: HttpRequest, pk: int) -> HttpResponse:
    with lock(f"order:{pk}", reentrant=True) as held:
        lock("any").client.delete(held.name)
        held.check()
        raise AssertionError("not reached")


async def afind_out(request: HttpRequest, pk: int) -> HttpResponse:
    async with lock(f"order:{pk}", reentrant=True) as held:
        lock("any").client.delete(held.name)
        await held.acheck()
        raise AssertionError("not reached")


def test_a_loss_that_a_view_finds_out_itself_is_answered_likewise(
    rf: RequestFactory, async_rf: AsyncRequestFactory
) -> None:
    decorate = redis_lock("order:<pk>", reentrant=True)

    assert decorate(find_out)(rf.post("/"), 42).status_code == 503
    assert asyncio.run(decorate(afind_out)(async_rf.post("/"), 42)).status_code == 503


def test_the_loss_of_another_lock_inside_the_view_is_not_taken_for_its_own(
    rf: RequestFactory,
) -> None:
    with pytest.raises(LockLost):
        redis_lock("shelf:<pk>")(find_out)(rf.post("/"), 42)


def test_a_view_does_not_take_the_error_of_a_service_for_its_own(rf: RequestFactory) -> None:
    @redis_lock("order:42", on_busy=lambda request, error: HttpResponse("busy"))
    def view(request: HttpRequest) -> HttpResponse:
        with lock("stock", blocking_timeout=0):
            raise AssertionError("not reached")

    with lock("stock"), pytest.raises(LockBusy, match="stock"):
        view(rf.post("/"))


def test_an_async_response_stands_when_redis_goes_away_after_the_view(
    async_rf: AsyncRequestFactory, fake_server: FakeServer
) -> None:
    @order_lock
    async def pay(request: HttpRequest, pk: int) -> HttpResponse:
        fake_server.connected = False
        return HttpResponse("paid")

    assert asyncio.run(pay(async_rf.post("/"), 42)).content == b"paid"


def test_a_client_that_goes_away_leaves_no_lock(async_rf: AsyncRequestFactory) -> None:
    async def work() -> None:
        entered = asyncio.Event()

        @order_lock
        async def enter(request: HttpRequest, pk: int) -> HttpResponse:
            entered.set()
            await asyncio.sleep(15)
            raise AssertionError("not reached")

        task = asyncio.ensure_future(enter(async_rf.post("/"), pk=42))
        await entered.wait()
        # As Django does when the client has disconnected.
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(work(), 20))

    assert state("order:42") == "open"


def test_what_gives_a_coroutine_unannounced_is_refused(rf: RequestFactory) -> None:
    def view(request: HttpRequest, pk: int) -> Any:
        return atell(request)

    with pytest.raises(TypeError, match="gives a coroutine but is no coroutine function"):
        order_lock(view)(rf.post("/"), 42)

    assert state("order:42") == "open"


def holder_in(view: Any, request: HttpRequest) -> Any:
    """Return the holder that another caller finds while ``view`` runs under ``order:42``."""
    found: list[Any] = []

    def look(request: HttpRequest, pk: int = 42) -> HttpResponse:
        with pytest.raises(LockBusy) as caught:
            lock("order:42", reentrant=False).take(0)
        found.append(caught.value.holder)
        return HttpResponse()

    view(look)(request)
    return found[0]


def test_the_holder_record_names_the_view_or_what_was_chosen_and_the_note(
    rf: RequestFactory,
) -> None:
    usual = holder_in(redis_lock("order:<pk>", note="till 3"), rf.post("/"))
    chosen = holder_in(redis_lock("order:<pk>", label="payment"), rf.post("/"))

    assert str(usual).endswith(f"(view {__name__}.holder_in.<locals>.look; till 3)")
    assert chosen.label == "payment"


def test_the_holder_record_names_the_class_behind_a_decorated_method(rf: RequestFactory) -> None:
    def of_class(view: Any) -> Any:
        pay: Any = type("Pay", (View,), {"post": lambda self, request: view(request)})
        return method_decorator(redis_lock("order:42"), name="dispatch")(pay).as_view()

    holder = holder_in(of_class, rf.post("/"))

    assert holder.label == f"view {__name__}.Pay.dispatch"


def test_the_holder_record_names_a_user_who_is_known_and_looks_none_up(rf: RequestFactory) -> None:
    looked_up: list[str] = []
    known: Any = rf.post("/")
    known._cached_user = User(username="ann")  # noqa: SLF001 - as auth does
    requests = (
        by_user(known, SimpleLazyObject(lambda: get_user(known))),
        by_user(rf.post("/"), User(username="bob")),
        by_user(rf.post("/"), SimpleLazyObject(lambda: looked_up.append("user"))),
    )

    assert [holder_in(order_lock, one).user for one in requests] == ["ann", "bob", ""]
    assert looked_up == []
