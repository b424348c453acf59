from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.sites import all_sites
from django.contrib.auth.models import Group, Permission, User
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django.urls import path, reverse

from django_setnx_lock import LockLost, lock
from django_setnx_lock.admin import LockedAdminMixin
from tests.admin.groups import RELEASE, GroupAdmin, act, messages_of, seen
from tests.admin.pages import entries_of, ticked

if TYPE_CHECKING:
    from django.test import Client

    from tests.servers import FakeServer

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.admin.groups")]


def test_the_action_asks_first_and_names_the_holder(
    admin_client: Client,
    groups: list[Group],
) -> None:
    with lock(f"group:{groups[0].pk}", label="the stuck one") as held:
        response = act(admin_client, RELEASE, groups)

        assert held.owned()
    assert "the stuck one" in response.content.decode()
    assert held.token not in response.content.decode()


def test_confirmed_it_takes_the_locks_away_and_tells_their_holders(
    admin_client: Client,
    groups: list[Group],
) -> None:
    held = lock(f"group:{groups[0].pk}").take(0)
    fingerprints = seen(act(admin_client, RELEASE, groups))

    response = act(admin_client, RELEASE, groups, post="yes", reason="stuck", **fingerprints)

    assert messages_of(response)[0].startswith("success: Released")
    with pytest.raises(LockLost, match="force-released by admin: stuck"):
        held.check()


def test_the_release_is_logged_on_the_object(
    admin_client: Client,
    groups: list[Group],
) -> None:
    held = lock(f"group:{groups[0].pk}", label="the stuck one").take(0)
    fingerprints = seen(act(admin_client, RELEASE, groups))

    act(admin_client, RELEASE, groups, post="yes", reason="stuck", **fingerprints)

    (entry,) = entries_of(Group)
    assert entry.object_id == str(groups[0].pk)
    assert "the stuck one" in entry.change_message
    assert held.token not in entry.change_message


def test_a_lock_that_changed_hands_meanwhile_is_left_alone(
    admin_client: Client,
    groups: list[Group],
) -> None:
    first = lock(f"group:{groups[0].pk}").take(0)
    fingerprints = seen(act(admin_client, RELEASE, groups))
    first.release()
    second = lock(f"group:{groups[0].pk}").take(0)

    response = act(admin_client, RELEASE, groups, post="yes", **fingerprints)

    assert second.owned()
    (message,) = messages_of(response)
    assert message.startswith("warning: Changed hands")
    assert LogEntry.objects.count() == 0


def test_a_confirmation_without_a_fingerprint_releases_nothing(
    admin_client: Client,
    groups: list[Group],
) -> None:
    held = lock(f"group:{groups[0].pk}").take(0)

    act(admin_client, RELEASE, groups, post="yes")

    assert held.owned()


@pytest.mark.parametrize("forged", ["", "x", "{}", "eyJhIjoiYiJ9:1abcde:forged"])
def test_a_forged_confirmation_is_refused(
    admin_client: Client, groups: list[Group], forged: str
) -> None:
    held = lock(f"group:{groups[0].pk}").take(0)

    response = act(admin_client, RELEASE, groups, post="yes", seen=forged)

    assert "changed or is broken: nothing was done" in messages_of(response)[0]
    assert held.owned()


def test_more_rows_than_a_form_may_have_fields_are_released(
    admin_client: Client, settings: Any, fake_server: FakeServer
) -> None:
    settings.DATA_UPLOAD_MAX_NUMBER_FIELDS = 40
    names = [f"group {number}" for number in range(30)]
    groups = Group.objects.bulk_create([Group(name=name) for name in names])
    locks = [f"lock:group:{group.pk}" for group in groups]
    fake_server.client().mset(dict.fromkeys(locks, "theirs"))
    asked = act(admin_client, RELEASE, groups[:1], select_across="1")
    form = re.search(r'<form method="post">.*?</form>', asked.content.decode(), re.DOTALL)
    assert form
    fields = re.findall(r'name="([^"]+)"[^>]* value="([^"]*)"', form[0])

    sent: dict[str, Any] = {**dict(fields), "holder": ticked(form[0])}
    response = admin_client.post("/groups-admin/auth/group/", sent, follow=True)

    assert len(fields) < 40
    assert messages_of(response)[0].endswith("; and 20 more.")
    assert not fake_server.client().exists(*locks)


def test_with_nothing_locked_there_is_nothing_to_confirm(
    admin_client: Client,
    groups: list[Group],
) -> None:
    response = act(admin_client, RELEASE, groups)

    assert messages_of(response) == ["warning: Nobody holds a lock of these."]


