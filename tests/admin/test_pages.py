from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest
from django.test import Client, override_settings

from django_setnx_lock import lock
from tests.admin.pages import LIST, disown, hold_since, info, keys, row, staff, text
from tests.core.helpers import ask, let_lapse
from tests.settings import caches

if TYPE_CHECKING:
    from tests.servers import FakeServer

pytestmark = pytest.mark.django_db
TWO_CACHES = {**caches(), "other": {**caches()["default"], "LOCATION": "redis://fake:6379/1"}}


@pytest.fixture
def held_keys() -> list[str]:
    """Locks that somebody holds, in no order, with leases that end in a third."""
    for key, timeout in [("order:2", 300), ("invoice:1", 100), ("order:1", 200)]:
        lock(key, timeout=timeout).take(0)
    return ["invoice:1", "order:1", "order:2"]


def test_the_admin_index_leads_to_the_list(admin_client: Client) -> None:
    page = admin_client.get("/admin/").content.decode()

    assert "Distributed locks" in page
    assert f'href="{LIST}"' in page


def test_the_index_offers_nothing_to_those_without_permission() -> None:
    assert LIST not in staff().get("/admin/").content.decode()


def test_seeing_takes_the_permission() -> None:
    assert staff("release_lock").get(LIST).status_code == 403


def test_with_the_permission_the_list_is_seen() -> None:
    assert staff("view_lock").get(LIST).status_code == 200


def test_nobody_adds_or_deletes_a_lock(admin_client: Client) -> None:
    assert admin_client.get(f"{LIST}add/").status_code == 403
    assert admin_client.post(f"{LIST}lock:x/delete/", {"post": "yes"}).status_code == 403


def test_a_held_lock_is_shown_with_holder_times_and_waiting(
    admin_client: Client, fake_server: FakeServer
) -> None:
    lock("order:42", timeout=150, label="pay", user="ann", note="by hand").take(0)
    hold_since("order:42", 3610)
    waiters = [lock("order:42").attempt() for _ in range(3)]
    for waiter in waiters:
        ask(waiter, waits=True)
    let_lapse(fake_server.client(), waiters[0].token, "lock:order:42")

    words = row(admin_client.get(LIST), "order:42")

    assert " held ann@" in words
    taken = (
        f"{datetime.fromtimestamp(info('order:42').granted_at or 0, timezone.utc):%Y-%m-%d %H:%M}"
    )
    assert f"pay; by hand 1 h {taken}" in words
    assert "+0000 2 min" in words
    assert words.endswith(" 2 less than 1 s")


def test_each_state_is_said_in_words(admin_client: Client, fake_server: FakeServer) -> None:
    for key in ("plain", "endless", "over"):
        lock(key).take(0)
    redis = fake_server.client()
    redis.persist("lock:endless")
    redis.delete("lock:over")
    redis.set("lock:theirs", "their-token", px=125_000)
    with lock("done", min_hold=125):
        pass
    # The last: one lock in a hundred that is taken removes what has been over for long.
    redis.zadd("{lock:}:index", {"lock:over": 1})
    redis.set("lock:passed", "baton:their-token", px=1_000_000)

    page = admin_client.get(LIST, {"everything": "1"})

    assert "plain held " in row(page, "plain")
    assert "done kept " in row(page, "done")
    assert "endless never expires " in row(page, "endless")
    assert "without end" in row(page, "endless")
    assert "over lease over " in row(page, "over")
    assert "passed changing hands - " in row(page, "passed")
    assert "theirs foreign another program - - 2 min " in row(page, "theirs")


def test_a_holder_that_needs_attention_is_told_from_a_living_one(
    admin_client: Client, fake_server: FakeServer
) -> None:
    for key in ("late", "gone", "living"):
        lock(key, timeout=300).take(0)
        hold_since(key, 600)
    fake_server.client().pexpire("lock:late", 100_000)
    disown("gone")

    page = admin_client.get(LIST)

    assert "late not renewed " in row(page, "late")
    assert "gone holder gone " in row(page, "gone")
    assert "living held " in row(page, "living")
    # Marked, so that they are seen without colour.
    marked = re.findall(r'class="lock-state (\S+) lock-trouble"', page.content.decode())
    assert sorted(marked) == ["lock-gone", "lock-not-renewed"]


def test_the_token_is_not_on_the_page(admin_client: Client) -> None:
    held = lock("order:42").take(0)

    assert held.token not in admin_client.get(LIST).content.decode()


def test_what_holders_say_is_escaped(admin_client: Client) -> None:
    lock("a & <b >key", label="<script>label", user="<script>user", note="<script>note").take(0)

    page = admin_client.get(LIST)

    assert keys(page) == ["a & <b >key"]
    for word in ("a & <b >key", "<script>label", "<script>user", "<script>note"):
        assert word not in page.content.decode()
        assert word in row(page, "a & <b >key")


def test_when_nobody_holds_a_lock_the_list_says_so(admin_client: Client) -> None:
    assert "Nobody holds a lock right now." in text(admin_client.get(LIST))


