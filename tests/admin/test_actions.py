from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import override_settings

from django_setnx_lock import LockBusy, inspector, lock
from django_setnx_lock.admin import locked_action
from django_setnx_lock.signals import lock_acquired
from tests.admin.groups import GroupAdmin, act, messages_of

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.test import Client

    from tests.servers import FakeServer

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.admin.groups")]


def names() -> list[str]:
    return sorted(Group.objects.values_list("name", flat=True))


def test_the_action_runs_on_all_rows_that_are_free(
    admin_client: Client, groups: list[Group]
) -> None:
    response = act(admin_client, "shout", groups)

    assert names() == ["ANN", "BOB", "CYD"]
    assert messages_of(response) == []


def test_each_row_is_locked_while_the_action_runs(
    admin_client: Client, groups: list[Group]
) -> None:
    act(admin_client, "shout", groups[:2])

    assert set(GroupAdmin.held) == {f"group:{groups[0].pk}", f"group:{groups[1].pk}"}


def test_nothing_is_locked_afterwards(admin_client: Client, groups: list[Group]) -> None:
    act(admin_client, "shout", groups)

    assert not inspector().find().locks


def test_with_min_hold_the_rows_stay_locked_for_so_long(
    admin_client: Client, groups: list[Group]
) -> None:
    first = act(admin_client, "once", groups)
    second = act(admin_client, "once", groups)

    assert messages_of(first) == []
    assert messages_of(second)[0].startswith("warning: 3 groups were skipped: ")


def rename_once_locked(name: str) -> ExitStack:
    """Give that group another name when the first lock is taken."""

    def rename(**about: object) -> None:
        Group.objects.filter(name=name).update(name="zoe")

    lock_acquired.connect(rename, weak=False)
    stack = ExitStack()
    stack.callback(lock_acquired.disconnect, rename)
    return stack


