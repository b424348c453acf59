from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache

from django_setnx_lock import LockLost, lock, redis_lock
from tests.databases import SECOND, second_database, state
from tests.settings import FAKE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from django.test import RequestFactory

    from tests.servers import FakeServer

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True)]

a_lock = redis_lock("a", reentrant=True)


def add(request: HttpRequest) -> HttpResponse:
    """Add a group, and tell which databases are in a transaction."""
    Group.objects.create(name="x")
    match request.GET.get("then"):
        case "fail":
            raise ValueError("no")
        case "lose":
            FAKE.client().delete(f"lock:{request.GET.get('key', 'a')}")
        case "find-out":
            with lock("a", reentrant=True) as held:
                FAKE.client().delete("lock:a")
                held.check()
        case "refuse":
            FAKE.client().delete("lock:a")
            raise LockLost("as a write with its fence does", key="a")
        case "disconnect":
            FAKE.connected = False
    return HttpResponse(" ".join(one.alias for one in connections.all() if one.in_atomic_block))


def helper(request: HttpRequest) -> HttpResponse:
    return a_lock(add)(request)


def within(request: HttpRequest) -> HttpResponse:
    with lock("a"):
        Group.objects.create(name="x")
    FAKE.client().delete("lock:a")
    return HttpResponse()


