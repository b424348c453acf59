"""Every door gives one row one key."""

from __future__ import annotations

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

from django_setnx_lock import KeyTemplate, inspector, lock, redis_lock
from django_setnx_lock.admin import locked_action
from django_setnx_lock.contrib.celery import locked_task
from django_setnx_lock.management import LockedCommand
from tests.contrib import shop  # noqa: F401 - the tasks are of its app
from tests.rows.models import Label, Parcel, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable

    Door = Callable[[models.Model, str], None]

pytestmark = pytest.mark.django_db

CODE = uuid.UUID("c0ffee00-1234-4abc-8def-0123456789ab")

keys: list[str] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    keys.clear()


def look(*args: Any, **kwargs: Any) -> HttpResponse:
    keys.extend(one.key for one in inspector().find().locks)
    return HttpResponse()


def kind_of(row: models.Model) -> str:
    return "int" if isinstance(row.pk, int) else "uuid"


def by_view(decorate: Callable[..., Any], pk: object) -> None:
    @decorate
    def view(request: HttpRequest, pk: Any) -> HttpResponse:
        return look()

    view(RequestFactory().post("/"), pk)


def plain(row: models.Model, text: str) -> None:
    with lock(f"row:{row.pk}"):
        look()


def template(row: models.Model, text: str) -> None:
    with lock(KeyTemplate("row:<row.pk>").format(row=row)):
        look()


def converted(row: models.Model, text: str) -> None:
    by_view(redis_lock("row:<pk>"), row.pk)


def typed(row: models.Model, text: str) -> None:
    by_view(redis_lock(f"row:<pk:{kind_of(row)}>"), text)


def acted(row: models.Model, text: str) -> None:
    act(row, "row:<pk>")


def acted_typed(row: models.Model, text: str) -> None:
    act(row, f"row:<pk:{kind_of(row)}>")


def act(row: models.Model, text: str) -> list[str]:
    """Run an action on all rows of the kind of ``row``; return what the user is told."""
    said: list[str] = []

    class Talking(ModelAdmin):  # type: ignore[type-arg]  # is none of a type as it runs
        def message_user(self, request: HttpRequest, message: Any, *args: Any, **_: Any) -> None:
            said.append(str(message))

    request = RequestFactory().post("/")
    request.user = AnonymousUser()
    rows = type(row)._base_manager.all()
    locked_action(text)(look)(Talking(type(row), AdminSite()), request, rows)
    return said


@locked_task("row:<pk:int>")
def by_number(pk: Any) -> None:
    look()


@locked_task("row:<pk:uuid>")
def by_uuid(pk: Any) -> None:
    look()


def task(row: models.Model, text: str) -> None:
    (by_number if kind_of(row) == "int" else by_uuid)(text)


def command(row: models.Model, text: str) -> None:
    call_command(looking(f"row:<pk:{kind_of(row)}>"), text)


def looking(template: str) -> BaseCommand:
    class Looking(LockedCommand):
        lock_key = template
        requires_system_checks = ()

        def add_arguments(self, parser: CommandParser) -> None:
            parser.add_argument("pk")

        def handle(self, *args: Any, **options: Any) -> None:
            look()

    return Looking()


DOORS: list[Door] = [
    *(plain, template, converted, typed, acted, acted_typed, task, command),
]


@pytest.mark.usefixtures("listed_at_once")
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.parametrize("kind", ["number", "uuid", "relation"])
def test_a_row_has_one_key_by_every_door(door: Door, kind: str) -> None:
    row: models.Model
    if kind == "number":
        row = Ticket.objects.create(pk=42, code="a")
    else:
        row = Parcel.objects.create(pk=CODE)
    if kind == "relation":
        row = Label.objects.create(parcel=row)
    type(row)._base_manager.get(pk=row.pk)

    door(row, "42" if kind == "number" else str(CODE))

    assert keys == ["row:42" if kind == "number" else f"row:{CODE}"]


def test_a_task_raises_value_error_for_another_spelling() -> None:
    with pytest.raises(ValueError, match="<pk> is '042', and has to be written '42'"):
        task(Ticket(pk=42), "042")


def test_a_command_is_used_wrongly_with_another_spelling() -> None:
    with pytest.raises(CommandError, match="<pk> is '042', and has to be written '42'") as caught:
        call_command(looking("row:<pk:int>"), "042")

    assert caught.value.returncode == 64


def test_an_action_skips_a_row_by_another_spelling_and_says_so() -> None:
    said = act(Ticket.objects.create(code="042"), "row:<code:int>")

    assert keys == []
    assert "<code> is '042', and has to be written '42'" in said[0]
