"""The action that releases the locks of selected rows, and the log of what was done to a lock."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.sites import all_sites
from django.contrib.auth.models import Group, User
from django.urls import path

from django_setnx_lock import LockLost, LockUnavailable, inspector, lock
from django_setnx_lock.core import Inspector, LockHandle, Outcome
from django_setnx_lock.models import Lock
from tests import urls
from tests.admin import groups as groups_site
from tests.admin.groups import RELEASE, GroupAdmin, act, seen
from tests.admin.pages import (
    address,
    entries_of,
    info,
    messages,
    refuse_entries,
    staff,
    text,
    ticked,
)
from tests.support.seams import any_lock

if TYPE_CHECKING:
    from django.test import Client

    from tests.servers import FakeServer

numbered = admin.AdminSite("numbered")
numbered.register(Group, type("NumberedAdmin", (GroupAdmin,), {"lock_key": "group:<number>"}))
# The checks of other tests are not to find it.
all_sites.discard(numbered)
urlpatterns = [*urls.urlpatterns, *groups_site.urlpatterns, path("numbered/", numbered.urls)]
pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


def release(client: Client, groups: list[Group], **data: Any) -> Any:
    """Release the locks of these rows, and confirm it."""
    return act(client, RELEASE, groups, post="yes", **seen(act(client, RELEASE, groups)), **data)


def log_of(client: Client, key: str) -> str:
    """What the page of the log of that lock says."""
    return text(client.get(address("history", f"lock:{key}")))


@pytest.fixture
def held(groups: list[Group]) -> list[LockHandle]:
    """Hold the lock of each row, in the order of the list."""
    groups.reverse()
    return [any_lock(f"group:{one.pk}", user="ann", label="pay").take(0) for one in groups]


def test_confirmed_it_takes_the_locks_away_tells_their_holders_and_logs_it(
    admin_client: Client, admin_user: User, groups: list[Group], held: list[LockHandle]
) -> None:
    question = act(admin_client, RELEASE, groups).content.decode()
    done = release(admin_client, groups, reason="its host is gone")

    assert question.count(" (pay)") == len(held)
    assert messages(done)[0].startswith("success: Released")
    for one in held:
        with pytest.raises(LockLost, match="force-released by admin: its host is gone"):
            one.check()
    # One entry of each lock, which leads to its page, and one of each row.
    of_locks, of_rows = entries_of(Lock), entries_of(Group)
    assert [(one.object_id, one.object_repr) for one in of_locks] == [
        (one.name, one.key) for one in held
    ]
    assert of_locks[0].get_admin_url() == address("change", held[0].name)
    assert [one.object_id for one in of_rows] == [str(one.pk) for one in groups]
    entries = LogEntry.objects.all()
    assert {(one.user, one.action_flag) for one in entries} == {(admin_user, CHANGE)}
    assert len(entries) == 2 * len(groups)
    assert "ann@" in of_rows[0].change_message
    holder = r"ann@[\w.-]+:\d+ \(pay\)"
    line = rf" admin Force-released from {holder}, held for [\w ]+ s. Reason: its host is gone"
    logged = log_of(admin_client, held[0].key)
    assert re.search(line, logged)
    assert NOTHING not in logged
    assert ELSEWHERE in logged


ELSEWHERE = "to the logger “django_setnx_lock.force_release”"
NOTHING = "log has nothing that was done to this lock."


def test_where_nothing_is_logged_the_page_says_where_to_look(admin_client: Client) -> None:
    lock("k").take(0)
    inspector().force_release("lock:k", info("k").fingerprint)

    page = log_of(admin_client, "k")

    assert NOTHING in page
    assert ELSEWHERE in page
    assert "change history." not in page
    assert not LogEntry.objects.exists()


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
    assert messages(response)[0].endswith("; and 20 more.")
    assert not fake_server.client().exists(*locks)


@pytest.mark.parametrize(
    ("attributes", "is_away", "told"),
    [
        ({}, False, ["warning: Nobody holds a lock of these."]),
        ({}, True, ["error: Redis cannot be reached."]),
        ({"lock_using": "nope"}, False, ["error: The settings name no cache that can hold locks."]),
    ],
)
def test_why_nothing_can_be_released_is_told(
    admin_client: Client,
    groups: list[Group],
    monkeypatch: pytest.MonkeyPatch,
    fake_server: FakeServer,
    attributes: dict[str, str],
    is_away: bool,
    told: list[str],
) -> None:
    for attribute in attributes.items():
        monkeypatch.setattr(GroupAdmin, *attribute)
    fake_server.connected = not is_away

    said = messages(act(admin_client, RELEASE, groups[:1]))

    assert [one[: len(start)] for one, start in zip(said, told, strict=True)] == told


def test_rows_that_have_no_lock_are_named(admin_client: Client, groups: list[Group]) -> None:
    form = {"action": RELEASE, "_selected_action": groups[0].pk}

    response = admin_client.post("/numbered/auth/group/", form, follow=True)

    assert messages(response) == [
        "warning: 1 group was skipped: ann (<number>: there is no 'number' to take it from)",
        "warning: Nobody holds a lock of these.",
    ]


@pytest.mark.parametrize("may", [False, True])
def test_it_takes_the_permission(
    admin_client: Client, groups: list[Group], held: list[LockHandle], may: bool
) -> None:
    client = staff("view_group", "change_group", *["release_lock"] * may)
    shown = seen(act(admin_client, RELEASE, groups))

    page = client.get("/groups-admin/auth/group/").content.decode()
    act(client, RELEASE, groups, post="yes", **shown)

    assert "Shout" in page
    assert ("Release locks of selected groups" in page) == may
    assert held[0].owned() != may


def test_a_row_that_the_user_may_not_see_any_more_keeps_its_lock(
    admin_client: Client,
    groups: list[Group],
    held: list[LockHandle],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = seen(act(admin_client, RELEASE, groups))
    visible = Group.objects.exclude(pk=groups[0].pk)
    monkeypatch.setattr(GroupAdmin, "get_queryset", lambda *_: visible)

    act(admin_client, RELEASE, groups[1:], post="yes", **shown)

    assert [one.owned() for one in held] == [True, False, False]


def test_entries_that_the_log_refuses_are_logged_elsewhere_and_cost_no_other(
    admin_client: Client, caplog: pytest.LogCaptureFixture, fake_server: FakeServer
) -> None:
    names = [f"group {number}" for number in range(10)]
    groups = Group.objects.bulk_create([Group(name=name) for name in names])
    for group in groups:
        fake_server.client().set(f"lock:group:{group.pk}", "theirs")
    locked = f"group:{groups[7].pk}"
    refuse_entries("group 3", locked)

    release(admin_client, groups)

    assert {entry.object_repr for entry in entries_of(Group)} == {*names} - {"group 3"}
    assert len(entries_of(Lock)) == 9
    told = sorted(one.getMessage() for one in caplog.records if one.levelname == "ERROR")
    assert len(told) == 2
    assert f"to 'group 3': The lock group:{groups[3].pk}: " in told[0]
    assert f"to {locked!r}: Force-released from another program" in told[1]


def test_what_was_released_before_redis_went_away_is_logged(
    admin_client: Client,
    groups: list[Group],
    held: list[LockHandle],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    force_release = Inspector.force_release

    def failing(self: Inspector, name: str, *args: Any, **about: Any) -> Outcome:
        if name != held[0].name:
            raise LockUnavailable("away")
        return force_release(self, name, *args, **about)

    monkeypatch.setattr(Inspector, "force_release", failing)

    release(admin_client, groups)

    assert [entry.object_repr for entry in entries_of(Lock)] == [held[0].key]
    assert [entry.object_repr for entry in entries_of(Group)] == [groups[0].name]