def test_keys_are_in_order(admin_client: Client, held_keys: list[str]) -> None:
    assert keys(admin_client.get(LIST)) == held_keys


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("key", ["invoice:1", "order:1", "order:2"]),
        ("-key", ["order:2", "order:1", "invoice:1"]),
        ("lease", ["invoice:1", "order:1", "order:2"]),
        ("-lease", ["order:2", "order:1", "invoice:1"]),
    ],
)
@pytest.mark.usefixtures("held_keys")
def test_the_list_is_sorted_as_asked(admin_client: Client, order: str, expected: list[str]) -> None:
    assert keys(admin_client.get(LIST, {"o": order})) == expected


@pytest.mark.usefixtures("held_keys")
def test_a_header_turns_the_order_round(admin_client: Client) -> None:
    page = admin_client.get(LIST, {"o": "lease", "q": "order"}).content.decode()

    assert 'aria-sort="ascending"' in page
    assert 'href="?o=-lease&amp;q=order"' in page
    assert 'href="?o=key&amp;q=order"' in page


@pytest.mark.usefixtures("held_keys")
def test_search_keeps_the_keys_with_that_part(admin_client: Client) -> None:
    assert keys(admin_client.get(LIST, {"q": "order"})) == ["order:1", "order:2"]


def test_a_search_without_result_says_so(admin_client: Client, held_keys: list[str]) -> None:
    page = text(admin_client.get(LIST, {"q": "<i>"}))

    assert "No held lock is like that." in page


def test_search_for_a_key_finds_a_lock_nobody_listed(
    admin_client: Client, fake_server: FakeServer
) -> None:
    fake_server.client().set("lock:theirs", "their-token", px=50_000)

    assert keys(admin_client.get(LIST)) == []
    assert keys(admin_client.get(LIST, {"q": "their"})) == []
    assert keys(admin_client.get(LIST, {"q": "theirs"})) == ["theirs"]


def test_what_is_no_lock_is_found_by_its_key_and_called_so(
    admin_client: Client, fake_server: FakeServer
) -> None:
    fake_server.client().lpush("lock:letters", "a")

    page = admin_client.get(LIST, {"q": "letters"})

    assert "letters not a lock - " in row(page, "letters")


def test_a_search_that_no_key_can_equal_is_only_a_search(admin_client: Client) -> None:
    lock("{a}b").take(0)

    assert keys(admin_client.get(LIST, {"q": "}b"})) == ["{a}b"]


def test_locks_of_other_programs_are_shown_when_asked_for(
    admin_client: Client, fake_server: FakeServer
) -> None:
    fake_server.client().set("lock:theirs", "their-token", px=50_000)
    lock("ours").take(0)

    page = admin_client.get(LIST)
    more = admin_client.get(LIST, {"everything": "1"})

    assert "Show locks of other programs too" in text(page)
    assert keys(more) == ["ours", "theirs"]


@override_settings(SETNX_LOCK={"INDEX": False})
def test_without_an_index_every_lock_is_listed_anyway(
    admin_client: Client, fake_server: FakeServer
) -> None:
    fake_server.client().set("lock:theirs", "their-token", px=50_000)

    page = admin_client.get(LIST)

    assert keys(page) == ["theirs"]
    assert "other programs" not in text(page)


@pytest.fixture
def many() -> list[str]:
    """One lock more than fills two pages."""
    found = [f"job:{number:03}" for number in range(101)]
    for key in found:
        lock(key).take(0)
    return found


def test_there_are_fifty_on_a_page(admin_client: Client, many: list[str]) -> None:
    page = admin_client.get(LIST)

    assert keys(page) == many[:50]
    assert "101 locks" in text(page)
    assert 'href="?p=3"' in page.content.decode()


def test_the_last_page_has_the_rest(admin_client: Client, many: list[str]) -> None:
    assert keys(admin_client.get(LIST, {"p": "3"})) == many[100:]


@pytest.mark.parametrize(
    ("asked", "first"),
    [("abc", 0), ("-7", 0), ("0", 0), ("", 0), ("99", 100), ("9" * 5000, 0), ("9" * 40, 100)],
)
def test_a_senseless_page_number_shows_a_page_that_there_is(
    admin_client: Client, many: list[str], asked: str, first: int
) -> None:
    assert keys(admin_client.get(LIST, {"p": asked}))[0] == many[first]


@pytest.mark.parametrize(
    "parameters",
    [
        {"o": "nonsense"},
        {"o": "-"},
        {"everything": "x"},
        {"q": "\0"},
        {"q": "x" * 9000},
        {"z": "1"},
    ],
)
def test_senseless_parameters_are_as_good_as_none(
    admin_client: Client, parameters: dict[str, str]
) -> None:
    assert admin_client.get(LIST, parameters).status_code == 200


def test_one_cache_is_no_choice(admin_client: Client) -> None:
    assert "using=" not in admin_client.get(LIST).content.decode()


def test_a_cache_is_chosen_by_its_alias(admin_client: Client) -> None:
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