@method_decorator(a_lock, name="dispatch")
class ByDispatch(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return add(request)


class Unlocked(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return add(request)


class Calls(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return a_lock(add)(request)


def calls_in_block(request: HttpRequest) -> HttpResponse:
    """Call a locked view in a block of its own."""
    with transaction.atomic():
        return a_lock(add)(request)


class ByMethod(View):
    @method_decorator(a_lock)
    def get(self, request: HttpRequest) -> HttpResponse:
        return add(request)


@method_decorator(transaction.non_atomic_requests, name="dispatch")
@method_decorator(a_lock, name="dispatch")
class ExemptOutside(Unlocked): ...


@method_decorator([transaction.non_atomic_requests, a_lock], name="dispatch")
class ExemptListed(Unlocked): ...


def counts(view: Any) -> Any:
    """Decorate ``view`` as other packages do: it asks the database, and keeps the attributes."""

    @wraps(view)
    def counted(*args: Any, **kwargs: Any) -> Any:
        Group.objects.count()
        return view(*args, **kwargs)

    return counted


b_lock = redis_lock("b")
LISTS: dict[str, list[Any]] = {
    "listed": [b_lock, a_lock],
    "listed-with-another-between": [b_lock, counts, a_lock],
    "listed-with-one-that-exits": [redis_lock("b", until_commit=False), a_lock],
}


@method_decorator(a_lock, name="dispatch")
@method_decorator(b_lock, name="dispatch")
class Stacked(Unlocked): ...


def listed(decorators: list[Any]) -> Any:
    @method_decorator(decorators, name="dispatch")
    class Listed(Unlocked): ...

    return Listed.as_view()


class AsyncUnlocked(View):
    async def dispatch(  # type: ignore[override]  # as of an async view
        self, request: HttpRequest
    ) -> HttpResponse:
        states = [await lock(key).alocked() for key in ("a", "b")]
        return HttpResponse("both" if all(states) else "not both")

    async def get(self, request: HttpRequest) -> HttpResponse:
        raise AssertionError("dispatch answers")


@method_decorator([b_lock, a_lock], name="dispatch")
class AsyncListed(AsyncUnlocked): ...


@method_decorator([transaction.non_atomic_requests, b_lock, a_lock], name="dispatch")
class AsyncListedExempt(AsyncUnlocked): ...


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
    "stacked": Stacked.as_view(),
    **{name: listed(decorators) for name, decorators in LISTS.items()},
}
LOSSES = ["lose", "find-out", "refuse"]
LOCKED_INSIDE = {"hidden": hides(a_lock(add)), "method": ByMethod.as_view()}
EXEMPT = {
    "exempt-inside": a_lock(transaction.non_atomic_requests(hides(add))),
    "exempt-outside": transaction.non_atomic_requests(a_lock(hides(add))),
    "exempt-dispatch-outside": ExemptOutside.as_view(),
    "exempt-dispatch-listed": ExemptListed.as_view(),
    "exempt-between": listed([b_lock, transaction.non_atomic_requests, a_lock]),
}
VIEWS = {
    **LOCKED_OUTSIDE,
    **LOCKED_INSIDE,
    **EXEMPT,
    "exit": redis_lock("a", reentrant=True, until_commit=False)(add),
    "hidden-exit": hides(redis_lock("a", reentrant=True, until_commit=False)(add)),
    "in-block": calls_in_block,
    "in-block-of-locked": b_lock(calls_in_block),
    "listed-calls": method_decorator([b_lock, redis_lock("c")], name="dispatch")(Calls).as_view(),
    "within": redis_lock("b")(within),
    "helper": transaction.non_atomic_requests(helper),
    "second-exempt": a_lock(transaction.non_atomic_requests(using=SECOND)(hides(add))),
    "async": async_view,
    "async-listed": AsyncListed.as_view(),
    "async-listed-exempt": AsyncListedExempt.as_view(),
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
def two_databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have transactions of requests in a second database, too."""
    with second_database(tmp_path):
        monkeypatch.setitem(connections.settings[SECOND], "ATOMIC_REQUESTS", True)
        yield


@pytest.mark.parametrize("name", [*LOCKED_OUTSIDE, *LOCKED_INSIDE])
def test_the_lock_outlives_the_transaction_of_the_request(name: str, journal: list[str]) -> None:
    with pytest.raises(ValueError, match="no"):
        Client().get(f"/{name}/?then=fail")
    response = Client().get(f"/{name}/")

    assert response.content == b"default"
    assert journal == ["rollback default locked", "commit default locked"]
    assert (state("a"), Group.objects.count()) == ("open", 1)


BUSY = [(name, "a") for name in LOCKED_OUTSIDE] + [(name, "b") for name in LISTS]


@pytest.mark.parametrize(("name", "key"), BUSY)
def test_a_request_that_finds_the_lock_busy_begins_no_transaction(
    name: str, key: str, journal: list[str]
) -> None:
    with lock(key):
        response = Client().get(f"/{name}/")

    assert (response.status_code, journal) == (409, [])


@pytest.mark.parametrize("name", ["twice", "stacked", "listed"])
@pytest.mark.parametrize("key", ["a", "b"])
def test_a_request_that_has_lost_any_of_its_locks_is_rolled_back_and_told_of_once(
    name: str, key: str, journal: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    response = Client().get(f"/{name}/?then=lose&key={key}")

    assert (response.status_code, Group.objects.count()) == (503, 0)
    assert [one.split()[0] for one in journal] == ["rollback"]
    told = [one.getMessage() for one in caplog.records if one.name == "django_setnx_lock.views"]
    assert [one.partition(" is no longer")[0] for one in told] == [f"the lock {key!r}"]


@pytest.mark.parametrize(("name", "then"), [("exit", "locked"), ("hidden-exit", "open")])
def test_the_transaction_of_a_view_ends_under_its_lock_whatever_the_options(
    name: str, then: str, journal: list[str]
) -> None:
    response = Client().get(f"/{name}/")

    assert response.content == b"default"
    # A lock that is taken within the transaction is another matter.
    assert journal == [f"commit default {then}"]


@pytest.mark.parametrize("name", EXEMPT)
def test_a_view_that_is_exempt_runs_in_no_transaction(name: str, journal: list[str]) -> None:
    response = Client().get(f"/{name}/")

    assert (response.content, journal) == (b"", [])


@pytest.mark.usefixtures("two_databases")
def test_databases_without_the_setting_and_one_that_is_exempt_have_no_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exempt = Client().get("/second-exempt/")
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", False)
    Group.objects.all().delete()
    unset = Client().get("/function/")

    assert (exempt.content, unset.content) == (b"default", SECOND.encode())


@pytest.mark.usefixtures("two_databases")
def test_the_lock_outlives_the_transactions_of_all_databases(journal: list[str]) -> None:
    Client().get("/function/")

    assert journal == ["commit second locked", "commit default locked"]
    assert state("a") == "open"


@pytest.mark.parametrize("call", [a_lock(add), lambda request: Client().get("/helper/")])
def test_without_the_handler_a_locked_function_begins_no_transaction(
    call: Any, rf: RequestFactory
) -> None:
    assert call(rf.get("/")).content == b""


@pytest.mark.parametrize("then", LOSSES)
@pytest.mark.parametrize("name", [*LOCKED_OUTSIDE, *LOCKED_INSIDE])
def test_a_request_whose_lock_was_lost_is_rolled_back_and_answered(
    name: str, then: str, journal: list[str]
) -> None:
    response = Client().get(f"/{name}/?then={then}")

    assert response.status_code == 503
    assert journal == ["rollback default open"]
    assert Group.objects.count() == 0


@pytest.mark.parametrize("name", LOCKED_INSIDE)
@pytest.mark.usefixtures("two_databases")
def test_a_lost_lock_rolls_back_what_the_handler_began_of_all_databases(
    name: str, journal: list[str]
) -> None:
    response = Client().get(f"/{name}/?then=lose")

    assert response.status_code == 503
    assert sorted(journal) == ["rollback default open", "rollback second open"]


@pytest.mark.parametrize("then", LOSSES[:2])
@pytest.mark.parametrize("name", ["function", "listed"])
def test_a_lost_request_within_a_transaction_leaves_that_as_it_is(name: str, then: str) -> None:
    with transaction.atomic():
        Group.objects.create(name="mine")
        response = Client().get(f"/{name}/?then={then}")
        within = [one.name for one in Group.objects.all()]

    assert (response.status_code, within) == (503, ["mine"])
    assert [one.name for one in Group.objects.all()] == ["mine"]


@pytest.mark.parametrize("then", LOSSES)
@pytest.mark.parametrize("name", ["function", "exempt-inside", "exempt-outside", "exit"])
def test_a_view_that_lost_its_lock_in_the_block_of_its_caller_raises_and_so_rolls_that_back(
    name: str, then: str, rf: RequestFactory
) -> None:
    with pytest.raises(LockLost), transaction.atomic():
        VIEWS[name](rf.get("/", {"then": then}))

    assert Group.objects.count() == 0


@pytest.mark.parametrize("then", LOSSES[:2])
@pytest.mark.parametrize("name", LOCKED_INSIDE)
def test_a_lost_lock_is_raised_through_the_transaction_of_the_handler(name: str, then: str) -> None:
    with override_settings(MIDDLEWARE=[]), pytest.raises(LockLost):
        Client().get(f"/{name}/?then={then}")

    assert Group.objects.count() == 0


@pytest.mark.parametrize("then", LOSSES[:2])
@pytest.mark.parametrize("name", ["in-block", "in-block-of-locked", "listed-calls", "within"])
def test_a_loss_in_a_block_or_another_view_inside_is_rolled_back_and_answered(
    name: str, then: str
) -> None:
    response = Client().get(f"/{name}/?then={then}")

    assert (response.status_code, Group.objects.count()) == (503, 0)


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


@pytest.mark.parametrize("name", ["async", "async-listed"])
@pytest.mark.parametrize("until_commit", [True, False])
def test_async_views_are_refused_as_django_does(until_commit: bool, name: str) -> None:
    with (
        override_settings(SETNX_LOCK={"UNTIL_COMMIT": until_commit}),
        pytest.raises(RuntimeError, match="You cannot use ATOMIC_REQUESTS with async views"),
    ):
        asyncio.run(AsyncClient().get(f"/{name}/"))


@pytest.mark.usefixtures("fake_connections")
@pytest.mark.parametrize(
    ("name", "said"), [("async-exempt", "locked"), ("async-listed-exempt", "both")]
)
def test_async_views_that_are_exempt_run_under_their_locks(name: str, said: str) -> None:
    response = asyncio.run(AsyncClient().get(f"/{name}/"))

    assert response.content.decode() == said


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
