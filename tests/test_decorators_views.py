"""``@redis_lock`` on views of every kind, blocking and async."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter
from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.contrib.auth import get_user
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.test import Client
from django.utils.decorators import method_decorator
from django.utils.functional import SimpleLazyObject
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from django_setnx_lock import LockBusy, LockError, lock, redis_lock
from tests.processes import eventually
from tests.racing import post_all
from tests.views_urls import ROUTES, by_function, seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import AsyncRequestFactory, RequestFactory
    from pytest_django.live_server_helper import LiveServer

    from tests.servers import FakeServer, RealServer

pytestmark = [pytest.mark.urls("tests.views_urls"), pytest.mark.usefixtures("fake_connections")]
every_route = pytest.mark.parametrize("route", ROUTES)
order_lock = redis_lock("order:<pk>")


def held(key: str = "lock:order:42") -> bool:
    return bool(lock("order:42").client.exists(key))


@every_route
def test_every_kind_of_view_runs_under_its_lock_and_lets_it_go(route: str) -> None:
    response = Client().post(f"/{route}")

    assert (response.status_code, b"locked" in response.content) == (200, True)
    assert not held()


@every_route
def test_every_kind_of_view_answers_409_at_once_while_its_lock_is_held(route: str) -> None:
    with lock("order:42"):
        began = time.monotonic()
        response = Client().post(f"/{route}")

    assert response.status_code == 409
    # BLOCKING_TIMEOUT is 10 s.
    assert time.monotonic() - began < 5


async def pay(request: HttpRequest, pk: int) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse("locked" if held() else "open")


async def stay(request: HttpRequest, pk: int) -> HttpResponse:
    await asyncio.sleep(15)
    return HttpResponse("paid")


class Async(View):
    async def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return await pay(request, pk)


@method_decorator(order_lock, name="dispatch")
class AsyncDispatch(Async):
    pass


@method_decorator(order_lock, name="post")
class AsyncMethod(Async):
    pass


ASYNC: dict[str, Any] = {
    "function": order_lock(pay),
    "dispatch": AsyncDispatch.as_view(),
    "method": AsyncMethod.as_view(),
    "around": order_lock(Async.as_view()),
}
every_async_view = pytest.mark.parametrize("view", ASYNC.values(), ids=ASYNC)


@every_async_view
def test_an_async_view_runs_under_its_lock_and_lets_it_go(
    async_rf: AsyncRequestFactory, view: Any
) -> None:
    assert iscoroutinefunction(view)
    assert asyncio.run(view(async_rf.post("/"), pk=42)).content == b"locked"
    assert not held()


@every_async_view
def test_an_async_view_answers_409_while_its_lock_is_held(
    async_rf: AsyncRequestFactory, view: Any
) -> None:
    with lock("order:42"):
        assert asyncio.run(view(async_rf.post("/"), pk=42)).status_code == 409


def test_a_method_that_is_not_named_runs_without_the_lock() -> None:
    assert Client().get("/named-method/42/").content == b"open"


def test_another_order_is_another_lock() -> None:
    with lock("order:42"):
        assert Client().post("/function/43/").status_code == 200


def test_a_view_waits_when_told_to(rf: RequestFactory) -> None:
    view = redis_lock("order:<pk>", blocking_timeout=5)(inspect.unwrap(by_function))

    lock("order:42", timeout=1, renew=False).take(0)

    assert view(rf.post("/"), 42).content == b"locked"


@pytest.mark.parametrize("driver", ["sync", "async"])
def test_a_view_answers_503_when_redis_cannot_say(
    driver: str, rf: RequestFactory, async_rf: AsyncRequestFactory, fake_server: FakeServer
) -> None:
    fake_server.connected = False

    if driver == "sync":
        response: Any = by_function(rf.post("/"), 42)
    else:
        response = asyncio.run(order_lock(pay)(async_rf.post("/"), 42))

    assert response.status_code == 503


ANSWERED: dict[str, Any] = {
    "own": lambda request, error: HttpResponse(type(error).__name__, status=418),
    # Nothing refuses a call that blocks.
    "blocking": lambda request, error: HttpResponse(
        type(error).__name__ if lock("any").locked() is False else "", status=418
    ),
}


async def aanswered(request: HttpRequest, error: LockError) -> HttpResponse:
    await asyncio.sleep(0)
    return HttpResponse(type(error).__name__, status=418)


@pytest.mark.parametrize("answer", [*ANSWERED.values(), aanswered], ids=[*ANSWERED, "async"])
def test_a_view_answers_busy_in_its_own_way(
    rf: RequestFactory, async_rf: AsyncRequestFactory, answer: Any
) -> None:
    decorate = redis_lock("order:<pk>", on_busy=answer)

    with lock("order:42"):
        response: Any = decorate(inspect.unwrap(by_function))(rf.post("/"), 42)
        aresponse = asyncio.run(decorate(pay)(async_rf.post("/"), 42))

    assert response.content == aresponse.content == b"LockBusy"


def test_an_async_view_that_loses_its_lock_is_cancelled_and_answers_503(
    async_rf: AsyncRequestFactory,
) -> None:
    view = redis_lock("order:<pk>", timeout=0.3, renew=False)(stay)

    response = asyncio.run(view(async_rf.post("/"), pk=42))

    assert (response.status_code, "Retry-After" in response) == (503, False)


def test_an_async_view_that_finds_the_loss_itself_answers_503(
    async_rf: AsyncRequestFactory, fake_server: FakeServer
) -> None:
    @redis_lock("order:<pk>", reentrant=True)
    async def find_out(request: HttpRequest, pk: int) -> HttpResponse:
        async with lock(f"order:{pk}", reentrant=True) as again:
            fake_server.client().delete("lock:order:42")
            await again.acheck()
            raise AssertionError("not reached")

    assert asyncio.run(find_out(async_rf.post("/"), 42)).status_code == 503


def test_the_exception_of_an_async_view_comes_out(async_rf: AsyncRequestFactory) -> None:
    @order_lock
    async def missing(request: HttpRequest, pk: int) -> HttpResponse:
        raise Http404

    with pytest.raises(Http404):
        asyncio.run(missing(async_rf.post("/"), pk=42))

    assert not held()


def test_an_async_view_that_cannot_let_go_has_its_response_stand(
    async_rf: AsyncRequestFactory, fake_server: FakeServer
) -> None:
    @order_lock
    async def disconnect(request: HttpRequest, pk: int) -> HttpResponse:
        fake_server.connected = False
        return HttpResponse("paid")

    assert asyncio.run(disconnect(async_rf.post("/"), pk=42)).content == b"paid"


def test_a_client_that_goes_away_leaves_no_lock(async_rf: AsyncRequestFactory) -> None:
    async def work() -> None:
        entered = asyncio.Event()

        @order_lock
        async def enter(request: HttpRequest, pk: int) -> HttpResponse:
            entered.set()
            return await stay(request, pk)

        task = asyncio.ensure_future(enter(async_rf.post("/"), pk=42))
        await entered.wait()
        # As Django does when the client has disconnected.
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(work(), 20))

    assert not held()


def test_a_user_who_is_still_to_be_looked_up_can_be_in_the_key(
    async_rf: AsyncRequestFactory,
) -> None:
    def look_up() -> User:
        # As the ORM does.
        lock("any").locked()
        return User(pk=7)

    @redis_lock("cart:<user.pk>")
    async def show(request: HttpRequest) -> HttpResponse:
        return HttpResponse(str(held("lock:cart:7")))

    request: Any = async_rf.get("/")
    request.user = SimpleLazyObject(look_up)

    assert asyncio.run(show(request)).content == b"True"


def test_what_gives_a_coroutine_unannounced_is_refused(rf: RequestFactory) -> None:
    def view(request: HttpRequest, pk: int) -> Any:
        return pay(request, pk)

    with pytest.raises(TypeError, match="gives a coroutine but is no coroutine function"):
        order_lock(view)(rf.post("/"), 42)

    assert not held()


@redis_lock("cart:<user.pk>")
def check_out(request: HttpRequest, user: Any = None) -> HttpResponse:
    return HttpResponse(f"{held('lock:cart:7')} {held('lock:cart:8')}")


@redis_lock("cart:<user.pk>")
def show_cart(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(held("lock:cart:7")))


def with_user(rf: RequestFactory, user: Any) -> HttpRequest:
    request = rf.post("/")
    request.user = user
    return request


def test_a_key_names_attributes_of_the_request_unless_an_argument_is_called_so(
    rf: RequestFactory,
) -> None:
    request = with_user(rf, User(pk=7))

    assert show_cart(request).content == b"True"
    assert check_out(request, user=User(pk=8)).content == b"False True"


def test_a_visitor_without_a_user_does_not_share_a_lock_with_all_others(
    rf: RequestFactory,
) -> None:
    with pytest.raises(PermissionDenied, match=r"<user.pk> of the key 'cart:<user.pk>'"):
        show_cart(with_user(rf, AnonymousUser()))


def test_an_attribute_that_the_request_lacks_is_named_in_the_error(rf: RequestFactory) -> None:
    with pytest.raises(LookupError, match=r"<user\.pk>"):
        show_cart(rf.post("/"))


def test_a_key_can_name_the_request_whatever_the_view_calls_it(rf: RequestFactory) -> None:
    @redis_lock("by:<request.method>")
    def view(r: HttpRequest) -> HttpResponse:
        return HttpResponse(str(held("lock:by:POST")))

    assert view(rf.post("/")).content == b"True"


def test_the_body_of_the_request_is_left_unread(rf: RequestFactory) -> None:
    @order_lock
    def upload(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(request.read(4))

    def post() -> HttpRequest:
        return rf.post("/", b"data and more", content_type="text/plain")

    request = post()
    with lock("order:1"):
        upload(request, pk=1)

    assert upload(post(), pk=1).content == b"data"
    assert request.read(4) == b"data"


def test_a_page_under_csrf_protection_answers_403_before_the_lock_is_asked(
    fake_server: FakeServer,
) -> None:
    fake_server.connected = False

    assert Client(enforce_csrf_checks=True).post("/function/42/").status_code == 403


def test_a_busy_page_does_not_vary_on_the_cookie() -> None:
    with lock("order:42"):
        assert Client().post("/function/42/")["Vary"] == "Accept"


Decorator = Any  # Django's decorators keep no common type
OTHERS: list[Decorator] = [
    *(csrf_exempt, never_cache, login_required, require_POST, transaction.non_atomic_requests)
]


@pytest.mark.parametrize("lock_outside", [True, False], ids=["outside", "inside"])
@pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.__name__)
def test_other_decorators_work_above_and_below(
    other: Decorator, lock_outside: bool, rf: RequestFactory
) -> None:
    def order(request: HttpRequest, pk: int) -> HttpResponse:
        """Pay an order."""
        return HttpResponse(seen(pk))

    view = order_lock(other(order)) if lock_outside else other(order_lock(order))

    for response in (
        view(with_user(rf, User(pk=1)), pk=42),
        view(with_user(rf, User(pk=1)), 42),
    ):
        assert response.content == b"locked"
    assert (view.__name__, view.__doc__) == ("order", "Pay an order.")
    # What a decorator has noted at the view is there still.
    assert vars(other(order)).keys() - {"__wrapped__"} <= vars(view).keys()


def test_a_view_can_have_several_locks_and_decorators_in_one_list(rf: RequestFactory) -> None:
    class Pay(View):
        def post(self, request: HttpRequest, shop: str, pk: int) -> HttpResponse:
            return HttpResponse(f"{held('lock:shop:north')} {seen(pk)}")

    several: list[Decorator] = [redis_lock("shop:<shop>"), never_cache, order_lock]
    response: Any = method_decorator(several, name="post")(Pay).as_view()(
        rf.post("/"), "north", pk=42
    )

    assert response.content == b"True locked"
    assert "no-cache" in response["Cache-Control"]


def test_a_decorator_beneath_may_change_the_arguments(rf: RequestFactory) -> None:
    def load_order(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        @wraps(view)
        def loaded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            return view(request, order=f"order {kwargs.pop('pk')}")

        return loaded

    @redis_lock("till")
    @load_order
    def sell(request: HttpRequest, order: str) -> HttpResponse:
        return HttpResponse(order)

    assert sell(rf.post("/"), pk=42).content == b"order 42"


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
    @method_decorator(order_lock, name="dispatch")
    class Pay(View):
        def post(self, request: HttpRequest, pk: int) -> HttpResponse:
            with pytest.raises(LockBusy) as caught:
                lock("order:42", reentrant=False).take(0)
            return HttpResponse(getattr(caught.value.holder, "label", ""))

    response: Any = Pay.as_view()(rf.post("/"), pk=42)

    assert response.content.decode() == f"view {__name__}.{Pay.__qualname__}.dispatch"


def test_the_holder_record_names_a_user_who_is_known_and_looks_none_up(rf: RequestFactory) -> None:
    looked_up: list[str] = []
    known, set_, lazy = rf.post("/"), rf.post("/"), rf.post("/")
    known._cached_user = User(username="ann")  # type: ignore[attr-defined]  # noqa: SLF001 - as auth does
    known.user = SimpleLazyObject(lambda: get_user(known))  # type: ignore[assignment]  # as auth does
    set_.user = User(username="bob")
    lazy.user = SimpleLazyObject(lambda: looked_up.append("user"))  # type: ignore[assignment]  # as auth does

    assert [holder_in(order_lock, one).user for one in (known, set_, lazy)] == ["ann", "bob", ""]
    assert looked_up == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("where", "inside"), [("racing", 1), ("racing-unlocked", 20)])
def test_of_twenty_posts_at_once_one_is_let_in(
    where: str, inside: int, real_cache: RealServer, live_server: LiveServer
) -> None:
    answers = Counter(post_all(live_server, [f"/{where}/42/"] * 20))

    assert (answers[200], answers[409]) == (inside, 20 - inside)
    eventually(lambda: not real_cache.client().exists("lock:order:42"))