def test_without_redis_the_message_says_so(
    admin_client: Client,
    groups: list[Group],
    fake_server: FakeServer,
) -> None:
    fake_server.connected = False

    (message,) = messages_of(act(admin_client, RELEASE, groups))

    assert message.startswith("error: ")
    assert "Redis cannot be reached" in message


@pytest.fixture
def staff(client: Client) -> User:
    user: User = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(codename__in=["view_group", "change_group"])
    )
    client.force_login(user)
    return user


def test_without_the_permission_the_action_is_not_offered(
    client: Client,
    staff: User,
    groups: list[Group],
) -> None:
    page = client.get("/groups-admin/auth/group/").content.decode()

    assert "Shout" in page
    assert "Release locks" not in page


def test_without_the_permission_a_confirmed_post_releases_nothing(
    admin_client: Client,
    client: Client,
    staff: User,
    groups: list[Group],
) -> None:
    held = lock(f"group:{groups[0].pk}").take(0)
    shown = seen(act(admin_client, RELEASE, groups))

    act(client, RELEASE, groups, post="yes", **shown)

    assert shown
    assert held.owned()


def test_with_the_permission_it_is_offered(
    client: Client,
    staff: User,
    groups: list[Group],
) -> None:
    staff.user_permissions.add(Permission.objects.get(codename="release_lock"))

    page = client.get("/groups-admin/auth/group/").content.decode()

    assert "Release locks of selected groups" in page


def test_the_mixin_after_modeladmin_is_refused() -> None:
    with pytest.raises(TypeError, match="put LockedAdminMixin before ModelAdmin"):
        type("Wrong", (admin.ModelAdmin, LockedAdminMixin), {"lock_key": "group:<pk>"})


def test_the_mixin_without_a_template_says_what_is_missing() -> None:
    bare: Any = type("Bare", (LockedAdminMixin, admin.ModelAdmin), {})

    with pytest.raises(ImproperlyConfigured, match='lock_key = "order:<pk>"'):
        bare(Group, admin.AdminSite())


class NumberedAdmin(GroupAdmin):
    lock_key = "group:<number>"


numbered = admin.AdminSite("numbered")
numbered.register(Group, NumberedAdmin)
# The checks of other tests are not to find it.
all_sites.discard(numbered)
urlpatterns = [path("numbered/", numbered.urls)]


@pytest.mark.urls(__name__)
def test_rows_that_have_no_lock_are_named(admin_client: Client, groups: list[Group]) -> None:
    form = {"action": RELEASE, "_selected_action": groups[0].pk}

    response = admin_client.post(reverse("numbered:auth_group_changelist"), form, follow=True)

    assert messages_of(response) == [
        "warning: 1 group was skipped: ann (<number>: there is no 'number' to take it from)",
        "warning: Nobody holds a lock of these.",
    ]


def test_a_cache_that_does_not_exist_is_told(
    admin_client: Client, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GroupAdmin, "lock_using", "nope")

    response = act(admin_client, RELEASE, groups)

    (message,) = messages_of(response)
    assert message.startswith("error: The settings name no cache that can hold locks.")
    assert "There is no cache 'nope' in CACHES." in message


def test_a_row_that_the_user_may_not_see_any_more_keeps_its_lock(
    admin_client: Client, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [lock(f"group:{group.pk}").take(0) for group in groups[:2]]
    shown = seen(act(admin_client, RELEASE, groups))
    monkeypatch.setattr(
        GroupAdmin, "get_queryset", lambda *_: Group.objects.exclude(pk=groups[0].pk)
    )

    act(admin_client, RELEASE, groups[1:], post="yes", **shown)

    assert [one.owned() for one in held] == [True, False]


@pytest.mark.parametrize("reason", ["", "x" * 201], ids=["required", "too long"])
def test_a_form_that_is_not_valid_is_shown_again_about_the_same_holders(
    admin_client: Client, groups: list[Group], reason: str
) -> None:
    held = lock(f"group:{groups[0].pk}").take(0)
    with override_settings(SETNX_LOCK={**settings.SETNX_LOCK, "REQUIRE_REASON": True}):
        shown = seen(act(admin_client, RELEASE, groups))
        again = act(admin_client, RELEASE, groups, post="yes", reason=reason, **shown)
        kept = held.owned()
        act(admin_client, RELEASE, groups, post="yes", reason="stuck", **seen(again))

    assert 'class="errorlist"' in again.content.decode()
    assert [kept, held.owned()] == [True, False]
