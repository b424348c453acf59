"""The list of those locks that are looked for: by key, holder, template and state, together."""

from __future__ import annotations

import html
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client
from django.utils import timezone

from django_setnx_lock import lock, redis_lock
from django_setnx_lock.admin.lock_list import LOOKED_AT, OTHER_KEYS
from django_setnx_lock.connection import get_client
from django_setnx_lock.core import Holder
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.admin.pages import LIST, hold_since, keys, messages, row, text
from tests.core.helpers import meta_of, write_meta
from tests.core.test_inspection_many import hold
from tests.hostile import RECORDS, unsound
from tests.hostile import hold as hold_hostile
from tests.processes import eventually

if TYPE_CHECKING:
    from django_setnx_lock.core import LockHandle
    from tests.servers import FakeServer, RealServer

pytestmark = pytest.mark.django_db
UNFINISHED = "Not everything was looked through yet."


@redis_lock("filters:order:<pk>")
def order(pk: int) -> None: ...


def hold_as(key: str, **about: Any) -> LockHandle:
    """Have a lock held by whoever says that of itself."""
    held = lock(key, timeout=60, renew=False).take(0)
    set_holder(key, **about)
    return held


def set_holder(key: str, **about: Any) -> None:
    client, name = get_client(), f"lock:{key}"
    meta = meta_of(client, name)
    known = Holder.from_json(str(meta.record))
    assert known
    write_meta(client, meta._replace(record=replace(known, process="", **about).to_json()), name)


@pytest.fixture
def three() -> None:
    hold_as("filters:order:1", host="web1", user="ann", label="view pay", pid=4711)
    hold_as("filters:order:2", host="web2", user="bob", label="view ship", pid=4712)
    # No value has that sign: the key is of no template that other tests have made.
    hold_as("filters~nightly", host="web2", user="ann", label="command import", pid=4713)


@pytest.fixture
def one_of_many(real_cache: RealServer) -> str:
    """The key of a lock among many that are looked for in steps; its holder differs."""
    hold(real_cache.client(), LOOKED_AT + 1000)
    hold_as("filters:order:7", host="rare", user="zoë/x", label="view pay", pid=4711)
    return "filters:order:7"


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"host": "web2"}, ["filters:order:2", "filters~nightly"]),
        ({"user": "ann"}, ["filters:order:1", "filters~nightly"]),
        ({"host": "web2", "user": "ann"}, ["filters~nightly"]),
        ({"template": "filters:order:<pk>"}, ["filters:order:1", "filters:order:2"]),
        ({"template": OTHER_KEYS}, ["filters~nightly"]),
        ({"template": "filters:order:<pk>", "user": "bob"}, ["filters:order:2"]),
        ({"host": "web2", "state": "held", "q": "night"}, ["filters~nightly"]),
        ({"host": "web2", "state": "waiting"}, []),
        ({"host": "web"}, []),
        ({"template": "<<>"}, ["filters:order:1", "filters:order:2", "filters~nightly"]),
    ],
)
def test_filters_keep_the_locks_that_all_of_them_fit(
    admin_client: Client, asked: dict[str, str], expected: list[str]
) -> None:
    assert keys(admin_client.get(LIST, {**asked, "o": "key"})) == expected


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("searched", "expected"),
    [
        ("order:1", ["filters:order:1"]),
        ("web2", ["filters:order:2", "filters~nightly"]),
        ("bob", ["filters:order:2"]),
        ("4713", ["filters~nightly"]),
        ("471", []),
        ("import", ["filters~nightly"]),
        ("WEB2", []),
    ],
)
def test_search_looks_at_key_host_pid_user_and_label(
    admin_client: Client, searched: str, expected: list[str]
) -> None:
    assert keys(admin_client.get(LIST, {"q": searched, "o": "key"})) == expected


def test_a_whole_key_comes_first(admin_client: Client) -> None:
    for key in ("a:order:1", "order:1", "order:12"):
        lock(key).take(0)

    assert keys(admin_client.get(LIST, {"q": "order:1", "o": "key"}))[0] == "order:1"


@pytest.mark.usefixtures("three")
def test_the_form_offers_what_was_seen_with_counts_and_keeps_the_rest(
    admin_client: Client,
) -> None:
    page = admin_client.get(LIST, {"user": "ann", "o": "-held", "state": "held"})
    said, content = text(page), page.content.decode()

    # The other filters are counted in; that of the choice itself is not.
    assert "Any host web1 (1) web2 (1)" in said
    assert "Any user ann (2) bob (1)" in said
    assert "Any template filters:order:<pk> (1) other keys (1)" in said
    assert '<option value="ann" selected>' in content
    assert '<input type="hidden" name="o" value="-held">' in content
    assert 'href="?user=ann&amp;o=key&amp;state=held"' in content


