"""In a TestCase each test is in a transaction of its own, which is none of the developer's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_setnx_lock import lock, redis_lock
from tests.databases import state
from tests.settings import FAKE
from tests.support import seams

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


@redis_lock("a")
def add(request: HttpRequest) -> HttpResponse:
    Group.objects.create(name="x")
    transaction.on_commit(lambda: seen.append(state("a")))
    if "fail" in request.GET:
        raise ValueError("no")
    return HttpResponse(state("a"))


urlpatterns = [path("add/", add)]
seen: list[str] = []


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Hold each test to it that nothing waits any more for the end of a transaction."""
    seen.clear()
    yield
    assert seams.waiting_for_the_end() == []


@pytest.fixture
def atomic_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)


def by_block() -> None:
    with lock("a"):
        pass


def test_the_transaction_of_the_test_does_not_count() -> None:
    by_block()

    assert state("a") == "open"


def test_no_transaction_within_it_does_either() -> None:
    with transaction.atomic():
        by_block()

        assert state("a") == "open"


@pytest.mark.usefixtures("atomic_requests")
def test_a_view_under_atomic_requests_is_as_in_production(
    django_capture_on_commit_callbacks: Any,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        response = Client().get("/add/")

    assert (response.content, state("a"), Group.objects.count()) == (b"locked", "open", 1)
    assert seen == ["open"]


@pytest.mark.usefixtures("atomic_requests")
def test_a_view_that_fails_is_rolled_back() -> None:
    response = Client(raise_request_exception=False).get("/add/?fail")

    assert (response.status_code, state("a"), Group.objects.count()) == (500, "open", 0)


def lose(request: HttpRequest) -> HttpResponse:
    Group.objects.create(name="x")
    FAKE.client().delete("lock:a")
    return HttpResponse()


LOSING = {
    "locked": redis_lock("a")(lose),
    "hidden": lambda request: redis_lock("a")(lose)(request),
    "exempt": transaction.non_atomic_requests(redis_lock("a")(lose)),
}
urlpatterns += [path(f"{name}/", view) for name, view in LOSING.items()]


@pytest.mark.usefixtures("atomic_requests")
@pytest.mark.parametrize(("name", "written"), [("locked", 0), ("hidden", 0), ("exempt", 1)])
def test_a_request_that_lost_its_lock_rolls_back_its_own_transaction_only(
    name: str, written: int
) -> None:
    Group.objects.create(name="mine")

    response = Client().get(f"/{name}/")

    assert (response.status_code, Group.objects.count()) == (503, 1 + written)
