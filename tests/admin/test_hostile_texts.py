"""Whatever others wrote into Redis, the admin's pages answer, and log a lock's release once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group

from django_setnx_lock import LockLost, inspector, lock
from django_setnx_lock.models import Lock
from tests import past, urls
from tests.admin import groups as groups_site
from tests.admin.groups import RELEASE, act, seen
from tests.admin.pages import HISTORY, LIST, address, boxes, choose, confirm, entries_of, info
from tests.hostile import KEYS, METAS, RECORDS, TEXTS, hold, unsound, unsound_lines
from tests.hostile import sound_logs as sound_logs
from tests.support.seams import any_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.servers import FakeServer

urlpatterns = [*urls.urlpatterns, *groups_site.urlpatterns]
pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls(__name__),
    pytest.mark.usefixtures("no_collection"),
]
LONGEST_PAGE = 80_000


def check(page: Any, status: int = 200) -> Any:
    """Hold a page to being sound. Gives it."""
    assert page.status_code == status
    assert unsound(page.content.decode(), longest=LONGEST_PAGE) == ""
    if page.context and "messages" in page.context:
        assert unsound_lines(list(page.context["messages"])) == []
    return page


def look_at(client: Client, *names: str) -> str:
    """See the list in all its forms, and the page of each of these locks. Gives the list."""
    for query in ("?o=key", "?q=group", "?p=2"):
        check(client.get(f"{LIST}{query}"))
    for name in names:
        check(client.get(address("change", name)))
    return str(check(client.get(LIST)).content.decode())


def release_by_page(client: Client, *keys: str, reason: str = "") -> None:
    """Release them, and see that there is one entry of each holder."""
    before = set(LogEntry.objects.values_list("pk", flat=True))
    question = check(choose(client, "release", *boxes(*keys)))
    number = len(question.context["targets"])
    check(confirm(client, question, reason=reason))
    assert [key for key in keys if info(key).fingerprint] == []
    entries = LogEntry.objects.exclude(pk__in=before)
    texts = [[one.change_message, one.object_id, one.object_repr] for one in entries]
    assert [unsound_lines(one) for one in texts] == [[]] * number


def hold_value(key: str, value: bytes) -> object:
    """Have ``key`` held by another program, with that value."""
    past.client().zadd("{lock:}:index", {f"lock:{key}": 10**15})
    return past.client().set(f"lock:{key}", value)


VALUES = (b"\xff\xfe", b"", b"\0", b"x" * 1_000_000, b"<script>")
HOLD: dict[str, Callable[[], list[object]]] = {
    "records": lambda: [hold(f"{number}", one) for number, one in enumerate(RECORDS.values())],
    "metas": lambda: [hold(f"{number}", meta=one) for number, one in enumerate(METAS.values())],
    "keys": lambda: [hold(key) for key in KEYS],
    "values": lambda: [hold_value(f"{number}", one) for number, one in enumerate(VALUES)],
}


@pytest.mark.parametrize("what", HOLD)
def test_nothing_that_others_wrote_of_a_held_lock_breaks_a_page(
    admin_client: Client, what: str
) -> None:
    held = HOLD[what]()
    names = [one.name for one in inspector().find().locks]

    page = look_at(admin_client, *names)

    assert len(names) == len(held) == page.count('name="_selected_action"')
    # A message names ten of them.
    for start in range(0, len(names), 10):
        some = names[start : start + 10]
        release_by_page(admin_client, *(name.removeprefix("lock:") for name in some))
    for name in names:
        check(admin_client.get(address("history", name)))
        check(admin_client.get(HISTORY, {"name": name}))


def test_no_record_of_a_holder_breaks_an_action_or_the_release_of_what_is_selected(
    admin_client: Client,
) -> None:
    rows = [Group.objects.create(name=str(number)) for number in range(len(RECORDS))]
    # In the order of the list.
    rows.reverse()
    for row, record in zip(rows, RECORDS.values(), strict=True):
        hold(f"group:{row.pk}", record)

    # A message names ten of them.
    for start in range(0, len(rows), 10):
        check(act(admin_client, "shout", rows[start : start + 10]))
    fingerprints = seen(check(act(admin_client, RELEASE, rows)))
    check(act(admin_client, RELEASE, rows, post="yes", **fingerprints))

    assert [row for row in rows if info(f"group:{row.pk}").fingerprint] == []
    assert [entry.object_id for entry in entries_of(Group)] == [str(row.pk) for row in rows]
    assert [entry.object_repr for entry in entries_of(Lock)] == [f"group:{row.pk}" for row in rows]
    entries = LogEntry.objects.all()
    assert unsound_lines([entry.change_message for entry in entries]) == []


def test_no_record_of_one_who_shares_a_lock_breaks_a_page(
    admin_client: Client, fake_server: FakeServer
) -> None:
    client, holders = fake_server.client(), "{lock:k}:holders"
    readers = [any_lock("k", shared=True).take(0) for _ in range(len(RECORDS) + 1)]
    for held, record in zip(readers, [*RECORDS.values(), b"{}"], strict=True):
        client.hset(holders, held.token, b"%d %s" % (10**15, record))
    client.hset(holders, readers[-1].token, b"9" * 5000 + b" {}")

    look_at(admin_client, "lock:k")
    release_by_page(admin_client, "k")


def test_no_record_and_no_reason_breaks_the_history(admin_client: Client) -> None:
    for record in RECORDS.values():
        past.note("k", holder=record.decode("utf-8", "surrogateescape"))
    for word in TEXTS.values():
        past.note("k", "forced", by=word[:60_000], reason=word[:60_000])
    for key in KEYS:
        past.note(key)

    look_at(admin_client, "lock:k")
    check(admin_client.get(HISTORY))


def test_no_reason_breaks_a_page_or_the_log(admin_client: Client, groups: list[Group]) -> None:
    # A form decodes what is sent: bytes that are not UTF-8 come as U+FFFD.
    whats = ("not UTF-8", "lines", "terminal", "direction", "separators")
    reason = " ".join(TEXTS[what] for what in whats).replace("\udce4", "\ufffd")
    lost = [lock(f"group:{group.pk}").take(0) for group in groups[:2]]

    release_by_page(admin_client, lost[0].key, reason=reason)
    fingerprints = seen(act(admin_client, RELEASE, groups))
    check(act(admin_client, RELEASE, groups, post="yes", reason=reason, **fingerprints))

    assert unsound_lines([entry.change_message for entry in LogEntry.objects.all()]) == []
    assert [entry.object_repr for entry in entries_of(Lock)] == [one.key for one in lost]
    assert [entry.object_repr for entry in entries_of(Group)] == [groups[1].name]
    for held in lost:
        with pytest.raises(LockLost, match="force-released") as caught:
            held.check()
        assert unsound_lines([caught.value]) == []
