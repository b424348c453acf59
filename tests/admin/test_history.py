"""The last holds on the page of a lock, and the page with the history of all locks."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockLost, lock
from tests import past
from tests.admin.pages import HISTORY, LIST, address, keys, press, text
from tests.management.holders import kill_holder

if TYPE_CHECKING:
    from django.test import Client

    from tests.servers import FakeServer

pytestmark = pytest.mark.django_db
PAGE = address("change", "lock:order:42")


def rows(page: Any) -> list[str]:
    """What the table of the past holds says, from top to bottom."""
    found = page.content.decode().partition('class="lock-rows lock-past"')[2].partition("</table>")
    bodies = re.findall(r"<tr[^>]*>(.*?)</tr>", found[0], re.DOTALL)[1:]
    return [" ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split()) for body in bodies]


def force(*names: str) -> None:
    """Have these locks have been taken from holders, the last one at last."""
    for key in names:
        past.note(key, "forced", by="rita", reason="stuck")


ENDS: dict[str, Callable[[Client], object]] = {
    "lost": lambda _: past.client().delete("lock:order:42"),
    "forced by admin: stuck": lambda client: press(client, "release", "order:42", reason="stuck"),
}


@pytest.mark.parametrize(("said", "end"), ENDS.items())
def test_how_a_hold_ended_is_told_on_the_page_of_its_lock_and_in_the_history(
    admin_client: Client, said: str, end: Callable[[Client], object]
) -> None:
    held = lock("order:42").take(0)
    end(admin_client)
    with pytest.raises(LockLost):
        held.release()
    past.noted(1)

    assert re.search(rf"^{said}", rows(admin_client.get(PAGE))[0])
    (row,) = rows(admin_client.get(HISTORY))
    assert re.search(rf"^order:42 {said}", row)


def test_who_was_forced_out_is_named_until_it_knows(
    admin_client: Client, nobody_looks: None
) -> None:
    held = lock("order:42", timeout=90).take(0)
    press(admin_client, "release", "order:42")
    past.noted(1)

    pages = [admin_client.get(page) for page in (LIST, PAGE)]
    with pytest.raises(LockLost):
        held.release()
    past.noted(2)
    later = [admin_client.get(page) for page in (LIST, PAGE)]

    assert all("order:42 was taken from " in text(page) for page in pages)
    assert not any("was taken from" in text(page) for page in later)


@pytest.mark.parametrize("holder", ["gone", "of another program"])
def test_whom_nobody_has_to_fear_is_not_named(
    admin_client: Client, fake_server: FakeServer, holder: str
) -> None:
    if holder == "gone":
        lock("order:42", timeout=600).take(0)
        kill_holder("order:42")
    else:
        fake_server.client().set("lock:order:42", "theirs", px=50_000)
    press(admin_client, "release", "order:42", reason="stuck")
    past.noted(1)

    page = admin_client.get(LIST)

    assert "was taken from" not in text(page)
    (row,) = rows(admin_client.get(HISTORY))
    assert row.startswith("order:42 forced by admin: stuck (its holder did not note it) ")


def test_the_list_says_how_many_leases_ran_out_and_leads_to_them(admin_client: Client) -> None:
    for key in ("a", "b"):
        past.note(key, "ran out", at=time.time() - 60)
    past.note("c", "ran out")
    past.note("d", "lost", at=time.time())

    page = admin_client.get(LIST).content.decode()
    link = re.search(r'<a href="([^"]*)">2 leases ran out in the last hour</a>', page)
    assert link is not None

    assert keys(admin_client.get(html.unescape(link[1]))) == ["b", "a", "c"]


def test_the_page_says_how_long_such_a_hold_usually_lasts(admin_client: Client) -> None:
    for held_for in (60.0, 90.0, 300.0):
        past.note("order:42", held_for=held_for)
    past.note("order:42", "lost", held_for=7000.0)
    past.note("import", held_for=8000.0)

    usually = "Usually held for 1 min 30 s (the median of 3 in the history)"
    assert usually in text(admin_client.get(PAGE))


def test_the_page_tells_who_held_this_lock_and_leads_to_its_history_and_back(
    admin_client: Client,
) -> None:
    past.note("order:42", waited=6.0)
    force("order:421")

    page = admin_client.get(PAGE)
    link = re.search(rf'href="({HISTORY}[^"]*)"', page.content.decode())
    assert link is not None
    history = admin_client.get(html.unescape(link[1]))

    (row,) = rows(page)
    assert re.search(r"ann@web1:7 import 20[\d-]+ [\d:]+ \+0000 6 s 1 min 30 s$", row)
    assert len(rows(history)) == 1
    assert f'href="{PAGE}"' in history.content.decode()


def test_without_the_history_the_rest_of_the_lock_is_shown(admin_client: Client) -> None:
    lock("order:42").take(0)
    past.client().set(past.KEY, "no list")

    page = admin_client.get(PAGE)

    assert "State held: last renewed" in text(page)
    assert "Force-release…" in page.content.decode()
    assert rows(page) == []
    assert admin_client.get(HISTORY).status_code == 200


def test_the_latest_end_is_first_and_fifty_are_on_a_page(admin_client: Client) -> None:
    force(*(f"order:{number}" for number in range(52)))

    found = [keys(admin_client.get(HISTORY, {"p": page})) for page in ("1", "2")]

    assert [len(one) for one in found] == [50, 2]
    assert [*found[0], *found[1]] == [f"order:{number}" for number in reversed(range(52))]


@pytest.mark.parametrize(
    ("searched", "expected"),
    [
        ("ORDER", ["order:7", "order:42"]),
        ("forced by rita", ["order:7", "import", "order:42"]),
        ("ann@", ["order:7", "import", "order:42"]),
        ("zoe", []),
    ],
)
def test_key_end_and_holder_can_be_searched_for(
    admin_client: Client, searched: str, expected: list[str]
) -> None:
    force("order:42", "import", "order:7")

    page = admin_client.get(HISTORY, {"q": searched})

    assert keys(page) == expected
    assert ("No matching entries." in text(page)) == (not expected)


def test_each_cache_has_a_history_of_its_own(admin_client: Client, settings: Any) -> None:
    caches = {**settings.CACHES, "other": {**settings.CACHES["default"]}}
    caches["other"]["LOCATION"] = "redis://fake.invalid:6379/3"
    settings.CACHES = caches
    past.note("k", using="other")

    assert keys(admin_client.get(HISTORY)) == []
    page = admin_client.get(HISTORY, {"using": "other"})
    assert keys(page) == ["k"]
    assert f'href="{address("change", "lock:k")}?using=other"' in page.content.decode()
