"""An admin site whose groups have a locked action, for the tests of actions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.auth.models import Group
from django.urls import path, reverse

from django_setnx_lock.admin import LockedAdminMixin, locked_action
from tests.admin.pages import ticked

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.test import Client

    class _GroupAdmin(admin.ModelAdmin[Group]): ...
else:
    _GroupAdmin = admin.ModelAdmin

site = admin.AdminSite("groups")
#: The action of LockedAdminMixin.
RELEASE = "release_locks_of_selected"


@admin.register(Group, site=site)
class GroupAdmin(LockedAdminMixin, _GroupAdmin):
    actions = ("shout", "whisper", "share", "once", "fail")
    lock_key = "group:<pk>"

    def note(self) -> None:
        """Do what a test wants to have done while the action runs."""

    @admin.action(description="Shout")
    @locked_action("group:<pk>", note="loud")
    def shout(self, request: HttpRequest, queryset: QuerySet[Group]) -> None:
        self.note()
        for group in queryset:
            group.name = group.name.upper()
            group.save()

    @locked_action("group:<pk>")
    @admin.action(description="Whisper", permissions=["delete"])
    def whisper(self, request: HttpRequest, queryset: QuerySet[Group]) -> None:
        queryset.update(name="shh")

    @admin.action(description="Under one lock for all")
    @locked_action("groups:<_meta.label>")
    def share(self, request: HttpRequest, queryset: QuerySet[Group]) -> None:
        self.note()

    @admin.action(description="Once in a while")
    @locked_action("group:<pk>", min_hold=20)
    def once(self, request: HttpRequest, queryset: QuerySet[Group]) -> None:
        self.note()

    @admin.action(description="Fail")
    @locked_action("group:<pk>")
    def fail(self, request: HttpRequest, queryset: QuerySet[Group]) -> Any:
        raise RuntimeError("the action failed")


def act(client: Client, action: str, groups: list[Group], **data: Any) -> Any:
    """Choose ``action`` for ``groups`` in the change list."""
    form = {"action": action, "_selected_action": [group.pk for group in groups], **data}
    return client.post(reverse("groups:auth_group_changelist"), form, follow=True)


def seen(response: Any) -> dict[str, Any]:
    """What the form of the question sends: the holders that it shows, and which are chosen."""
    page = response.content.decode()
    shown = dict(re.findall(r'name="(seen)" value="([^"]+)"', page))
    return {**shown, "holder": ticked(page)} if shown else {}


urlpatterns = [path("groups-admin/", site.urls)]
