from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.core import signing
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_setnx_lock import KeyTemplate, LockLost, inspector, lock
from django_setnx_lock.admin.release import ReleaseLocksMixin
from django_setnx_lock.connection import get_client
from tests.admin.groups import GroupAdmin, act, messages_of, site
from tests.admin.pages import entries_of

if TYPE_CHECKING:
    from django.test import Client

    from tests.servers import FakeServer

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.admin.groups")]
ACTION = "release_locks_of_selected"


def seen(response: Any) -> dict[str, str]:
    """The fingerprints that the confirmation page carries, signed, in one field."""
    found = re.findall(r'name="(seen)" value="([^"]+)"', response.content.decode())
    return dict(found)


def unsigned(fields: dict[str, str]) -> dict[str, str]:
    """The fingerprints in what ``seen`` returned: a signature has a time in it."""
    found: dict[str, str] = signing.loads(fields["seen"], salt=ACTION)
    return found


def test_the_action_asks_first_and_names_the_holder(
    admin_client: Client,
    groups: list[Group],
) -> None:
    with lock(f"group:{groups[0].pk}", label="the stuck one") as held:
        response = act(admin_client, ACTION, groups)

        assert held.owned()
    assert "the stuck one" in response.content.decode()
    assert held.token not in response.content.decode()


def test_confirmed_it_takes_the_locks_away_and_tells_their_holders(
    admin_client: Client,
    groups: list[Group],
) -> None:
    held = lock(f"group:{groups[0].pk}").take(0)
    fingerprints = seen(act(admin_client, ACTION, groups))

    response = act(admin_client, ACTION, groups, post="yes", reason="stuck", **fingerprints)

    assert messages_of(response) == ["success: 1 lock was released."]
    with pytest.raises(LockLost, match="force-released by admin: stuck"):
        held.check()


def test_the_release_is_logged_on_the_object(
    admin_client: Client,
    groups: list[Group],
) -> None:
    held = lock(f"group:{groups[0].pk}", label="the stuck one").take(0)
    fingerprints = seen(act(admin_client, ACTION, groups))

    act(admin_client, ACTION, groups, post="yes", reason="stuck", **fingerprints)

    (entry,) = entries_of(Group)
    assert entry.object_id == str(groups[0].pk)
    assert "the stuck one" in entry.change_message
    assert held.token not in entry.change_message


def test_a_lock_that_changed_hands_meanwhile_is_left_alone(
    admin_client: Client,
    groups: list[Group],
) -> None:
    first = lock(f"group:{groups[0].pk}").take(0)
    fingerprints = seen(act(admin_client, ACTION, groups))
    first.release()
    second = lock(f"group:{groups[0].pk}").take(0)

    response = act(admin_client, ACTION, groups, post="yes", **fingerprints)

    assert second.owned()
    (message,) = messages_of(response)
    assert message.startswith("warning: 1 lock had changed hands")
    assert LogEntry.objects.count() == 0


def test_a_confirmation_without_a_fingerprint_releases_nothing(
    admin_client: Client,
    groups: list[Group],
) -> None:
    held = lock(f"group:{groups[0].pk}").take(0)

    act(admin_client, ACTION, groups, post="yes")

    assert held.owned()


@pytest.mark.parametrize("forged", ["", "x", "{}", "eyJhIjoiYiJ9:1abcde:forged"])
def test_a_forged_confirmation_is_refused(
    admin_client: Client, groups: list[Group], forged: str
) -> None:
    held = lock(f"group:{groups[0].pk}").take(0)

    response = act(admin_client, ACTION, groups, post="yes", seen=forged)

    assert messages_of(response) == [
        "error: The confirmation was changed or is broken: nothing was released."
    ]
    assert held.owned()


