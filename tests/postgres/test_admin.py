"""The admin on PostgreSQL: its log, which stores no NUL, and the edit form."""

from __future__ import annotations

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.db import connections
from django.test import Client

from django_setnx_lock import lock
from django_setnx_lock.models import Lock
from django_setnx_lock.testing import LockTester
from example_project.shop.models import Order
from tests.admin.groups import RELEASE, act, seen
from tests.admin.orders import save_at_once, stored
from tests.admin.pages import address, boxes, choose, confirm, entries_of, messages, press, text
from tests.hostile import KEYS, RECORDS, hold, unsound_lines
from tests.postgres.conftest import WHOLE

pytestmark = [
    # What tests/admin has on SQLite, where a NUL in a text is no error.
    pytest.mark.matrix,
    pytest.mark.usefixtures("no_collection"),
    # One process starts the server.
    pytest.mark.xdist_group("postgres"),
]


@pytest.fixture
def admin(whole_postgres: str) -> Client:
    """Give a superuser's client; users, sessions and the log are in PostgreSQL."""
    client = Client()
    client.force_login(User.objects.create_superuser("admin"))
    return client


def test_the_page_writes_one_entry_of_each_release(admin: Client) -> None:
    held = [hold(f"k{number}", record) for number, record in enumerate(RECORDS.values())]
    held += [hold(key) for key in KEYS]
    chosen = boxes(*(one.name.removeprefix("lock:") for one in held))
    # As many as a page of the list has.
    for start in range(0, len(held), 50):
        confirm(admin, choose(admin, "release", *chosen[start : start + 50]), reason="stuck")

    assert [one for one in held if one.owned()] == []
    assert LogEntry.objects.count() == len(held)
    entries = LogEntry.objects.all()
    texts = [text for entry in entries for text in (entry.change_message, entry.object_repr)]
    assert unsound_lines(texts) == []
    assert all(entry.change_message.endswith("Reason: stuck") for entry in entries)


def test_the_history_of_a_lock_with_a_nul_in_its_name_shows_its_releases(admin: Client) -> None:
    held = hold("nul\0key")
    press(admin, "release", held.key, reason="stuck")

    history = admin.get(address("history", held.name))

    assert "Reason: stuck" in text(history)


@pytest.mark.urls("tests.admin.test_release_action")
def test_the_action_writes_one_entry_of_the_lock_and_one_of_the_row(admin: Client) -> None:
    group = Group.objects.create(name="ann")
    held = lock(f"group:{group.pk}", note="nul\0note", label="Aufr\udce4umen").take(0)
    fingerprints = seen(act(admin, RELEASE, [group]))

    page = act(admin, RELEASE, [group], post="yes", reason="a\nb", **fingerprints)

    assert messages(page)[0].startswith("success: Released")
    assert not held.owned()
    (of_row,), (of_lock,) = entries_of(Group), entries_of(Lock)
    assert of_row.change_message == f"The lock {held.key}: {of_lock.change_message}"
    assert r"(Aufr\udce4umen; nul\x00note), held for" in of_lock.change_message
    assert re.search(r"held for [\w ]+ s\. Reason: a\\nb$", of_lock.change_message)
    assert of_lock.change_message in text(admin.get(address("history", held.name)))


@pytest.mark.urls("tests.admin.test_release_action")
def test_an_entry_that_is_refused_in_a_transaction_costs_no_other(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = Group.objects.bulk_create([Group(name=name) for name in ("ann", "bob", "cyd")])
    for group in groups:
        lock(f"group:{group.pk}").take(0)
    with connections[WHOLE].cursor() as cursor:
        cursor.execute("ALTER TABLE django_admin_log ADD CHECK (object_repr <> 'bob')")
    monkeypatch.setitem(connections[WHOLE].settings_dict, "ATOMIC_REQUESTS", True)
    fingerprints = seen(act(admin, RELEASE, groups))

    page = act(admin, RELEASE, groups, post="yes", **fingerprints)

    assert messages(page)[0].startswith("success: Released")
    assert {entry.object_repr for entry in entries_of(Group)} == {"ann", "cyd"}
    assert len(entries_of(Lock)) == 3


@pytest.mark.urls("tests.admin.groups")
def test_the_action_refuses_a_nul_in_the_reason_before_anything_is_done(admin: Client) -> None:
    group = Group.objects.create(name="ann")
    held = lock(f"group:{group.pk}").take(0)
    fingerprints = seen(act(admin, RELEASE, [group]))

    page = act(admin, RELEASE, [group], post="yes", reason="a\0b", **fingerprints)

    assert "Null characters are not allowed" in page.content.decode()
    assert seen(page)
    assert held.owned()
    assert not LogEntry.objects.exists()


# Rows, which can be locked there


@pytest.mark.urls("tests.admin.orders")
@pytest.mark.usefixtures("whole_postgres")
def test_of_several_who_save_at_once_without_redis_one_has_saved() -> None:
    for number in range(5):
        order = Order.objects.create(number=str(number), customer="Ann Lee", amount="10.00")
        with LockTester("ignore") as redis, redis.unreachable():
            assert save_at_once(order, "ann", "bob", "cyd") == [stored(order)]
