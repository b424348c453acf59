from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import ResolverMatch, path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache

from django_setnx_lock import LockBusy, LockLost, atomic_requests, lock, redis_lock
from django_setnx_lock.connection import get_client
from django_setnx_lock.decorators import options_of
from tests.databases import SECOND, second_database, state
from tests.settings import FAKE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from django.test import RequestFactory

    from tests.servers import FakeServer

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True)]

a_lock = redis_lock("a")


def add(request: HttpRequest) -> HttpResponse:
    """Add a group, and tell which databases are in a transaction."""
    Group.objects.create(name="x")
    match request.GET.get("then"):
        case "fail":
            raise ValueError("no")
        case "lose":
            get_client().delete("lock:a")
        case "disconnect":
            FAKE.connected = False
    return HttpResponse(" ".join(one.alias for one in connections.all() if one.in_atomic_block))


def helper(request: HttpRequest) -> HttpResponse:
    return a_lock(add)(request)


def within(request: HttpRequest) -> HttpResponse:
    with lock("a"):
        Group.objects.create(name="x")
    get_client().delete("lock:a")
    return HttpResponse()


@method_decorator(a_lock, name="dispatch")
class ByDispatch(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return add(request)


class Unlocked(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return add(request)


class ByMethod(View):
    @method_decorator(a_lock)
    def get(self, request: HttpRequest) -> HttpResponse:
        return add(request)


@method_decorator(transaction.non_atomic_requests, name="dispatch")
@method_decorator(a_lock, name="dispatch")
class ExemptOutside(Unlocked): ...


@method_decorator(a_lock, name="dispatch")
@method_decorator(transaction.non_atomic_requests, name="dispatch")
class ExemptInside(Unlocked): ...


@method_decorator([transaction.non_atomic_requests, a_lock], name="dispatch")
class ExemptListed(Unlocked): ...


@a_lock
async def async_view(request: HttpRequest) -> HttpResponse:
    return HttpResponse("locked" if await lock("a").alocked() else "open")


def hides(view: Any) -> Any:
    return lambda request: view(request)


LOCKED_OUTSIDE = {
    "function": a_lock(add),
    "wrapped": never_cache(a_lock(add)),
    "twice": redis_lock("b")(a_lock(add)),
    "dispatch": ByDispatch.as_view(),
    "around-as-view": a_lock(Unlocked.as_view()),
}
LOCKED_INSIDE = {"hidden": hides(a_lock(add)), "method": ByMethod.as_view()}
EXEMPT = {
    "exempt-inside": a_lock(transaction.non_atomic_requests(hides(add))),
    "exempt-outside": transaction.non_atomic_requests(a_lock(hides(add))),
    "exempt-dispatch-inside": ExemptInside.as_view(),
    "exempt-dispatch-outside": ExemptOutside.as_view(),
    "exempt-dispatch-listed": ExemptListed.as_view(),
}
VIEWS = {
    **LOCKED_OUTSIDE,
    **LOCKED_INSIDE,
    **EXEMPT,
    "exit": redis_lock("a", release="exit")(add),
    "raise": redis_lock("a", on_lost="raise")(add),
    "within": redis_lock("b")(within),
    "helper": transaction.non_atomic_requests(helper),
    "second-exempt": a_lock(transaction.non_atomic_requests(using=SECOND)(hides(add))),
    "async": async_view,
    "async-exempt": transaction.non_atomic_requests(
        redis_lock("a")(async_view.__wrapped__)  # type: ignore[attr-defined]  # wraps() adds it
    ),
}
urlpatterns = [path(f"{name}/", view) for name, view in VIEWS.items()]


@pytest.fixture(autouse=True)
def atomic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    yield
    FAKE.connected = True
    Group.objects.all().delete()


@pytest.fixture
def two_databases(tmp_path: Path) -> Iterator[None]:
    with second_database(tmp_path):
        yield


@pytest.mark.parametrize("name", [*LOCKED_OUTSIDE, *LOCKED_INSIDE])
def test_the_lock_outlives_the_commit_of_the_request(name: str, journal: list[str]) -> None:
    response = Client().get(f"/{name}/")

    assert response.content == b"default"
    assert journal == ["commit default locked"]
    assert (state("a"), Group.objects.count()) == ("open", 1)


@pytest.mark.parametrize("name", [*LOCKED_OUTSIDE, *LOCKED_INSIDE])
def test_the_lock_outlives_the_rollback_of_the_request(name: str, journal: list[str]) -> None:
    with pytest.raises(ValueError, match="no"):
        Client().get(f"/{name}/?then=fail")

    assert journal == ["rollback default locked"]
    assert (state("a"), Group.objects.count()) == ("open", 0)


@pytest.mark.parametrize("name", LOCKED_OUTSIDE)
def test_a_request_that_finds_the_lock_busy_begins_no_transaction(
    name: str, journal: list[str]
) -> None:
    with lock("a"):
        response = Client().get(f"/{name}/")

    assert (response.status_code, journal) == (409, [])


def test_a_view_that_releases_at_its_exit_commits_unlocked(journal: list[str]) -> None:
    response = Client().get("/exit/")

    assert response.content == b"default"
    assert journal == ["commit default open"]


@override_settings(SETNX_LOCK={"RELEASE": "exit"})
def test_the_setting_says_when_views_release(journal: list[str]) -> None:
    response = Client().get("/function/")

    assert response.content == b"default"
    assert journal == ["commit default open"]


@pytest.mark.parametrize("name", EXEMPT)
def test_a_view_that_is_exempt_runs_in_no_transaction(name: str, journal: list[str]) -> None:
    response = Client().get(f"/{name}/")

    assert (response.content, journal) == (b"", [])


@pytest.mark.usefixtures("two_databases")
def test_databases_without_the_setting_have_no_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", False)
    monkeypatch.setitem(connections.settings[SECOND], "ATOMIC_REQUESTS", True)

    response = Client().get("/function/")

    assert response.content == SECOND.encode()


@pytest.mark.usefixtures("two_databases")
def test_the_lock_outlives_the_transactions_of_all_databases(
    monkeypatch: pytest.MonkeyPatch, journal: list[str]
) -> None:
    monkeypatch.setitem(connections.settings[SECOND], "ATOMIC_REQUESTS", True)

    Client().get("/function/")

    assert journal == ["commit second locked", "commit default locked"]
    assert state("a") == "open"


@pytest.mark.usefixtures("two_databases")
def test_one_database_of_several_can_be_exempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings[SECOND], "ATOMIC_REQUESTS", True)

    response = Client().get("/second-exempt/")

    assert response.content == b"default"


def test_a_locked_function_with_a_request_that_is_no_view_begins_no_transaction() -> None:
    response = Client().get("/helper/")

    assert response.content == b""


def test_a_view_that_is_called_without_the_handler_begins_no_transaction(
    rf: RequestFactory,
) -> None:
    response = a_lock(add)(rf.get("/"))

    assert response.content == b""


@pytest.mark.parametrize("name", [*LOCKED_OUTSIDE, *LOCKED_INSIDE])
def test_a_request_whose_lock_was_lost_is_rolled_back_and_answered(
    name: str, journal: list[str]
) -> None:
    response = Client().get(f"/{name}/?then=lose")

    assert response.status_code == 503
    assert journal == ["rollback default open"]
    assert Group.objects.count() == 0


def test_a_loss_that_nobody_looks_for_is_committed(
    journal: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_setnx_lock.guard.check_each", lambda _held: None)

    Client().get("/function/?then=lose")

    assert journal == ["commit default open"]


def test_a_lost_lock_can_be_left_to_django() -> None:
    with pytest.raises(LockLost, match="'a' is no longer ours"):
        Client().get("/raise/?then=lose")

    assert Group.objects.count() == 0


def test_a_request_is_committed_while_redis_is_away_and_the_lease_runs(
    fake_server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    response = Client().get("/function/?then=disconnect")

    assert (response.status_code, Group.objects.count()) == (200, 1)
    assert "its lease still runs" in caplog.text


def test_a_sync_view_that_is_served_asynchronously_is_no_different(journal: list[str]) -> None:
    response = asyncio.run(AsyncClient().get("/function/"))

    assert response.content == b"default"
    assert journal == ["commit default locked"]


def test_a_lock_within_a_view_that_was_lost_is_answered_as_the_views_own() -> None:
    response = Client().get("/within/")

    assert (response.status_code, Group.objects.count()) == (503, 0)


@pytest.mark.parametrize("release", ["commit", "exit"])
def test_async_views_are_refused_as_django_does(release: str) -> None:
    with (
        override_settings(SETNX_LOCK={"RELEASE": release}),
        pytest.raises(RuntimeError, match="You cannot use ATOMIC_REQUESTS with async views"),
    ):
        asyncio.run(AsyncClient().get("/async/"))


@pytest.mark.usefixtures("fake_connections")
def test_async_views_that_are_exempt_run_under_the_lock() -> None:
    response = asyncio.run(AsyncClient().get("/async-exempt/"))

    assert response.content == b"locked"


def test_an_async_view_that_the_handler_takes_for_another_is_refused(rf: RequestFactory) -> None:
    view: Any = redis_lock("a")(async_view.__wrapped__)  # type: ignore[attr-defined]  # as above
    (options,) = options_of(view)
    view._non_atomic_requests = atomic_requests.LeftToLock(options, None, ())
    request = rf.get("/")
    request.resolver_match = ResolverMatch(view, (), {})

    with pytest.raises(RuntimeError, match="You cannot use ATOMIC_REQUESTS with async views"):
        asyncio.run(view(request))


def test_callbacks_of_the_commit_run_under_the_lock_of_the_view() -> None:
    seen: list[str] = []

    @transaction.non_atomic_requests
    @redis_lock("a")
    def view(request: HttpRequest) -> HttpResponse:
        with transaction.atomic():
            transaction.on_commit(lambda: seen.append(state("a")))
        return HttpResponse()

    view(HttpRequest())

    assert seen == ["locked"]


def test_a_busy_view_in_the_transaction_of_another_raises_as_ever(rf: RequestFactory) -> None:
    view = redis_lock("a", on_busy="raise")(add)

    with lock("a"), transaction.atomic(), pytest.raises(LockBusy):
        view(rf.get("/"))
