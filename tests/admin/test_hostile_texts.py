"""Whatever others wrote into Redis, the admin's pages answer, and log a lock's release once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group

from django_setnx_lock import LockLost, lock
from django_setnx_lock.models import Lock
from tests import urls
from tests.admin import groups as groups_site
from tests.admin.groups import RELEASE, act, seen
from tests.admin.pages import LIST, address, boxes, choose, confirm, entries_of, info
from tests.hostile import KEYS, METAS, RECORDS, SHOWN, TEXTS, hold, unsound, unsound_lines
from tests.support.seams import any_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.test import Client

    from tests.servers import FakeServer

urlpatterns = [*urls.urlpatterns, *groups_site.urlpatterns]
pytestmark = [
    pytest.mark.django_db,
    pytest.mark.urls(__name__),
    pytest.mark.usefixtures("no_collection"),
]
LONGEST_PAGE = 80_000


@pytest.fixture(autouse=True)
def sound_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Hold each message that is logged to being one line."""
    with caplog.at_level(logging.DEBUG, "django_setnx_lock"):
        yield
    own = [one for one in caplog.records if one.name.startswith("django_setnx_lock")]
    assert unsound_lines([one.getMessage() for one in own]) == []


def check(page: Any, status: int = 200) -> Any:
    """Hold a page to being sound. Gives it."""
    assert page.status_code == status
    assert unsound(page.content.decode(), longest=LONGEST_PAGE) == ""
    if page.context and "messages" in page.context:
        assert unsound_lines(list(page.context["messages"])) == []
    return page


def look_at(client: Client, name: str) -> None:
    """See each page of that lock."""
    check(client.get(address("change", name)))
    check(choose(client, "release", *boxes(name.removeprefix("lock:"))))


def look_at_lists(client: Client) -> str:
    """See the list in all its forms. Gives what it says."""
    for query in ("?o=key", "?q=group", "?p=2"):
        check(client.get(f"{LIST}{query}"))
    page: str = check(client.get(LIST)).content.decode()
    return page


def release_by_page(client: Client, key: str, reason: str = "") -> None:
    """Release it, and see that there is one entry of each holder."""
    before = set(LogEntry.objects.values_list("pk", flat=True))
    question = choose(client, "release", *boxes(key))
    number = len(question.context["targets"])
    check(confirm(client, question, reason=reason))
    assert not info(key).fingerprint
    entries = LogEntry.objects.exclude(pk__in=before)
    texts = [[one.change_message, one.object_id, one.object_repr] for one in entries]
    assert [unsound_lines(one) for one in texts] == [[]] * number


def test_no_record_of_a_holder_breaks_the_list(admin_client: Client) -> None:
    for number, record in enumerate(RECORDS.values()):
        hold(f"record-{number}", record)
    for number, meta in enumerate(METAS.values()):
        hold(f"meta-{number}", meta=meta)

    page = look_at_lists(admin_client)

    assert f">record-{len(RECORDS) - 1}</a>" in page
    assert f">meta-{len(METAS) - 1}</a>" in page


@pytest.mark.parametrize("what", SHOWN)
def test_no_record_of_a_holder_breaks_its_pages(admin_client: Client, what: str) -> None:
    held = hold("k", RECORDS[what])

    look_at(admin_client, held.name)
    release_by_page(admin_client, "k")


@pytest.mark.parametrize("what", METAS)
def test_nothing_that_stands_beside_a_lock_breaks_its_pages(
    admin_client: Client, what: str
) -> None:
    held = hold("k", meta=METAS[what])

    look_at(admin_client, held.name)
    release_by_page(admin_client, "k")


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

    look_at_lists(admin_client)
    look_at(admin_client, "lock:k")
    release_by_page(admin_client, "k")


@pytest.mark.parametrize("key", KEYS, ids=ascii)
def test_no_key_breaks_a_page(admin_client: Client, key: str) -> None:
    name = hold(key).name

    look_at_lists(admin_client)
    look_at(admin_client, name)
    release_by_page(admin_client, name.removeprefix("lock:"))
    check(admin_client.get(address("history", name)))


def test_names_that_are_no_text_are_in_no_list(
    admin_client: Client, fake_server: FakeServer
) -> None:
    client = fake_server.client()
    hold("k")
    for name in (b"lock:\xff\xfe", b"lock:\xed\xa0\x80", b"lock:" + b"x" * 5000):
        client.set(name, "theirs")
        client.zadd("{lock:}:index", {name: 10**15})

    assert ">k</a>" in look_at_lists(admin_client)


@pytest.mark.parametrize("value", [b"\xff\xfe", b"", b"\0", b"x" * 1_000_000, b"<script>"], ids=len)
def test_no_value_of_another_program_breaks_a_page(
    admin_client: Client, fake_server: FakeServer, value: bytes
) -> None:
    fake_server.client().set("lock:k", value)
    look_at_lists(admin_client)
    look_at(admin_client, "lock:k")
    release_by_page(admin_client, "k")


@pytest.mark.parametrize("what", ["not UTF-8", "lines", "terminal", "direction", "separators"])
def test_no_reason_breaks_a_page_or_the_log(
    admin_client: Client, groups: list[Group], what: str
) -> None:
    # A form decodes what is sent: bytes that are not UTF-8 come as U+FFFD.
    reason = TEXTS[what].replace("\udce4", "\ufffd")
    lost = [lock(f"group:{group.pk}").take(0) for group in groups[:2]]

    release_by_page(admin_client, lost[0].key, reason)
    fingerprints = seen(act(admin_client, RELEASE, groups))
    check(act(admin_client, RELEASE, groups, post="yes", reason=reason, **fingerprints))

    assert unsound_lines([entry.change_message for entry in LogEntry.objects.all()]) == []
    assert [entry.object_repr for entry in entries_of(Lock)] == [one.key for one in lost]
    assert [entry.object_repr for entry in entries_of(Group)] == [groups[1].name]
    for held in lost:
        with pytest.raises(LockLost, match="force-released") as caught:
            held.check()
        assert unsound_lines([caught.value]) == []
