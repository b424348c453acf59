from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import override_settings

from django_setnx_lock import LockBusy, LockLost, LockUnavailable, lock, redis_lock
from django_setnx_lock.connection import get_client

if TYPE_CHECKING:
    from django.test import RequestFactory

    from tests.servers import FakeServer


@redis_lock("order:<pk>")
def charge(pk: int, *, twice: bool = False) -> str:
    """Charge an order."""
    return "locked" if lock(f"order:{pk}").locked() else "open"


def test_a_function_runs_under_its_lock() -> None:
    assert charge(42) == "locked"


def test_the_function_beneath_runs_without_it() -> None:
    assert inspect.unwrap(charge)(42) == "open"


def test_the_lock_is_let_go_after_a_function() -> None:
    charge(42)

    assert not lock("order:42").locked()


def test_a_function_with_min_hold_runs_once_in_that_time() -> None:
    @redis_lock("tick", min_hold=20, blocking_timeout=0)
    def tick() -> str:
        return "ran"

    assert tick() == "ran"
    with pytest.raises(LockBusy):
        tick()


def test_the_lock_is_let_go_when_a_function_raises() -> None:
    @redis_lock("order:<pk>")
    def fail(pk: int) -> None:
        raise KeyError(pk)

    with pytest.raises(KeyError):
        fail(42)

    assert not lock("order:42").locked()


def test_a_decorated_function_keeps_its_name_docstring_and_signature() -> None:
    assert (charge.__name__, charge.__doc__) == ("charge", "Charge an order.")
    assert list(inspect.signature(charge).parameters) == ["pk", "twice"]


def test_a_default_fills_the_key() -> None:
    @redis_lock("report:<kind>")
    def report(kind: str = "daily") -> bool:
        return lock("report:daily").locked()

    assert report() is True


def test_keywords_beyond_the_parameters_fill_the_key() -> None:
    @redis_lock("report:<kind>")
    def report(**options: str) -> bool:
        return lock("report:daily").locked()

    assert report(kind="daily") is True


def test_an_attribute_of_an_argument_fills_the_key() -> None:
    class Order:
        pk = 42

    @redis_lock("order:<order.pk>")
    def pay(order: Order) -> bool:
        return lock("order:42").locked()

    assert pay(Order()) is True


def test_a_value_cannot_reach_into_the_next_one() -> None:
    @redis_lock("<shop>:<order>")
    def pay(shop: str, order: str) -> list[bytes]:
        return list(get_client().keys("lock:*"))

    assert pay("a:b", "c") == [b"lock:a%3Ab:c"]


def test_a_method_runs_under_its_lock() -> None:
    class Till:
        @redis_lock("till:<number>")
        def open(self, number: int) -> bool:
            return lock("till:3").locked()

    assert Till().open(3) is True


def test_a_method_can_name_an_attribute_of_its_object() -> None:
    class Till:
        number = 3

        @redis_lock("till:<self.number>")
        def open(self) -> bool:
            return lock("till:3").locked()

    assert Till().open() is True


def test_a_bound_method_can_be_decorated() -> None:
    class Till:
        def open(self, number: int) -> bool:
            return lock("till:3").locked()

    locked = redis_lock("till:<number>")(Till().open)

    assert locked(3) is True


def test_a_static_method_runs_under_its_lock() -> None:
    class Till:
        @staticmethod
        @redis_lock("till:<number>")
        def open(number: int) -> bool:
            return lock("till:3").locked()

    assert Till.open(3) is True


def test_a_partial_runs_under_its_lock() -> None:
    def pay(shop: str, pk: int) -> bool:
        return lock("north:42").locked()

    locked = redis_lock("<shop>:<pk>")(partial(pay, shop="north"))

    assert locked(pk=42) is True


def test_a_builtin_can_have_a_lock_that_names_nothing() -> None:
    assert redis_lock("all")(max)(1, 2) == 2


def test_a_call_that_the_function_does_not_take_is_refused_before_the_lock(
    fake_server: FakeServer,
) -> None:
    fake_server.connected = False

    with pytest.raises(TypeError, match="pk"):
        charge()  # type: ignore[call-arg]  # the mistake under test


def test_a_busy_function_raises_with_the_holder() -> None:
    @redis_lock("order:<pk>", blocking_timeout=0)
    def pay(pk: int) -> None:
        raise AssertionError("must not run")

    with lock("order:42", label="first"), pytest.raises(LockBusy) as caught:
        pay(42)

    assert caught.value.holder is not None
    assert caught.value.holder.label == "first"


def test_a_function_waits_as_long_as_the_setting_says() -> None:
    lock("order:42", timeout=1, renew=False).take(0)

    assert charge(42) == "locked"


@override_settings(SETNX_LOCK={"BLOCKING_TIMEOUT": 0})
def test_a_function_does_not_wait_where_the_setting_says_so() -> None:
    lock("order:42", timeout=30, reentrant=False).take(0)

    with pytest.raises(LockBusy):
        charge(42)


def test_a_function_raises_when_redis_cannot_say(fake_server: FakeServer) -> None:
    fake_server.connected = False

    with pytest.raises(LockUnavailable):
        charge(42)


def test_a_function_whose_lock_was_lost_raises() -> None:
    @redis_lock("order:<pk>")
    def pay(pk: int) -> None:
        get_client().delete(f"lock:order:{pk}")

    with pytest.raises(LockLost):
        pay(42)


def test_the_holder_record_names_the_function() -> None:
    @redis_lock("order:<pk>")
    def pay(pk: int) -> str:
        with pytest.raises(LockBusy) as caught:
            lock("order:42").take(0)
        return str(caught.value.holder)

    assert f"(function {__name__}.{pay.__qualname__})" in pay(42)


def test_the_lease_is_the_one_asked_for() -> None:
    @redis_lock("order:<pk>", timeout=300)
    def pay(pk: int) -> int:
        return int(get_client().ttl(f"lock:order:{pk}"))

    assert 290 < pay(42) <= 300


@override_settings(CACHES={})
def test_another_cache_can_be_used() -> None:
    @redis_lock("order:<pk>", using="other")
    def pay(pk: int) -> None:
        raise AssertionError("must not run")

    with pytest.raises(Exception, match="there is no cache 'other'"):
        pay(42)


def test_a_call_without_a_request_raises_whatever_on_busy_answers_to_requests() -> None:
    @redis_lock("order:<pk>", blocking_timeout=0, on_busy=lambda request, error: HttpResponse())
    def pay(request: HttpRequest | None, pk: int) -> HttpResponse:
        return HttpResponse()

    with lock("order:42"), pytest.raises(LockBusy):
        pay(None, 42)


def test_a_helper_that_takes_the_request_answers_as_a_view_does(rf: RequestFactory) -> None:
    @redis_lock("order:<pk>")
    def reserve(request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse()

    with lock("order:42"):
        response = reserve(request=rf.post("/"), pk=42)

    assert response.status_code == 409