def test_more_rows_than_a_form_may_have_fields_are_released(
    admin_client: Client, settings: Any
) -> None:
    settings.DATA_UPLOAD_MAX_NUMBER_FIELDS = 20
    names = [f"group {number}" for number in range(30)]
    groups = Group.objects.bulk_create([Group(name=name) for name in names])
    locks = [f"lock:group:{group.pk}" for group in groups]
    get_client().mset(dict.fromkeys(locks, "theirs"))
    asked = act(admin_client, ACTION, groups[:1], select_across="1")
    form = re.search(r'<form method="post">.*?</form>', asked.content.decode(), re.DOTALL)
    assert form
    fields = re.findall(r'name="([^"]+)"[^>]* value="([^"]*)"', form[0])

    response = admin_client.post("/groups-admin/auth/group/", dict(fields), follow=True)

    assert len(fields) < 10
    assert messages_of(response) == ["success: 30 locks were released."]
    assert not get_client().exists(*locks)


def test_with_nothing_locked_there_is_nothing_to_confirm(
    admin_client: Client,
    groups: list[Group],
) -> None:
    response = act(admin_client, ACTION, groups)

    assert messages_of(response) == ["info: Nobody holds a lock of these."]


def test_without_redis_the_message_says_so(
    admin_client: Client,
    groups: list[Group],
    fake_server: FakeServer,
) -> None:
    fake_server.connected = False

    (message,) = messages_of(act(admin_client, ACTION, groups))

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
    client: Client,
    staff: User,
    groups: list[Group],
) -> None:
    held = lock(f"group:{groups[0].pk}").take(0)
    name = f"lock:group:{groups[0].pk}"
    fingerprints = {str(groups[0].pk): inspector().get(name).fingerprint}
    fingerprint = {"seen": signing.dumps(fingerprints, salt=ACTION)}

    act(client, ACTION, groups, post="yes", **fingerprint)

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
    with pytest.raises(TypeError, match="put ReleaseLocksMixin before ModelAdmin"):
        type("Wrong", (admin.ModelAdmin, ReleaseLocksMixin), {"lock_template": "group:<pk>"})


def test_the_mixin_without_a_template_says_what_is_missing() -> None:
    bare: Any = type("Bare", (ReleaseLocksMixin, admin.ModelAdmin), {})

    with pytest.raises(ImproperlyConfigured, match='lock_template = "order:<pk>"'):
        bare(Group, admin.AdminSite())


def test_rows_that_have_no_lock_are_named(
    admin_client: Client, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    modeladmin: Any = site._registry[Group]
    monkeypatch.setattr(modeladmin, "_lock_template", KeyTemplate("group:<number>"))

    messages = messages_of(act(admin_client, ACTION, groups[:1]))

    assert messages == [
        "warning: 1 group was skipped: ann (<number>: there is no 'number' to take it from)",
        "info: Nobody holds a lock of these.",
    ]


def test_a_cache_that_does_not_exist_is_told(
    admin_client: Client, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GroupAdmin, "lock_using", "nope")

    response = act(admin_client, ACTION, groups)

    (message,) = messages_of(response)
    assert message.startswith("error: The settings name no cache that can hold locks.")
    assert "There is no cache 'nope' in CACHES." in message


@pytest.mark.parametrize("reason", ["a\0b", "x" * 201], ids=["nul", "too long"])
def test_a_reason_that_cannot_be_kept_is_refused_before_anything_is_done(
    admin_client: Client, groups: list[Group], reason: str
) -> None:
    held = lock(f"group:{groups[0].pk}").take(0)
    fingerprints = seen(act(admin_client, ACTION, groups))

    page = act(admin_client, ACTION, groups, post="yes", reason=reason, **fingerprints)

    assert 'class="errorlist"' in page.content.decode()
    # What is behind the first colon tells of the second at which it was signed.
    assert seen(page)["seen"].split(":")[0] == fingerprints["seen"].split(":")[0]
    assert held.owned()
    assert not LogEntry.objects.exists()


def test_where_a_reason_is_required_nothing_is_released_without(
    admin_client: Client, groups: list[Group]
) -> None:
    with (
        lock(f"group:{groups[0].pk}") as held,
        override_settings(SETNX_LOCK={**settings.SETNX_LOCK, "REQUIRE_REASON": True}),
    ):
        fingerprints = seen(act(admin_client, ACTION, groups))
        response = act(admin_client, ACTION, groups, post="yes", reason=" ", **fingerprints)

        assert held.owned()
    assert "This field is required." in response.content.decode()
    assert seen(response)
