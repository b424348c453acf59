"""Actions of a model admin under the locks of their rows."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib import admin
from django.contrib.admin.sites import all_sites
from django.contrib.auth.models import Group
from django.core.checks import run_checks
from django.db import connection
from django.test import override_settings

from django_setnx_lock import inspector, lock
from django_setnx_lock.admin import LockedAdminMixin, locked_action
from django_setnx_lock.core import LockInfo
from django_setnx_lock.signals import lock_acquired
from tests import databases
from tests.admin.groups import GroupAdmin, act
from tests.admin.pages import messages, staff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.test import Client

    from tests.servers import FakeServer

    During = Callable[[Callable[[], object]], None]

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.admin.groups")]

SKIPPED = "warning: 1 group was skipped: "


def names() -> list[str]:
    return sorted(Group.objects.values_list("name", flat=True))


def locks() -> list[LockInfo]:
    return list(inspector().find().locks)


@pytest.fixture
def during(monkeypatch: pytest.MonkeyPatch) -> During:
    """Give a function that says what happens while ``shout`` and ``share`` are at work."""
    return lambda what: monkeypatch.setattr(GroupAdmin, "note", lambda _: what())


@contextmanager
def at_each_lock(what: Callable[[str], object]) -> Iterator[None]:
    """Have that done with the key of each lock that is taken."""

    def receive(key: str, **about: object) -> None:
        what(key)

    lock_acquired.connect(receive)
    yield
    lock_acquired.disconnect(receive)


def rename_ann(key: str) -> None:
    Group.objects.filter(name="ann").update(name="zoe")


def test_it_runs_on_all_rows_under_the_renewed_lock_of_each(
    admin_client: Client, groups: list[Group], during: During
) -> None:
    taken: list[str] = []
    found: list[LockInfo] = []
    during(lambda: found.extend(locks()))

    with at_each_lock(taken.append):
        response = act(admin_client, "shout", list(reversed(groups)))

    assert names() == ["ANN", "BOB", "CYD"]
    assert messages(response) == []
    # In one order, whatever that of the rows is.
    assert taken == sorted(f"group:{group.pk}" for group in groups)
    assert {one.key for one in found} == {*taken}
    for one in found:
        assert one.holder is not None
        assert one.holder.renewed
        assert one.holder.label == "action auth.group.shout"
        assert (one.holder.user, one.holder.note) == ("admin", "loud")
    assert not locks()


def test_with_min_hold_the_rows_stay_locked_for_so_long(
    admin_client: Client, groups: list[Group]
) -> None:
    first = act(admin_client, "once", groups)
    second = act(admin_client, "once", groups)

    assert messages(first) == []
    assert messages(second)[0].startswith("warning: 3 groups were skipped: ")


def test_rows_that_nothing_was_done_to_do_not_stay_locked(
    admin_client: Client, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    once = locked_action("group:<name>", min_hold=20)(lambda *_: None)
    monkeypatch.setattr(GroupAdmin, "once", once)

    with at_each_lock(rename_ann):
        act(admin_client, "once", groups[:1])

    assert not locks()


def test_a_row_that_is_locked_is_skipped_and_its_holder_named(
    admin_client: Client, groups: list[Group]
) -> None:
    with lock(f"group:{groups[1].pk}", label="the other one"):
        response = act(admin_client, "shout", groups)

    assert names() == ["ANN", "CYD", "bob"]
    (message,) = messages(response)
    assert message.startswith(f"{SKIPPED}bob (")
    assert "the other one" in message


def test_an_action_whose_rows_are_all_locked_does_not_run_and_ten_are_named(
    admin_client: Client, during: During
) -> None:
    ran: list[bool] = []
    during(lambda: ran.append(True))
    groups = [Group.objects.create(name=f"g{number:02}") for number in range(12)]
    held = [lock(f"group:{group.pk}").take(0) for group in groups]

    (message,) = messages(act(admin_client, "shout", groups))

    assert message.startswith("warning: 12 groups were skipped")
    assert message.endswith("; and 2 more")
    assert (ran, len(held)) == ([], 12)


def test_rows_that_share_a_key_take_it_once(
    admin_client: Client, groups: list[Group], during: During
) -> None:
    found: list[str] = []
    during(lambda: found.extend(one.key for one in locks()))

    response = act(admin_client, "share", groups)

    assert found == ["groups:auth.Group"]
    assert messages(response) == []


def test_rows_are_read_after_their_locks_were_taken(
    admin_client: Client, groups: list[Group]
) -> None:
    with at_each_lock(rename_ann):
        act(admin_client, "shout", groups[:1])

    assert "ZOE" in names()


def test_a_row_whose_key_changed_before_its_lock_was_ours_is_skipped(
    admin_client: Client, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Group] = []
    action = locked_action("group:<name>")(lambda *about: seen.extend(about[2]))
    monkeypatch.setattr(GroupAdmin, "shout", action)

    with at_each_lock(rename_ann):
        response = act(admin_client, "shout", groups[:2])

    assert [group.name for group in seen] == ["bob"]
    assert messages(response) == [f"{SKIPPED}zoe (it changed meanwhile)"]


@pytest.mark.parametrize("template", ["group:<permissions>", "group:<no_such_thing>"])
def test_a_row_without_a_key_is_skipped(
    admin_client: Client, groups: list[Group], monkeypatch: pytest.MonkeyPatch, template: str
) -> None:
    ran: list[object] = []
    monkeypatch.setattr(GroupAdmin, "shout", locked_action(template)(lambda *about: ran.append(1)))

    (message,) = messages(act(admin_client, "shout", groups[:1]))

    assert message.startswith(f"{SKIPPED}ann (")
    assert ran == []


def test_an_action_that_fails_lets_its_locks_go(admin_client: Client, groups: list[Group]) -> None:
    with pytest.raises(RuntimeError, match="the action failed"):
        act(admin_client, "fail", groups)

    assert not locks()


def test_a_row_that_cannot_even_be_named_keeps_no_lock(
    admin_client: Client, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nameless(self: Group) -> str:
        raise RuntimeError("no name")

    monkeypatch.setattr(Group, "__str__", nameless)
    other = lock(f"group:{groups[1].pk}").take(0)

    with pytest.raises(RuntimeError, match="no name"):
        act(admin_client, "shout", groups)

    assert [info.key for info in locks()] == [other.key]


@pytest.mark.parametrize(
    ("options", "setting", "is_away", "said"),
    [
        ({}, {}, True, "Redis cannot be reached"),
        ({"using": "nope"}, {}, False, "There is no cache 'nope' in CACHES."),
        ({}, {"CASHE": "default"}, False, "SETNX_LOCK has an unknown option 'CASHE'"),
    ],
)
def test_where_no_lock_can_be_had_nothing_is_done_and_the_message_says_why(
    admin_client: Client,
    groups: list[Group],
    monkeypatch: pytest.MonkeyPatch,
    fake_server: FakeServer,
    options: dict[str, Any],
    setting: dict[str, str],
    is_away: bool,
    said: str,
) -> None:
    delete = locked_action("group:<pk>", **options)(lambda *about: about[2].delete())
    monkeypatch.setattr(GroupAdmin, "shout", delete)
    fake_server.connected = not is_away

    with override_settings(SETNX_LOCK=setting):
        (message,) = messages(act(admin_client, "shout", groups))

    assert message.startswith("error: Nothing was done")
    assert said in message
    assert names() == ["ann", "bob", "cyd"]


def test_a_lock_lost_while_the_action_ran_is_told(
    admin_client: Client, groups: list[Group], during: During
) -> None:
    name = f"lock:group:{groups[0].pk}"

    def force() -> None:
        look = inspector()
        look.force_release(name, look.get(name).fingerprint, by="ann", reason="stuck")

    during(force)

    (message,) = messages(act(admin_client, "shout", groups[:1]))

    assert "was force-released by ann: stuck" in message
    assert "may have worked on this at the same time" in message


@pytest.mark.parametrize("may_see", [False, True])
def test_holders_are_named_to_those_who_may_see_locks(groups: list[Group], may_see: bool) -> None:
    client = staff("view_group", "change_group", *["view_lock"] * may_see)

    with lock(f"group:{groups[0].pk}", label="nightly", note="secret note"):
        (message,) = messages(act(client, "shout", groups[:1]))

    assert message.startswith(f"{SKIPPED}ann (")
    assert ("secret note" in message) is may_see
    assert (":" in message.partition("ann (")[2]) is may_see


def test_the_order_of_the_decorators_does_not_matter() -> None:
    whisper: Any = GroupAdmin.whisper

    assert whisper.short_description == "Whisper"
    assert whisper.allowed_permissions == ["delete"]


@pytest.mark.parametrize(
    ("template", "options", "problem"),
    [
        ("group:<pk><name>", {}, "run into each other"),
        ("group:<pk>", {"timeout": 0}, "timeout"),
        ("group:<pk>", {"until_commit": "later"}, "until_commit"),
        ("group:<pk>", {"blocking_timeout": 1}, "blocking_timeout"),
    ],
)
def test_what_no_action_can_have_is_refused_at_decoration(
    template: str, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        locked_action(template, **options)


# In transactions


@pytest.fixture
def ends(
    transactional_db: None,
    groups: list[Group],
    admin_client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> list[str]:
    """Tell of each commit and rollback of the action, and of the first row's lock then."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    return databases.journal(monkeypatch, f"group:{groups[0].pk}")


