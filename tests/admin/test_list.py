"""The list of the locks: what a row says, what is found, and in what order."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client, override_settings
from django.utils import timezone

from django_setnx_lock import inspector, lock
from django_setnx_lock.core import Inspector, LockInfo, WaiterInfo
from tests import past
from tests.admin.pages import HISTORY, LIST, address, info, keys, row, staff, text
from tests.management.holders import (
    hold_in_each_state,
    hold_many,
    hold_since,
    kill_holder,
    read_by,
)
from tests.settings import caches
from tests.support.seams import any_lock
from tests.support.waiting import waiting_for

if TYPE_CHECKING:
    from tests.servers import FakeServer, RealServer

pytestmark = pytest.mark.django_db
TWO_CACHES = {**caches(), "other": {**caches()["default"], "LOCATION": "redis://fake:6379/1"}}


@pytest.mark.parametrize(
    ("permissions", "status"), [((), 403), (("release_lock",), 403), (("view_lock",), 200)]
)
def test_seeing_takes_the_permission(permissions: tuple[str, ...], status: int) -> None:
    client = staff(*permissions)

    pages = (LIST, HISTORY, address("change", "lock:k"))
    assert [client.get(page).status_code for page in pages] == [status] * 3
    index = client.get("/admin/").content.decode()
    assert (f'href="{LIST}"' in index) == ("Distributed locks" in index) == (status == 200)


def test_nobody_adds_or_deletes_a_lock(admin_client: Client) -> None:
    assert admin_client.get(f"{LIST}add/").status_code == 403
    assert admin_client.post(f"{LIST}lock:x/delete/", {"post": "yes"}).status_code == 403


def test_a_row_has_state_holder_time_and_lease(admin_client: Client) -> None:
    held = any_lock("order:42", timeout=150, label="pay", user="ann", note="by hand").take(0)
    hold_since("order:42", 3610)

    page = admin_client.get(LIST)

    assert re.search(r" held ann@\S+ pay; by hand 1 h 2 min \d+ s 0$", row(page, "order:42"))
    content = page.content.decode()
    assert re.search(r'class="field-held-for"[^>]*title="20[^"]* \+0000"', content)
    assert held.token not in content


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        # However long the page takes.
        (-20, "less than 1 s"),
        (125, r"2 min \d+ s"),
        (3605, "1 h"),
        (11_045, "3 h 4 min"),
        (450_000, "5 d 5 h"),
    ],
)
def test_a_time_is_said_in_its_two_largest_units(
    admin_client: Client, seconds: int, said: str
) -> None:
    lock("a", renew=False, timeout=30).take(0)
    hold_since("a", seconds)

    assert re.search(rf":\d+ {said} \d+ s 0$", row(admin_client.get(LIST), "a"))


def test_times_are_in_the_time_zone_that_is_active(admin_client: Client) -> None:
    lock("a", timeout=60).take(0)

    with timezone.override("Asia/Tokyo"):
        page = admin_client.get(LIST)

    assert re.search(r'title="\d{4}-[^"]* \+0900"', page.content.decode())


@pytest.fixture
def each_state() -> None:
    """Have a lock be held in each state."""
    hold_in_each_state()
    any_lock("report", shared=True, user="ann").take(0)
    any_lock("exports", limit=2, user="bob").take(0)


def test_each_state_is_said_in_words_and_trouble_is_marked(
    admin_client: Client, each_state: None
) -> None:
    page = admin_client.get(LIST)

    for key, said in {
        "plain": "held ",
        "late": "not renewed ",
        "gone": "holder gone ",
        "done": "kept ",
        "report": "read ann@",
        "exports": "in use, 1 of 2 bob@",
        "endless": "never expires another program - without end",
        "theirs": "foreign another program - 2 min ",
    }.items():
        assert row(page, key).startswith(f"{key} {said}")
    # Marked, so that they are seen without colour.
    marked = re.findall(r'class="lock-state (\S+) lock-trouble"', page.content.decode())
    assert sorted(marked) == ["lock-gone", "lock-not-renewed"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"q": "order", "o": "key"}, ["order:1", "order:2"]),
        ({"q": "ORDER:1"}, ["order:1"]),
        ({"q": "}b"}, ["{a}b"]),
        ({"q": "<i>"}, []),
        ({"q": "e", "state": "not-renewed"}, ["late"]),
        ({"q": "r", "state": "not-renewed"}, []),
        ({"state": "waiting"}, []),
        ({"state": "not-a-lock"}, []),
    ],
)
def test_keys_are_searched_in_any_case_and_states_are_filtered(
    admin_client: Client, query: dict[str, str], expected: list[str]
) -> None:
    for key in ("order:1", "order:2", "{a}b", "late"):
        lock(key, timeout=300).take(0)
    hold_since("late", 600)
    past.client().pexpire("lock:late", 100_000)

    page = admin_client.get(LIST, query)

    assert keys(page) == expected
    assert ("No locks match." in text(page)) == (not expected)


def test_what_needs_attention_comes_first_or_what_is_first_by_key(
    admin_client: Client, each_state: None
) -> None:
    page, by_key = admin_client.get(LIST), keys(admin_client.get(LIST, {"o": "key"}))

    assert keys(page)[:3] == ["gone", "late", "endless"]
    assert '<a href="?state=not-renewed">not renewed 1</a>' in page.content.decode()
    assert (len(by_key), by_key) == (8, sorted(by_key))


def test_of_equal_trouble_that_comes_first_for_which_callers_would_wait_longest(
    admin_client: Client,
) -> None:
    for key, timeout in (("soon", 15), ("alone", 900), ("long", 600)):
        lock(key, timeout=timeout).take(0)
        kill_holder(key)
    with waiting_for("soon", "soon", "long"):
        page = admin_client.get(LIST)

    assert keys(page) == ["long", "soon", "alone"]


def test_a_holder_that_waits_itself_says_for_what(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock("a").take(0)
    awaited = WaiterInfo(key="<b>", name="lock:<b>", holder=None, waited=7.0, fingerprint="f")
    get_each = Inspector.get_each

    def waiting(self: Inspector, *names: Any, **options: Any) -> list[LockInfo]:
        return [replace(one, waits_for=awaited) for one in get_each(self, *names, **options)]

    monkeypatch.setattr(Inspector, "get_each", waiting)

    assert " held waits for <b> " in row(admin_client.get(LIST), "a")
    page = admin_client.get(address("change", "lock:a"))
    assert f'href="{address("change", "lock:<b>")}">&lt;b&gt;</a>' in page.content.decode()


def test_a_holder_that_was_asked_to_stop_is_told_from_others(admin_client: Client) -> None:
    for key in ("asked", "left"):
        lock(key).take(0)
    inspector().ask_to_stop("lock:asked", info("asked").fingerprint)
    page = admin_client.get(LIST)

    assert "asked held asked to stop " in row(page, "asked")
    assert "asked to stop" not in row(page, "left")


def test_of_many_readers_the_first_few_are_named(admin_client: Client) -> None:
    read_by("report", "ann", "bob", "cyd", "dan", "eve")

    said = row(admin_client.get(LIST), "report")

    assert re.search(r"ann@.*bob@.*cyd@.* and 2 more", said)
    assert "dan@" not in said


def counts(page: Any) -> list[str]:
    """What is counted above the list."""
    (found,) = re.findall(r'<ul class="lock-counts">(.*?)</ul>', page.content.decode(), re.DOTALL)
    return re.sub(r"<[^>]*>", " ", found).split()


def test_only_what_was_found_is_counted(admin_client: Client, fake_server: FakeServer) -> None:
    lock("a").take(0)
    # Nobody has met these, so that nobody looks at them.
    fake_server.client().set("lock:legacy", "their-token")
    fake_server.client().hset("lock:letters", "a", "b")

    assert counts(admin_client.get(LIST)) == ["all", "held", "1"]


def test_a_whole_key_comes_first_and_need_not_be_listed(
    admin_client: Client, fake_server: FakeServer
) -> None:
    for key in ("a:theirs", "theirs:1"):
        lock(key).take(0)
    fake_server.client().set("lock:theirs", "their-token", px=50_000)

    # What is no lock is called so.
    fake_server.client().lpush("lock:letters", "a")
    letters = row(admin_client.get(LIST, {"q": "letters"}), "letters")

    assert letters.startswith("letters not a lock - ")
    assert keys(admin_client.get(LIST, {"q": "theirs"})) == ["theirs", "a:theirs", "theirs:1"]
    assert keys(admin_client.get(LIST)) == ["a:theirs", "theirs:1"]


def test_there_are_fifty_on_a_page_and_filters_survive_paging(admin_client: Client) -> None:
    assert "Nobody holds a lock right now." in text(admin_client.get(LIST))
    many = [f"job:{number:03}" for number in range(101)]
    for key in many:
        lock(key).take(0)

    first = admin_client.get(LIST, {"q": "job", "o": "key"})
    last = admin_client.get(LIST, {"q": "job", "o": "key", "p": "3"})

    assert keys(first) == many[:50]
    assert keys(last) == many[100:]
    assert "101 locks" in text(first)
    assert 'href="?q=job&amp;o=key&amp;p=3"' in first.content.decode()
    for senseless, shown in (("abc", 0), ("-7", 100), ("99", 100), ("9" * 40, 100)):
        assert keys(admin_client.get(LIST, {"p": senseless}))[0] == many[shown]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        *((f"?{one}", 200) for one in ("o=nonsense", "o=-", "q=%00", "z=1", "state=x")),
        (f"?q={'x' * 9000}", 200),
        *((f"history/?{one}", 200) for one in ("p=x", "p=-3", "q=%00", "q=%FF", "name=", "z=1")),
        *((f"history/?name={one}", 404) for one in ("session:1", "lock:a}b")),
    ],
)
def test_what_makes_no_sense_in_an_address_does_no_harm(
    admin_client: Client, query: str, status: int
) -> None:
    past.note("order:42")

    assert admin_client.get(f"{LIST}{query}").status_code == status


@pytest.mark.parametrize("page", [address("change", "lock:order:42"), HISTORY])
def test_the_list_leads_to_a_lock_and_the_history_and_back_to_the_list_as_it_was(
    admin_client: Client, page: str
) -> None:
    lock("order:42").take(0)

    listed = admin_client.get(LIST, {"q": "order", "o": "key"}).content.decode()
    link = f"{page}?_changelist_filters=q%3Dorder%26o%3Dkey"

    assert f'href="{link}"' in listed
    assert f'href="{LIST}?q=order&amp;o=key"' in admin_client.get(link).content.decode()


def test_of_very_many_locks_the_page_says_that_there_are_more(
    admin_client: Client, real_cache: RealServer
) -> None:
    hold_many(2100, "k{:04}".format)

    page = admin_client.get(LIST)
    found = admin_client.get(LIST, {"q": "k2099"})
    others = admin_client.get(LIST, {"q": "K000"})

    assert "There are more locks: 300 were looked at" in text(page)
    assert "There are more locks: 2000 were looked at" in text(others)
    assert "manage.py locks list" in text(page)
    assert keys(page)[0] == "k0000"
    assert keys(found) == ["k2099"]
    assert keys(others) == [f"k000{number}" for number in range(10)]


def test_a_cache_is_chosen_by_its_alias(admin_client: Client) -> None:
    assert "using=" not in admin_client.get(LIST).content.decode()
    with override_settings(CACHES=TWO_CACHES):
        lock("here").take(0)
        lock("there", using="other").take(0)

        page = admin_client.get(LIST)
        other = admin_client.get(LIST, {"using": "other"})

    assert keys(page) == ["here"]
    assert 'href="?using=other"' in page.content.decode()
    assert keys(other) == ["there"]
    assert "change/?using=other" in other.content.decode()


@pytest.mark.parametrize("alias", ["nowhere", "memory"])
def test_a_cache_that_keeps_no_locks_is_not_found(admin_client: Client, alias: str) -> None:
    memory = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    with override_settings(CACHES={**caches(), "memory": memory}):
        assert admin_client.get(LIST, {"using": alias}).status_code == 404


def test_the_legend_says_what_each_state_means_and_what_to_do(admin_client: Client) -> None:
    lock("a").take(0)

    said = text(admin_client.get(LIST)).partition("What the states mean")[2]

    assert "not a lock Something that is no lock is stored" in said
    assert said.count("What to do:") > 9
