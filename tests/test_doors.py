"""Every door gives one row one key and one label, in signals and in metrics."""

from __future__ import annotations

import copy
import pickle
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.auth.models import AnonymousUser
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
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
from tests.rows.models import Label, Parcel, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Door = Callable[[models.Model, str], object]

pytestmark = pytest.mark.django_db

CODE = uuid.UUID("c0ffee00-1234-4abc-8def-0123456789ab")
LABEL = "row:<pk>"


def view(request: HttpRequest, pk: Any) -> HttpResponse:
    return HttpResponse()


def work(pk: Any) -> None:
    pass


class Mixed(LockedViewMixin, View):
    lock_key = LABEL

    def post(self, request: HttpRequest, pk: Any) -> HttpResponse:
        return HttpResponse()


def kind_of(row: models.Model) -> str:
    return "int" if isinstance(row.pk, int) else "uuid"


def typed(row: models.Model) -> str:
    return f"row:<pk:{kind_of(row)}>"


def post(view: Any, pk: object) -> Any:
    return view(RequestFactory().post("/"), pk=pk)


def act(row: models.Model, template: str) -> list[str]:
    """Run an action on all rows of the kind of ``row``; return what the user is told."""
    said: list[str] = []

    class Talking(ModelAdmin):  # type: ignore[type-arg]  # is none of a type as it runs
        def message_user(self, request: HttpRequest, message: Any, *args: Any, **_: Any) -> None:
            said.append(str(message))

    request = RequestFactory().post("/")
    request.user = AnonymousUser()
    rows = type(row)._base_manager.all()
    action: Any = locked_action(template)(lambda *given: None)
    action(Talking(type(row), AdminSite()), request, rows)
    return said


@locked_task("row:<pk:int>")
def by_number(pk: Any) -> None:
    pass


@locked_task("row:<pk:uuid>")
def by_uuid(pk: Any) -> None:
    pass


def task(row: models.Model, text: str) -> None:
    (by_number if kind_of(row) == "int" else by_uuid)(text)


def command(template: str) -> BaseCommand:
    class Command(LockedCommand):
        lock_key = template
        requires_system_checks = ()

        def add_arguments(self, parser: CommandParser) -> None:
            parser.add_argument("pk")

        def handle(self, *args: Any, **options: Any) -> None:
            pass

    return Command()


def enter(one: Any) -> None:
    with one:
        pass


# Each is given the row, and its key as a text.
DOORS: dict[str, Door] = {
    "plain code": lambda row, text: enter(lock(f"row:{row.pk}")),
    "several keys": lambda row, text: enter(lock(f"row:{row.pk}", f"row:{row.pk}")),
    "a reader": lambda row, text: enter(rwlock(f"row:{row.pk}").read()),
    "a permit": lambda row, text: enter(semaphore(f"row:{row.pk}", 2)),
    "a template": lambda row, text: enter(lock(KeyTemplate(typed(row)).format(pk=row.pk))),
    "a view": lambda row, text: post(redis_lock(LABEL)(view), row.pk),
    "a typed view": lambda row, text: post(redis_lock(typed(row))(view), text),
    "a view with a callable": lambda row, text: post(
        redis_lock(lambda request, pk: f"row:{pk}")(view), row.pk
    ),
    "a view with the mixin": lambda row, text: post(Mixed.as_view(), row.pk),
    "a function": lambda row, text: locked(typed(row))(work)(text),
    "an action": lambda row, text: act(row, LABEL),
    "a typed action": lambda row, text: act(row, typed(row)),
    "a command": lambda row, text: call_command(command(typed(row)), text),
    "a task": task,
    "with_lock": lambda row, text: call_command("with_lock", f"row:{text}", "true"),
}


@pytest.fixture
def seen() -> Iterator[set[tuple[str, str]]]:
    """Give the keys and labels that the signals of the test carry."""
    found: set[tuple[str, str]] = set()

    def receive(*, key: str, template: str, **about: object) -> None:
        found.add((key, template))

    sent = (signals.lock_acquired, signals.lock_released)
    for signal in sent:
        signal.connect(receive)
    yield found
    for signal in sent:
        signal.disconnect(receive)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", ["number", "uuid", "relation"])
def test_one_row_is_one_key_and_one_label_through_each_door(
    door: str, kind: str, seen: set[tuple[str, str]]
) -> None:
    row: Any
    if kind == "number":
        row = Ticket.objects.create(pk=42, code="a")
    else:
        row = Parcel.objects.create(pk=CODE)
    if kind == "relation":
        row = Label.objects.create(parcel=row)
    text = "42" if kind == "number" else str(CODE)
    registry = CollectorRegistry()
    metrics = LockMetrics(registry)
    metrics.connect()
    try:
        DOORS[door](row, text)
    finally:
        metrics.disconnect()

    assert seen == {(f"row:{text}", LABEL)}
    assert Exposed(registry).values("setnx_lock_outcomes_total", "template") == {LABEL}
    assert Exposed(registry).values("setnx_lock_hold_seconds_count", "template") == {LABEL}


@pytest.mark.usefixtures("listed_at_once")
def test_what_a_scrape_finds_in_redis_has_the_label_too() -> None:
    with lock("row:7"), lock(KeyTemplate("row:<pk:int>").format(pk=8)):
        exposed = Exposed(LockCollector())

    assert exposed.values("setnx_lock_locks", "template") == {LABEL}


def test_a_template_counts_from_when_it_is_made(seen: set[tuple[str, str]]) -> None:
    enter(lock("brand new:7"))
    KeyTemplate("brand new:<pk:uuid>")
    enter(lock("brand new:7"))

    assert {label for _, label in seen} == {"", "brand new:<pk>"}


def unpickled(key: str) -> str:
    found: str = pickle.loads(pickle.dumps(key))  # noqa: S301 - it is our own
    return found


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, unpickled])
def test_a_copy_of_a_key_is_the_same_text_with_the_same_label(
    copied: Callable[[str], str], seen: set[tuple[str, str]]
) -> None:
    key = copied(KeyTemplate("of-a-copy:<row.pk:int>").format(row=Ticket(pk=7)))

    enter(lock(key))

    assert hash(key) == hash("of-a-copy:7")
    assert seen == {("of-a-copy:7", "of-a-copy:<row.pk>")}


def test_another_spelling_is_refused_as_each_door_refuses() -> None:
    message = "<pk> is '042', and has to be written '42'"

    with pytest.raises(ValueError, match=message):
        by_number("042")
    with pytest.raises(CommandError, match=message) as caught:
        call_command(command("row:<pk:int>"), "042")
    said = act(Ticket.objects.create(code="042"), "row:<code:int>")

    assert caught.value.returncode == 64
    assert "<code> is '042', and has to be written '42'" in said[0]
