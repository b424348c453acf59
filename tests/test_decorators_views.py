from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth import get_user
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.utils.decorators import method_decorator
from django.utils.functional import SimpleLazyObject
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from django_setnx_lock import LockBusy, lock, redis_lock
from django_setnx_lock.core.holder import Holder
from django_setnx_lock.core.keytemplate import MissingValue
from tests.views_urls import ROUTES, ByDispatch, ByMethod, seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpResponseBase
    from django.test import RequestFactory

    from tests.servers import FakeServer

pytestmark = pytest.mark.urls("tests.views_urls")


def holder_of(key: str) -> Holder:
    with pytest.raises(LockBusy) as caught:
        lock(key).take(0)
    assert caught.value.holder is not None
    return caught.value.holder


def body_of(response: HttpResponseBase) -> bytes:
    assert isinstance(response, HttpResponse)
    return response.content


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

    lock("order:42", timeout=0.2).take(0)
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


def test_the_holder_record_names_the_view_and_the_note(rf: RequestFactory) -> None:
    @redis_lock("order:<pk>", note="till 3")
    def pay(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(str(holder_of("order:42")))

    response = pay(rf.post("/"), pk=42)

    assert f"(view {__name__}.{pay.__qualname__}; till 3)" in response.content.decode()


def test_the_holder_record_names_the_class_behind_a_decorated_method(rf: RequestFactory) -> None:
    @method_decorator(redis_lock("order:<pk>"), name="dispatch")
    class Pay(View):
        def post(self, request: HttpRequest, pk: int) -> HttpResponse:
            return HttpResponse(holder_of("order:42").label)

    response = Pay.as_view()(rf.post("/"), pk=42)

    assert body_of(response).decode() == f"view {__name__}.{Pay.__qualname__}.dispatch"


def test_the_label_can_be_chosen(rf: RequestFactory) -> None:
    @redis_lock("order:<pk>", label="payment")
    def pay(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse(holder_of("order:42").label)

    assert pay(rf.post("/"), 42).content == b"payment"


@redis_lock("order:42")
def tell_user(request: HttpRequest) -> HttpResponse:
    return HttpResponse(holder_of("order:42").user)


def test_the_holder_record_names_a_user_who_was_looked_up_already(rf: RequestFactory) -> None:
    request = rf.post("/")
    request._cached_user = User(username="ann")  # type: ignore[attr-defined]  # as auth does
    request.user = SimpleLazyObject(lambda: get_user(request))  # type: ignore[assignment]  # as auth does

    assert tell_user(request).content == b"ann"


def test_the_holder_record_names_a_user_whom_a_middleware_set(rf: RequestFactory) -> None:
    request = rf.post("/")
    request.user = User(username="ann")

    assert tell_user(request).content == b"ann"


def test_a_user_is_not_looked_up_for_the_holder_record(rf: RequestFactory) -> None:
    looked_up: list[str] = []
    request = rf.post("/")
    request.user = SimpleLazyObject(lambda: looked_up.append("user"))  # type: ignore[assignment]  # as auth does

    response = tell_user(request)

    assert (response.content, looked_up) == (b"", [])


def test_a_busy_page_does_not_vary_on_the_cookie() -> None:
    with lock("order:42"):
        response = Client().post("/function/42/")

    assert response["Vary"] == "Accept"


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


def order_view(request: HttpRequest, pk: int) -> HttpResponse:
    """Pay an order."""
    return HttpResponse(seen(pk))


Decorator = Any  # Django's decorators keep no common type
OTHERS: list[Decorator] = [
    csrf_exempt,
    never_cache,
    login_required,
    require_POST,
    transaction.non_atomic_requests,
]
both_orders = pytest.mark.parametrize("lock_outside", [True, False], ids=["outside", "inside"])
all_others = pytest.mark.parametrize("other", OTHERS, ids=lambda other: other.__name__)


def combined(other: Decorator, *, lock_outside: bool) -> Callable[..., HttpResponse]:
    order_lock = redis_lock("order:<pk>")
    view: Callable[..., HttpResponse] = (
        order_lock(other(order_view)) if lock_outside else other(order_lock(order_view))
    )
    return view


def with_user(request: HttpRequest) -> HttpRequest:
    request.user = User(pk=1)
    return request


@both_orders
@all_others
def test_a_view_with_another_decorator_runs_under_the_lock(
    other: Decorator, lock_outside: bool, rf: RequestFactory
) -> None:
    view = combined(other, lock_outside=lock_outside)

    response = view(with_user(rf.post("/")), pk=42)

    assert response.content == b"locked"


@both_orders
@all_others
def test_a_view_with_another_decorator_can_be_called_by_position(
    other: Decorator, lock_outside: bool, rf: RequestFactory
) -> None:
    view = combined(other, lock_outside=lock_outside)

    response = view(with_user(rf.post("/")), 42)

    assert response.content == b"locked"


@both_orders
@all_others
def test_a_view_with_another_decorator_keeps_its_name_and_docstring(
    other: Decorator, lock_outside: bool
) -> None:
    view = combined(other, lock_outside=lock_outside)

    assert (view.__name__, view.__doc__) == ("order_view", "Pay an order.")


@both_orders
def test_csrf_exempt_keeps_working(lock_outside: bool) -> None:
    view = combined(csrf_exempt, lock_outside=lock_outside)

    assert vars(view)["csrf_exempt"] is True


@both_orders
def test_non_atomic_requests_keeps_working(lock_outside: bool) -> None:
    view = combined(transaction.non_atomic_requests, lock_outside=lock_outside)

    assert vars(view)["_non_atomic_requests"] == {"default"}


@both_orders
def test_never_cache_keeps_working(lock_outside: bool, rf: RequestFactory) -> None:
    view = combined(never_cache, lock_outside=lock_outside)

    response = view(rf.post("/"), pk=42)

    assert "no-cache" in response["Cache-Control"]


@both_orders
def test_require_post_keeps_working(lock_outside: bool, rf: RequestFactory) -> None:
    view = combined(require_POST, lock_outside=lock_outside)

    assert view(rf.get("/"), pk=42).status_code == 405


@both_orders
def test_login_required_keeps_working(lock_outside: bool, rf: RequestFactory) -> None:
    view = combined(login_required, lock_outside=lock_outside)
    request = rf.post("/")
    request.user = AnonymousUser()

    assert view(request, pk=42).status_code == 302


@both_orders
def test_decorators_can_be_combined_in_one_method_decorator(
    lock_outside: bool, rf: RequestFactory
) -> None:
    decorators: list[Decorator] = [redis_lock("order:<pk>"), never_cache]
    if not lock_outside:
        decorators.reverse()

    @method_decorator(decorators, name="post")
    class Pay(View):
        def post(self, request: HttpRequest, pk: int) -> HttpResponse:
            return HttpResponse(seen(pk))

    response = Pay.as_view()(rf.post("/"), 42)

    assert (body_of(response), "no-cache" in response["Cache-Control"]) == (b"locked", True)


def test_two_locks_can_be_stacked(rf: RequestFactory) -> None:
    @redis_lock("shop:<shop>")
    @redis_lock("order:<pk>")
    def pay(request: HttpRequest, shop: str, pk: int) -> HttpResponse:
        return HttpResponse(f"{lock('shop:north').locked()} {seen(pk)}")

    assert pay(rf.post("/"), "north", pk=42).content == b"True locked"


def test_a_decorator_beneath_may_change_the_arguments(rf: RequestFactory) -> None:
    def load_order(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        @wraps(view)
        def loaded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            return view(request, order=f"order {kwargs.pop('pk')}")

        return loaded

    @redis_lock("till")
    @load_order
    def pay(request: HttpRequest, order: str) -> HttpResponse:
        return HttpResponse(order)

    assert pay(rf.post("/"), pk=42).content == b"order 42"


def test_an_async_class_based_view_is_told_apart_at_the_first_call(rf: RequestFactory) -> None:
    @method_decorator(redis_lock("order:<pk>"), name="dispatch")
    class Pay(View):
        async def post(self, request: HttpRequest, pk: int) -> HttpResponse:
            return HttpResponse()

    with pytest.raises(TypeError, match=r"Pay\.dispatch is async"):
        Pay.as_view()(rf.post("/"), pk=42)

    assert not lock("order:42").locked()


def test_an_async_method_is_told_apart_at_the_first_call(rf: RequestFactory) -> None:
    @method_decorator(redis_lock("order:<pk>"), name="post")
    class Pay(View):
        async def post(self, request: HttpRequest, pk: int) -> HttpResponse:
            return HttpResponse()

    view: Any = Pay.as_view()
    with pytest.raises(TypeError, match=r"post is async"):
        view(rf.post("/"), pk=42)


def test_a_decorated_class_keeps_its_methods_introspectable() -> None:
    assert ByMethod.post.__name__ == "post"
    assert ByDispatch.dispatch.__name__ == "dispatch"