def test_a_filter_survives_paging(admin_client: Client) -> None:
    for number in range(55):
        lock(f"job:{number:02}").take(0)

    page = admin_client.get(LIST, {"q": "job", "o": "key", "p": "2"})

    assert keys(page) == [f"job:{number:02}" for number in range(50, 55)]
    assert 'href="?q=job&amp;o=key&amp;p=1"' in page.content.decode()


def found_on_all_pages(admin_client: Client, asked: dict[str, str]) -> list[str]:
    """Return the keys of the page and of those that "Search on" leads to."""
    page, pages = admin_client.get(LIST, asked), 1
    found = keys(page)
    while UNFINISHED in text(page):
        assert re.search(r"\d+ locks were looked at so far|\d+ lock was", text(page))
        (link,) = re.findall(r'<a href="(\?[^"]*)">Search on</a>', page.content.decode())
        page, pages = admin_client.get(LIST + html.unescape(link)), pages + 1
        found += keys(page)
        assert pages < 50
    return found


@pytest.mark.parametrize(
    "asked",
    [
        {"host": "rare"},
        {"user": "zoë/x"},
        {"q": "zoë/"},
        {"q": "4711"},
        {"template": "filters:order:<pk>"},
        {"q": "rare", "user": "zoë/x", "template": "filters:order:<pk>", "state": "held"},
    ],
    ids=str,
)
def test_of_many_locks_a_filter_finds_the_one_however_many_steps_that_takes(
    admin_client: Client, one_of_many: str, asked: dict[str, str]
) -> None:
    assert found_on_all_pages(admin_client, asked) == [one_of_many]


def test_a_share_of_many_is_found_by_its_holder(
    admin_client: Client, real_cache: RealServer
) -> None:
    hold(real_cache.client(), LOOKED_AT + 100)
    for user in ("ann", "bob", "cyd"):
        lock("report", shared=True, reentrant=False, user=user).take(0)

    assert found_on_all_pages(admin_client, {"user": "bob"}) == ["report"]


def test_no_record_breaks_a_filter(
    admin_client: Client, real_cache: RealServer, no_collection: None
) -> None:
    hold(real_cache.client(), LOOKED_AT + 10)
    for number, record in enumerate(RECORDS.values()):
        hold_hostile(f"record-{number}", record)
    keys_of_one = lock_keys("lock:record-0")
    get_client().delete(keys_of_one.meta)
    get_client().lpush(keys_of_one.meta, "no record")

    for asked in ({"host": "x"}, {"q": "x1b"}, {"q": "\ufffd"}, {"user": '"\\', "q": "é"}):
        page = admin_client.get(LIST, asked)
        assert page.status_code == 200
        assert unsound(page.content.decode(), longest=80_000) == ""


def test_the_list_is_sorted_by_the_time_taken_and_the_longest_wait(
    admin_client: Client, fake_server: FakeServer
) -> None:
    for key, since in (("old", 900), ("new", 0), ("busy", 60)):
        lock(key, timeout=3600, renew=False).take(0)
        hold_since(key, since)
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(lock("busy").take, 20)
        eventually(lambda: fake_server.client().zcard("{lock:busy}:waiters"))
        by_time = [keys(admin_client.get(LIST, {"o": one})) for one in ("taken", "-taken")]
        by_wait = keys(admin_client.get(LIST, {"o": "-wait"}))
        fake_server.client().delete("lock:busy", "{lock:busy}:meta")
        waiter.result(20).release()

    assert by_time == [["old", "busy", "new"], ["new", "busy", "old"]]
    assert by_wait[0] == "busy"


def test_times_are_absolute_in_the_time_zone_that_is_active(admin_client: Client) -> None:
    lock("a", timeout=60).take(0)

    with timezone.override("Asia/Tokyo"):
        page = admin_client.get(LIST)

    assert "+0900" in row(page, "a")
    assert re.search(r'title="\d{4}-[^"]* \+0900"', page.content.decode())


def test_the_legend_says_what_to_do_about_each_state(admin_client: Client) -> None:
    lock("a").take(0)

    said = text(admin_client.get(LIST)).partition("What the states mean")[2]

    assert said.count("What to do:") == 12
    assert messages(admin_client.get(LIST)) == []