@pytest.mark.parametrize(("setting", "then"), [({}, "locked"), ({"UNTIL_COMMIT": False}, "open")])
def test_the_rows_stay_locked_until_the_commit_unless_the_setting_says_otherwise(
    admin_client: Client, groups: list[Group], ends: list[str], setting: dict[str, bool], then: str
) -> None:
    with override_settings(SETNX_LOCK=setting):
        act(admin_client, "shout", groups)

    assert (ends[0], names()) == (f"commit default {then}", ["ANN", "BOB", "CYD"])
    assert not locks()


def test_an_action_that_lost_a_lock_is_rolled_back(
    admin_client: Client,
    groups: list[Group],
    ends: list[str],
    fake_server: FakeServer,
    during: During,
) -> None:
    during(lambda: fake_server.client().delete(f"lock:group:{groups[0].pk}"))

    response = act(admin_client, "shout", groups)

    assert response.status_code == 503
    assert (ends[0], names()) == ("rollback default open", ["ann", "bob", "cyd"])


# What the checks of Django find


@pytest.mark.parametrize(
    ("attributes", "found"),
    [
        ({"actions": [locked_action("group:<colour>")(lambda *_: None)]}, "W003 <colour>"),
        ({"lock_key": "group:<hue>"}, "W003 <hue>"),
        ({"actions": [locked_action("group:<pk>", using="nope")(lambda *_: None)]}, "E011 'nope'"),
        ({"lock_using": "neither"}, "E011 'neither'"),
        ({"actions": [locked_action("group:<name>")(lambda *_: None)]}, ""),
    ],
)
def test_the_template_and_the_cache_of_an_action_are_checked(
    attributes: dict[str, Any], found: str
) -> None:
    site = admin.AdminSite("checked")
    bases = (LockedAdminMixin, admin.ModelAdmin)
    made: Any = type("Checked", bases, {"lock_key": "group:<pk>", **attributes})
    site.register(Group, made)
    wanted = found.split()

    told = [one for one in run_checks() if one.obj is made or "'checked'" in one.msg]
    all_sites.discard(site)

    assert [one.id for one in told] == [f"django_setnx_lock.{one}" for one in wanted[:1]]
    assert all(wanted[1] in one.msg for one in told)
