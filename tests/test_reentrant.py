"""The doors of the project give a lock again to who holds it, unless they are told not to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory, override_settings

from django_setnx_lock import LockBusy, lock, redis_lock
from django_setnx_lock.connection import get_client
from tests.core.helpers import in_thread
from tests.test_decorators import charge as charge_order


@pytest.fixture(autouse=True)
def default() -> Iterator[None]:
    """Have the setting as it is by default."""
    with override_settings(SETNX_LOCK={}):
        yield


@redis_lock("order:<pk>")
def book(pk: int) -> str | None:
    return lock(f"order:{pk}").take(0).token


@redis_lock("order:<pk>", reentrant=False, on_busy="raise")
def alone(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse()


@redis_lock("order:<pk>")
def pay(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse(book(pk))


@pytest.fixture
def request_() -> HttpRequest:
    return RequestFactory().post("/")


def test_two_locks_of_one_key_are_one() -> None:
    with lock("a") as outer, lock("a") as inner:
        assert inner.token == outer.token
        assert in_thread(lambda: lock("a").acquire(blocking=False)) is False

    assert not get_client().exists("lock:a")


def test_one_alone_can_differ() -> None:
    with lock("a"), pytest.raises(LockBusy):
        lock("a", reentrant=False).take(0)


@override_settings(SETNX_LOCK={"REENTRANT": False})
def test_the_setting_is_for_all_but_who_says_otherwise() -> None:
    with lock("a"), pytest.raises(LockBusy):
        lock("a").take(0)
    with lock("b", reentrant=True), lock("b", reentrant=True):
        pass


def test_a_locked_view_calls_a_locked_function(request_: HttpRequest) -> None:
    answer = pay(request_, 42)

    assert answer.status_code == 200
    assert len(answer.content) == 32
    assert not get_client().exists("lock:order:42")


def test_a_view_that_is_not_reentrant_finds_it_busy(request_: HttpRequest) -> None:
    with lock("order:42"), pytest.raises(LockBusy):
        alone(request_, 42)


def test_the_holder_goes_on_where_another_waits() -> None:
    with lock("order:42"):
        assert charge_order(42) == "locked"


@pytest.mark.parametrize("reentrant", [1, "yes"])
def test_reentrant_is_refused_at_decoration(reentrant: Any) -> None:
    with pytest.raises(TypeError, match="reentrant is True or False"):
        redis_lock("a", reentrant=reentrant)
