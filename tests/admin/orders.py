"""An admin site whose orders are edited by one at a time, and people who edit them."""

from __future__ import annotations

import html
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib import admin
from django.contrib.admin.sites import all_sites
from django.contrib.auth.models import Permission, User
from django.db import connections
from django.test import Client
from django.urls import path

from django_setnx_lock.admin import LockedAdminMixin
from example_project.shop.models import Charge, Order
from tests.admin.pages import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django.db.models import QuerySet
    from django.http import HttpRequest

    class _OrderAdmin(admin.ModelAdmin[Order]): ...

    class _Charges(admin.TabularInline[Charge, Order]): ...
else:
    _OrderAdmin, _Charges = admin.ModelAdmin, admin.TabularInline

HIDDEN = ("_lock_page", "_lock_seen")


class Charges(_Charges):
    model = Charge
    extra = 0


class OrderAdmin(LockedAdminMixin, _OrderAdmin):
    lock_key = "order:<pk>"
    edit_timeout = 60
    fields = ("number", "customer", "amount")
    inlines = (Charges,)
    list_display = ("number", "customer", "amount", "edited_by")
    list_editable = ("customer", "amount")
    actions = ("pay", "export")

    @admin.action(description="Pay")
    def pay(self, request: HttpRequest, queryset: QuerySet[Order]) -> None:
        queryset.update(paid_by="clerk")

    @admin.action(description="Export", permissions=["view"])
    def export(self, request: HttpRequest, queryset: QuerySet[Order]) -> None:
        self.message_user(request, f"exported {queryset.count()}")


class WarningAdmin(OrderAdmin):
    lock_editing = "warn"


class PlainAdmin(OrderAdmin):
    lock_editing = False


def while_saving(monkeypatch: pytest.MonkeyPatch, what: Callable[[Order], object]) -> None:
    """Have that done when an order has just been saved, before its lock is released."""

    def save_model(self: Any, request: Any, obj: Order, *more: Any, **named: Any) -> None:
        obj.save()
        what(obj)

    monkeypatch.setattr(OrderAdmin, "save_model", save_model)


def site_of(name: str, kind: type[OrderAdmin]) -> admin.AdminSite:
    """A site of its own, which the checks of other tests do not find."""
    site = admin.AdminSite(name)
    site.register(Order, kind)
    all_sites.discard(site)
    return site


kinds = {"orders": OrderAdmin, "warning": WarningAdmin, "plain": PlainAdmin}
urlpatterns = [path(f"{name}/", site_of(name, kind).urls) for name, kind in kinds.items()]


class Person:
    """Somebody at the admin, in a browser without scripts; each page that is opened is kept."""

    def __init__(self, name: str, *permissions: str, site: str = "orders") -> None:
        is_super = not permissions
        self.name, self.site = name, site
        self.user = User.objects.filter(username=name).first() or User.objects.create_user(
            name, is_staff=True, is_superuser=is_super
        )
        self.user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        self.client = Client()
        self.client.force_login(self.user)

    def url(self, order: Order | None = None, page: str = "change") -> str:
        where = f"{order.pk}/{page}/" if order else ""
        return f"/{self.site}/shop/order/{where}"

    def open(self, order: Order, query: str = "") -> Page:
        return Page(self, order, self.client.get(self.url(order) + query))

    def choose(self, action: str, orders: Iterable[Order], **more: str) -> list[str]:
        """Choose an action for these orders in the list; give what is said."""
        form = {"action": action, "_selected_action": [one.pk for one in orders], **more}
        return messages(self.client.post(self.url(), form, follow=True))

    def delete(self, order: Order) -> list[str]:
        return messages(self.client.post(self.url(order, "delete"), {"post": "yes"}, follow=True))

    def listed(self) -> ListPage:
        return ListPage(self, self.client.get(self.url()))


def values(content: str) -> dict[str, str]:
    """What a browser would send of the fields of a page, as they stand there."""
    found = {}
    for tag in re.findall(r"<input[^>]*>", content):
        given = {name: html.unescape(value) for name, value in re.findall(r'(\w+)="([^"]*)"', tag)}
        kind = given.get("type")
        if kind not in ("submit", "checkbox", "search") and "name" in given:
            found[given["name"]] = given.get("value", "")
    return found


