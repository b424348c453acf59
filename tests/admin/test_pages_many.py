"""The list of more locks than are sorted by key."""

from __future__ import annotations

import html
import itertools
import re
from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client

from django_setnx_lock.core import clock
from tests.admin.pages import LIST, keys, text
from tests.core.test_inspection_many import MANY, hold, let_pass

if TYPE_CHECKING:
    from tests.servers import RealServer

pytestmark = pytest.mark.django_db
NOT_BY_KEY = "locks are sorted by the end of the lease, and not by key"
UNFINISHED = "Not everything was looked through yet."


@pytest.fixture
def many(real_cache: RealServer) -> list[str]:
    """The keys of locks that are held, the last to end first."""
    return hold(real_cache.client(), MANY)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a minute pass whenever somebody looks at the clock."""
    minutes = itertools.count()
    monkeypatch.setattr(clock, "now", lambda: next(minutes) * 60.0)


def onward(page: Any) -> dict[str, str]:
    """What the link to go on with the search asks for."""
    (link,) = re.findall(r'<a href="\?([^"]*)">Search on</a>', page.content.decode())
    return dict(part.split("=") for part in html.unescape(link).split("&"))


def test_so_many_are_listed_by_lease_and_the_page_says_so(
    admin_client: Client, many: list[str]
) -> None:
    page = admin_client.get(LIST, {"o": "key"})

    assert keys(page) == many[: -50 - 1 : -1]
    assert keys(admin_client.get(LIST)) == keys(page)
    assert NOT_BY_KEY in text(page)
    assert f"{MANY} locks" in text(page)
    # The header that is marked is that of the leases.
    assert 'href="?o=-lease" class="toggle ascending"' in page.content.decode()


def test_the_last_page_of_many_has_the_rest(admin_client: Client, many: list[str]) -> None:
    page = admin_client.get(LIST, {"p": "99", "o": "lease"})

    assert keys(page) == many[49::-1]
    assert NOT_BY_KEY not in text(page)


@pytest.mark.usefixtures("slow", "many")
def test_a_search_that_was_not_finished_is_searched_on(admin_client: Client) -> None:
    page = admin_client.get(LIST, {"q": "00999", "o": "-key", "p": "3"})
    found = keys(page)

    assert UNFINISHED in text(page)
    assert "q" in onward(page)
    for _ in range(20):
        page = admin_client.get(LIST, onward(page))
        found += keys(page)
        if UNFINISHED not in text(page):
            break

    assert found == ["k00999"]
    assert UNFINISHED not in text(page)


@pytest.mark.usefixtures("many")
def test_a_whole_key_is_found_at_once_and_others_after_it(admin_client: Client) -> None:
    page = admin_client.get(LIST, {"q": "k00007"})

    assert keys(page) == ["k00007"]
    assert UNFINISHED in text(page)
    assert onward(page) == {"q": "k00007", "at": "0"}


@pytest.mark.usefixtures("slow", "many")
def test_a_search_without_result_so_far_does_not_say_that_there_is_none(
    admin_client: Client,
) -> None:
    page = admin_client.get(LIST, {"q": "nothing"})

    assert "Nothing was found so far." in text(page)
    assert "No held lock is like that." not in text(page)


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("start", ["-1", "x", "9" * 20, "9" * 5000, "٣", "1\n"])
def test_a_senseless_place_to_go_on_from_is_none(admin_client: Client, start: str) -> None:
    page = admin_client.get(LIST, {"q": "k00007", "at": start})

    assert keys(page) == ["k00007"]


@pytest.mark.usefixtures("many")
def test_another_order_or_search_begins_anew(admin_client: Client) -> None:
    page = admin_client.get(LIST, {"q": "k0", "at": "0"}).content.decode()

    # The pages of what was found go on from there, as the next search does.
    links = re.findall(r'href="\?([^"]*)"', page)
    assert [link for link in links if "o=" in link or "everything=" in link]
    assert [
        link for link in links if "at=" in link and ("o=" in link or "everything=" in link)
    ] == []
    assert 'name="at"' not in page


def test_a_link_leads_to_the_locks_whose_lease_is_over(
    admin_client: Client, many: list[str], real_cache: RealServer
) -> None:
    let_pass(real_cache.client(), {"over1": 1, "over2": 2})

    page = admin_client.get(LIST)
    (link,) = re.findall(r'<a href="([^"]*)">Lease over: 2 locks</a>', page.content.decode())
    found = keys(admin_client.get(LIST + html.unescape(link)))

    assert many[0] not in keys(page)
    assert found == ["over2", "over1"]


def test_without_such_locks_there_is_no_link(admin_client: Client, many: list[str]) -> None:
    assert "Lease over" not in text(admin_client.get(LIST)).partition("What the states mean")[0]
