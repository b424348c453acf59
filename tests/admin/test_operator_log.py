"""The operator log of a lock: what users did to its holders, whichever way that was done."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group, User
from django.core.management import call_command

from django_setnx_lock import LockLost, LockUnavailable, inspector, lock
from django_setnx_lock.core import Inspector, Outcome
from django_setnx_lock.models import Lock
from tests import past, urls
from tests.admin import groups as groups_site
from tests.admin.groups import RELEASE, act, messages_of, seen
from tests.admin.pages import HISTORY, address, entries_of, info, refuse_entries, text
from tests.support.seams import any_lock

if TYPE_CHECKING:
    from django.test import Client

    from tests.servers import FakeServer

urlpatterns = [*urls.urlpatterns, *groups_site.urlpatterns]
pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]
ELSEWHERE = "to the logger “django_setnx_lock.force_release”"
NOTHING = "log has nothing that was done to this lock."


def log_of(client: Client, key: str) -> str:
    """What the page says."""
    return text(client.get(address("history", f"lock:{key}")))


def release_selected(client: Client, groups: list[Group], reason: str = "stuck") -> None:
    """Release the locks of these rows by the action of their admin."""
    fingerprints = seen(act(client, RELEASE, groups))
    page = act(client, RELEASE, groups, post="yes", reason=reason, **fingerprints)
    assert "Released" in messages_of(page)[0]


def test_a_release_of_selected_rows_is_in_the_log_of_the_lock(
    admin_client: Client, groups: list[Group]
) -> None:
    key = f"group:{groups[0].pk}"
    any_lock(key, user="ann", label="pay").take(0)

    release_selected(admin_client, groups[:1], "its host is gone")

    holder = r"ann@[\w.-]+:\d+ \(pay\)"
    line = rf" admin Force-released from {holder}, held for [\w ]+ s. Reason: its host is gone"
    assert re.search(line, log_of(admin_client, key))


def test_a_release_of_selected_rows_is_one_entry_of_the_lock_and_one_of_the_row(
    admin_client: Client, admin_user: User, groups: list[Group]
) -> None:
    # In the order of the list.
    groups.reverse()
    held = [lock(f"group:{group.pk}").take(0) for group in groups]

    release_selected(admin_client, groups)

    entries = LogEntry.objects.all()
    assert [entry.object_id for entry in entries_of(Lock)] == [one.name for one in held]
    assert [entry.object_repr for entry in entries_of(Lock)] == [one.key for one in held]
    assert [entry.object_id for entry in entries_of(Group)] == [str(one.pk) for one in groups]
    assert {(entry.user, entry.action_flag) for entry in entries} == {(admin_user, CHANGE)}
    assert len(entries) == 2 * len(groups)


def test_a_release_of_selected_rows_is_in_the_history_of_the_lock(
    admin_client: Client, groups: list[Group]
) -> None:
    key = f"group:{groups[0].pk}"
    held = any_lock(key, user="ann", label="pay").take(0)

    release_selected(admin_client, groups[:1], "its host is gone")

    with pytest.raises(LockLost):
        held.release()
    past.noted(2)
    page = text(admin_client.get(HISTORY))
    assert f"{key} forced by admin: its host is gone ann@" in page


def test_a_row_and_its_lock_lead_from_the_log_to_their_pages(
    admin_client: Client, groups: list[Group]
) -> None:
    held = lock(f"group:{groups[0].pk}").take(0)

    release_selected(admin_client, groups[:1])

    (entry,) = entries_of(Lock)
    assert entry.get_admin_url() == address("change", held.name)


def test_entries_that_the_log_refuses_are_logged_elsewhere_and_cost_no_other(
    admin_client: Client, caplog: pytest.LogCaptureFixture, fake_server: FakeServer
) -> None:
    names = [f"group {number}" for number in range(10)]
    groups = Group.objects.bulk_create([Group(name=name) for name in names])
    for group in groups:
        fake_server.client().set(f"lock:group:{group.pk}", "theirs")
    locked = f"group:{groups[7].pk}"
    refuse_entries("group 3", locked)

    release_selected(admin_client, groups)

    assert {entry.object_repr for entry in entries_of(Group)} == {*names} - {"group 3"}
    assert len(entries_of(Lock)) == 9
    told = sorted(one.getMessage() for one in caplog.records if one.levelname == "ERROR")
    assert len(told) == 2
    assert f"to 'group 3': The lock group:{groups[3].pk}: " in told[0]
    assert f"to {locked!r}: Force-released from another program" in told[1]


def test_what_was_released_before_redis_went_away_is_logged(
    admin_client: Client,
    groups: list[Group],
    monkeypatch: pytest.MonkeyPatch,
    fake_server: FakeServer,
) -> None:
    # In the order of the list.
    second, first = (f"group:{group.pk}" for group in groups[:2])
    for key in (first, second):
        fake_server.client().set(f"lock:{key}", "theirs")
    force_release = Inspector.force_release

    def failing(self: Inspector, name: str, *args: Any, **about: Any) -> Outcome:
        if name == f"lock:{second}":
            raise LockUnavailable(second)
        return force_release(self, name, *args, **about)

    monkeypatch.setattr(Inspector, "force_release", failing)
    fingerprints = seen(act(admin_client, RELEASE, groups[:2]))

    act(admin_client, RELEASE, groups[:2], post="yes", **fingerprints)

    assert [entry.object_repr for entry in entries_of(Lock)] == [first]
    assert [entry.object_repr for entry in entries_of(Group)] == ["bob"]


@pytest.mark.parametrize("released", ["command", "code", "not at all"])
def test_where_nothing_is_logged_the_page_says_where_to_look(
    admin_client: Client, released: str
) -> None:
    lock("k").take(0)
    if released == "command":
        call_command("locks", "release", "k", "--yes")
    elif released == "code":
        inspector().force_release("lock:k", info("k").fingerprint)

    page = log_of(admin_client, "k")

    assert NOTHING in page
    assert ELSEWHERE in page
    assert "change history." not in page
    assert not LogEntry.objects.exists()


def test_where_something_is_logged_the_page_says_that_it_may_not_be_all(
    admin_client: Client, groups: list[Group]
) -> None:
    key = f"group:{groups[0].pk}"
    lock(key).take(0)
    release_selected(admin_client, groups[:1])

    page = log_of(admin_client, key)

    assert NOTHING not in page
    assert ELSEWHERE in page
