from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.contrib import admin
from django.contrib.admin.sites import all_sites
from django.contrib.auth.models import Group
from django.core.checks import run_checks

from django_setnx_lock.admin import LockedAdminMixin, locked_action

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.models import QuerySet
    from django.http import HttpRequest


@locked_action("group:<colour>")
def paint(modeladmin: object, request: HttpRequest, queryset: QuerySet[Group]) -> None: ...


@pytest.fixture
def site() -> Iterator[admin.AdminSite]:
    """Give a site that the checks of other tests do not find."""
    site = admin.AdminSite("painted")
    yield site
    all_sites.discard(site)


def test_w003_names_the_attribute_that_the_model_does_not_have(site: admin.AdminSite) -> None:
    site.register(Group, actions=[paint])

    messages = [m for m in run_checks() if "<colour>" in m.msg]

    assert [message.id for message in messages] == ["django_setnx_lock.W003"]
    assert "auth.Group" in messages[0].msg


def test_attributes_that_the_model_has_are_fine() -> None:
    from tests.admin import groups

    messages = [m for m in run_checks() if m.obj is groups.GroupAdmin]

    assert messages == []


def test_w003_looks_at_the_lock_template_of_the_release_action(site: admin.AdminSite) -> None:
    class Painted(LockedAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]  # not subscriptable
        lock_key = "group:<hue>"

    site.register(Group, Painted)

    messages = [m for m in run_checks() if "<hue>" in m.msg]

    assert [message.id for message in messages] == ["django_setnx_lock.W003"]


@locked_action("group:<pk>", using="nope")
def lose(modeladmin: object, request: HttpRequest, queryset: QuerySet[Group]) -> None: ...


def test_e011_names_the_cache_of_an_action_that_does_not_exist(site: admin.AdminSite) -> None:
    site.register(Group, actions=[lose])

    (message,) = [m for m in run_checks() if m.obj is type(site._registry[Group])]

    assert message.id == "django_setnx_lock.E011"
    assert "there is no cache 'nope' in CACHES" in message.msg


def test_e011_looks_at_the_lock_using_of_the_release_action(site: admin.AdminSite) -> None:
    class Released(LockedAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]  # the same
        lock_key = "group:<pk>"
        lock_using = "neither"

    site.register(Group, Released)

    (message,) = [m for m in run_checks() if m.obj is Released]

    assert message.id == "django_setnx_lock.E011"
    assert "there is no cache 'neither' in CACHES" in message.msg


def test_the_usual_cache_of_an_action_is_fine(site: admin.AdminSite) -> None:
    site.register(Group, actions=[paint])

    found = [m for m in run_checks() if m.obj is type(site._registry[Group])]
    assert [m for m in found if str(m.id).endswith("E011")] == []
