"""One lock is one label, in signals and in metrics, whatever door took it."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.auth.models import AnonymousUser
from django.core.management import call_command
from django.core.management.base import CommandParser
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.utils.decorators import method_decorator
from django.views import View
from prometheus_client import CollectorRegistry

from django_setnx_lock import KeyTemplate, lock, locked, redis_lock, rwlock, semaphore, signals
from django_setnx_lock.admin import locked_action
from django_setnx_lock.contrib.celery import locked_task
from django_setnx_lock.contrib.prometheus import LockCollector, LockMetrics
from django_setnx_lock.management import LockedCommand
from django_setnx_lock.views import LockedViewMixin
from tests.contrib import shop  # noqa: F401 - the tasks are of its app
from tests.contrib.expositions import Exposed
from tests.rows.models import Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.django_db

LABEL = "sale:<pk>"


@redis_lock("sale:<pk:int>")
def function_view(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse()


@method_decorator(redis_lock("sale:<pk:str>"), name="dispatch")
class ClassView(View):
    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse()


class MixedView(LockedViewMixin, View):
    lock_key = "sale:<pk:int>"

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        return HttpResponse()


@redis_lock(lambda request, pk: f"sale:{pk}")
def view_with_a_callable(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse()


@locked("sale:<pk:int>")
def function(pk: int) -> None:
    pass


class Tickets(ModelAdmin):  # type: ignore[type-arg]  # is none of a type as it runs
    @locked_action("sale:<pk>")
    def action(self, request: HttpRequest, queryset: Any) -> None:
        pass


class Command(LockedCommand):
    lock_key = "sale:<pk:int>"
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("pk")

    def handle(self, *args: Any, **options: Any) -> None:
        pass


@locked_task("sale:<pk:int>")
def task(pk: int) -> None:
    pass


def by_action() -> None:
    Ticket.objects.create(pk=7, code="a")
    request = RequestFactory().post("/")
    request.user = AnonymousUser()
    Tickets(Ticket, AdminSite()).action(request, Ticket.objects.all())


def enter(one: Any) -> None:
    with one:
        pass


DOORS: dict[str, Callable[[], object]] = {
    "a function view": lambda: function_view(RequestFactory().post("/"), pk=7),
    "a class-based view": lambda: ClassView.as_view()(RequestFactory().post("/"), pk=7),
    "a view with the mixin": lambda: MixedView.as_view()(RequestFactory().post("/"), pk=7),
    "a view with a callable": lambda: view_with_a_callable(RequestFactory().post("/"), pk=7),
    "a function": lambda: function(7),
    "an action": by_action,
    "a command": lambda: call_command(Command(), "7"),
    "a task": lambda: task(7),
    "with_lock": lambda: call_command("with_lock", "sale:7", "true"),
    "plain code": lambda: enter(lock(f"sale:{7}")),
    "several keys": lambda: enter(lock("sale:7", "sale:8")),
    "a reader": lambda: enter(rwlock("sale:7").read()),
    "a permit": lambda: enter(semaphore("sale:7", 2)),
    "a template": lambda: enter(lock(KeyTemplate("sale:<pk:int>").format(pk=7))),
}


@pytest.fixture
def labels() -> Iterator[set[str]]:
    """Give the labels that the signals of the test carry."""
    found: set[str] = set()

    def receive(*, template: str, **about: object) -> None:
        found.add(template)

    sent = (signals.lock_acquired, signals.lock_released)
    for signal in sent:
        signal.connect(receive)
    yield found
    for signal in sent:
        signal.disconnect(receive)


@pytest.mark.parametrize("door", DOORS)
def test_one_lock_is_one_label_through_each_door(door: str, labels: set[str]) -> None:
    registry = CollectorRegistry()
    metrics = LockMetrics(registry)
    metrics.connect()
    try:
        DOORS[door]()
    finally:
        metrics.disconnect()

    assert labels == {LABEL}
    assert Exposed(registry).values("setnx_lock_outcomes_total", "template") == {LABEL}
    assert Exposed(registry).values("setnx_lock_hold_seconds_count", "template") == {LABEL}


@pytest.mark.usefixtures("listed_at_once")
def test_what_a_scrape_finds_in_redis_has_the_label_too() -> None:
    with lock("sale:7"), lock(KeyTemplate("sale:<pk:int>").format(pk=8)):
        exposed = Exposed(LockCollector())

    assert exposed.values("setnx_lock_locks", "template") == {LABEL}


def test_a_key_that_no_template_makes_has_no_label(labels: set[str]) -> None:
    enter(lock("sale of the century"))

    assert labels == {""}


def test_a_template_that_is_made_later_counts_from_then_on(labels: set[str]) -> None:
    enter(lock("brand new:7"))
    KeyTemplate("brand new:<pk:uuid>")
    enter(lock("brand new:7"))

    assert labels == {"", "brand new:<pk>"}


def unpickled(key: str) -> str:
    found: str = pickle.loads(pickle.dumps(key))  # noqa: S301 - it is our own
    return found


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, unpickled])
def test_a_copy_of_a_key_is_the_same_text_with_the_same_label(
    copied: Callable[[str], str], labels: set[str]
) -> None:
    key = copied(KeyTemplate("of-a-copy:<row.pk:int>").format(row=Ticket(pk=7)))

    enter(lock(key))

    assert key == "of-a-copy:7"
    assert hash(key) == hash("of-a-copy:7")
    assert labels == {"of-a-copy:<row.pk>"}