def test_rows_that_nothing_was_done_to_do_not_stay_locked(
    admin_client: Client, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    once = locked_action("group:<name>", min_hold=20)(lambda *_: None)
    monkeypatch.setattr(GroupAdmin, "once", once)

    with rename_once_locked("ann"):
        act(admin_client, "once", groups[:1])

    assert not inspector().find().locks


def test_a_row_that_is_locked_is_skipped_and_its_holder_named(
    admin_client: Client, groups: list[Group]
) -> None:
    with lock(f"group:{groups[1].pk}", label="the other one"):
        response = act(admin_client, "shout", groups)

    assert names() == ["ANN", "CYD", "bob"]
    (message,) = messages_of(response)
    assert message.startswith("warning: 1 group was skipped: bob (")
    assert "the other one" in message


def test_an_action_whose_rows_are_all_locked_does_not_run(
    admin_client: Client, groups: list[Group]
) -> None:
    GroupAdmin.held = ("untouched",)

    with lock(f"group:{groups[0].pk}"):
        act(admin_client, "shout", groups[:1])

    assert GroupAdmin.held == ("untouched",)


def test_a_long_list_of_skipped_rows_is_cut_and_counted(admin_client: Client) -> None:
    groups = [Group.objects.create(name=f"g{number:02}") for number in range(12)]
    held = [lock(f"group:{group.pk}").take(0) for group in groups]

    (message,) = messages_of(act(admin_client, "shout", groups))

    assert message.startswith("warning: 12 groups were skipped")
    assert message.endswith("; and 2 more")
    assert len(held) == 12


def test_rows_that_share_a_key_take_it_once(admin_client: Client, groups: list[Group]) -> None:
    response = act(admin_client, "share", groups)

    assert GroupAdmin.held == ("groups:auth.Group",)
    assert messages_of(response) == []


def test_the_holder_record_names_the_action_the_user_and_the_note(
    admin_client: Client, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy: list[LockBusy] = []

    def meddle(self: GroupAdmin) -> None:
        with pytest.raises(LockBusy) as caught:
            lock(f"group:{groups[0].pk}").take(0)
        busy.append(caught.value)

    monkeypatch.setattr(GroupAdmin, "note", meddle)

    act(admin_client, "shout", groups[:1])

    (error,) = busy
    assert error.holder is not None
    assert (error.holder.label, error.holder.user, error.holder.note) == (
        "action auth.group.shout",
        "admin",
        "loud",
    )


def test_rows_are_read_after_their_locks_were_taken(
    admin_client: Client, groups: list[Group]
) -> None:
    with rename_once_locked("ann"):
        act(admin_client, "shout", groups[:1])

    assert "ZOE" in names()


def test_an_action_that_fails_lets_its_locks_go(admin_client: Client, groups: list[Group]) -> None:
    with pytest.raises(RuntimeError, match="the action failed"):
        act(admin_client, "fail", groups)

    assert not inspector().find().locks


def test_without_redis_nothing_is_done_and_the_message_says_so(
    admin_client: Client, groups: list[Group], fake_server: FakeServer
) -> None:
    fake_server.connected = False

    response = act(admin_client, "shout", groups)

    assert names() == ["ann", "bob", "cyd"]
    (message,) = messages_of(response)
    assert message.startswith("error: Nothing was done")


def test_a_lock_lost_while_the_action_ran_is_told(
    admin_client: Client, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"lock:group:{groups[0].pk}"

    def force(self: GroupAdmin) -> None:
        look = inspector()
        look.force_release(name, look.get(name).fingerprint, by="ann", reason="stuck")

    monkeypatch.setattr(GroupAdmin, "note", force)

    (message,) = messages_of(act(admin_client, "shout", groups[:1]))

    assert "was force-released by ann: stuck" in message
    assert "may have worked on this at the same time" in message


def test_the_leases_are_renewed_while_the_action_runs(
    admin_client: Client, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed: list[bool] = []

    def look(self: GroupAdmin) -> None:
        locks = inspector().find().locks
        renewed.extend(one.holder.renewed for one in locks if one.holder)

    monkeypatch.setattr(GroupAdmin, "note", look)

    act(admin_client, "shout", groups)

    assert renewed == [True] * len(groups)


def test_the_order_of_the_decorators_does_not_matter() -> None:
    whisper: Any = GroupAdmin.whisper

    assert whisper.short_description == "Whisper"
    assert whisper.allowed_permissions == ["delete"]


def test_a_malformed_template_is_refused_at_decoration() -> None:
    with pytest.raises(ValueError, match="run into each other"):
        locked_action("group:<pk><name>")


def test_the_locks_are_taken_in_the_order_of_their_names(
    admin_client: Client, groups: list[Group]
) -> None:
    taken: list[str] = []

    def note(key: str, **about: object) -> None:
        taken.append(key)

    lock_acquired.connect(note)

    act(admin_client, "shout", list(reversed(groups)))

    lock_acquired.disconnect(note)
    assert taken == sorted(f"group:{group.pk}" for group in groups)


def test_a_row_that_cannot_even_be_named_keeps_no_lock(
    admin_client: Client, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nameless(self: Group) -> str:
        raise RuntimeError("no name")

    monkeypatch.setattr(Group, "__str__", nameless)
    other = lock(f"group:{groups[1].pk}").take(0)

    with pytest.raises(RuntimeError, match="no name"):
        act(admin_client, "shout", groups)

    assert [info.key for info in inspector().find().locks] == [other.key]


@pytest.mark.parametrize("template", ["group:<permissions>", "group:<no_such_thing>"])
def test_a_row_without_a_key_is_skipped(
    admin_client: Client,
    groups: list[Group],
    monkeypatch: pytest.MonkeyPatch,
    template: str,
) -> None:
    ran: list[object] = []
    action = locked_action(template)(lambda modeladmin, request, queryset: ran.append(queryset))
    monkeypatch.setattr(GroupAdmin, "shout", action)

    (message,) = messages_of(act(admin_client, "shout", groups[:1]))

    assert message.startswith("warning: 1 group was skipped: ann (")
    assert ran == []


def test_a_row_whose_key_changed_before_its_lock_was_ours_is_skipped(
    admin_client: Client, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def note(modeladmin: object, request: object, queryset: Any) -> None:
        seen.extend(group.name for group in queryset)

    monkeypatch.setattr(GroupAdmin, "shout", locked_action("group:<name>")(note))

    with rename_once_locked("ann"):
        (message,) = messages_of(act(admin_client, "shout", groups[:2]))

    assert seen == ["bob"]
    assert message == "warning: 1 group was skipped: zoe (it changed meanwhile)"


def test_a_lease_that_is_no_time_is_refused_at_decoration() -> None:
    with pytest.raises(ValueError, match="timeout"):
        locked_action("group:<pk>", timeout=0)


def test_a_cache_that_does_not_exist_is_told_and_nothing_is_done(
    admin_client: Client, groups: list[Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    @locked_action("group:<pk>", using="nope")
    def shout(modeladmin: object, request: object, queryset: QuerySet[Group]) -> None:
        queryset.delete()

    monkeypatch.setattr(GroupAdmin, "shout", shout)
    response = act(admin_client, "shout", groups)

    (message,) = messages_of(response)
    assert message.startswith("error: Nothing was done: ")
    assert "There is no cache 'nope' in CACHES." in message
    assert names() == ["ann", "bob", "cyd"]


def test_settings_that_cannot_be_read_are_told_and_nothing_is_done(
    admin_client: Client, groups: list[Group]
) -> None:
    with override_settings(SETNX_LOCK={"CASHE": "default"}):
        response = act(admin_client, "whisper", groups)

    (message,) = messages_of(response)
    assert message.startswith("error: Nothing was done: ")
    assert "SETNX_LOCK has an unknown option 'CASHE'" in message


@pytest.mark.parametrize("may_see", [False, True])
def test_holders_are_named_to_those_who_may_see_locks(
    client: Client, groups: list[Group], may_see: bool
) -> None:
    user = User.objects.create_user("clerk", is_staff=True)
    wanted = ["view_group", "change_group", *["view_lock"] * may_see]
    user.user_permissions.set(Permission.objects.filter(codename__in=wanted))
    client.force_login(user)

    with lock(f"group:{groups[0].pk}", label="nightly", note="secret note"):
        (message,) = messages_of(act(client, "shout", groups[:1]))

    assert message.startswith("warning: 1 group was skipped: ann (")
    assert ("secret note" in message) is may_see
    assert (":" in message.partition("ann (")[2]) is may_see