class Page:
    """A change form as it was opened, which is sent later."""

    def __init__(self, person: Person, order: Order, response: Any) -> None:
        self.person, self.order, self.response = person, order, response
        assert response.status_code == 200
        self.content = response.content.decode()
        self.fields = values(self.content)

    @property
    def is_editable(self) -> bool:
        return 'name="customer"' in self.content

    @property
    def notice(self) -> str:
        """What is said above the fields."""
        found = re.findall(r'<p class="lock-editing" role="status">(.*?)</p>', self.content)
        return " ".join(html.unescape(one).strip() for one in found)

    @property
    def errors(self) -> list[str]:
        return list(self.response.context["errors"]) and [
            str(one) for some in self.response.context["errors"] for one in some
        ]

    def send(self, press: str = "_save", **typed: str) -> Page | list[str]:
        """Press that button; give the form if it is shown again, else what is said then."""
        fields = {**self.fields, **typed, press: "yes"}
        response = self.person.client.post(self.person.url(self.order), fields)
        if response.status_code == 200:
            return Page(self.person, self.order, response)
        return messages(self.person.client.get(response.headers["Location"], follow=True))

    def saved(self, **typed: str) -> None:
        answer = self.send(**typed)
        assert isinstance(answer, list), answer.errors
        assert any("changed successfully" in one for one in answer), answer

    def refused(self, **typed: str) -> Page:
        """Save, and find the form again with what was typed."""
        answer = self.send(**typed)
        assert isinstance(answer, Page), answer
        assert all(html.escape(value) in answer.content for value in typed.values())
        return answer

    def beacon(self, *what: str) -> str:
        """What the script of the page sends, and the problem that it hears of."""
        given = dict.fromkeys(("_lock_script", *what), "yes")
        given["_lock_page"] = self.fields["_lock_page"]
        return str(self.person.client.post(self.person.url(self.order), given).json()["problem"])

    def leave(self) -> None:
        """Go elsewhere: the script of a locked form says so."""
        if "_lock_page" in self.fields:
            self.beacon("_leave")


class ListPage:
    """The list as it was opened; its fields are sent later."""

    def __init__(self, person: Person, response: Any) -> None:
        self.person = person
        self.content = response.content.decode()
        self.fields = values(self.content)

    def holder_of(self, order: Order) -> str:
        """What the column says of the order."""
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", self.content, re.DOTALL):
            if f"/{order.pk}/change/" in row:
                (cell,) = re.findall(r'class="field-edited_by">(.*?)</td>', row)
                return html.unescape(cell)
        raise AssertionError(f"no row of {order}")

    def send(self, **typed: str) -> list[str]:
        fields = {**self.fields, **typed, "_save": "Save"}
        fields.pop("action", None)
        return messages(self.person.client.post(self.person.url(), fields, follow=True))

    def row_of(self, order: Order) -> str:
        """The prefix of the fields of that row."""
        for name, value in self.fields.items():
            if re.fullmatch(r"form-\d+-id", name) and value == str(order.pk):
                return name.removesuffix("id")
        raise AssertionError(f"no row of {order}")


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Call all of them in threads that begin together; give what they give."""
    start = Barrier(len(calls))

    def call(one: Callable[[], Any]) -> Any:
        start.wait(20)
        try:
            return one()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as threads:
        return [job.result(30) for job in [threads.submit(call, one) for one in calls]]


def save_at_once(order: Order, *names: str) -> list[str]:
    """Have people who opened the form save at once; give whose was saved, the others see it again.

    Each writes their name as that of the customer.
    """
    pages = [Person(name).open(order) for name in names]
    answers = at_once(*(partial(page.send, customer=page.person.name) for page in pages))
    return [name for name, answer in zip(names, answers, strict=True) if type(answer) is list]


def stored(order: Order) -> str:
    """The customer of the order in the database."""
    return str(Order.objects.get(pk=order.pk).customer)
