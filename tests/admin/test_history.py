"""The last holds on the page of a lock, and the page with the history of all locks."""

from __future__ import annotations

import html
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command

from django_setnx_lock import LockLost, LockUnavailable, inspector, lock
from django_setnx_lock.core import Inspector
from tests.admin.pages import HISTORY, LIST, address, info, keys, press, staff, text
from tests.hostile import KEYS, METAS, RECORDS, SHOWN, TEXTS, hold, unsound

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

    from tests.servers import FakeServer

pytestmark = pytest.mark.django_db
PAGE = address("change", "lock:order:42")


def rows(page: Any) -> list[str]:
    """What the table of the past holds says, from top to bottom."""
    found = page.content.decode().partition('class="lock-rows lock-past"')[2].partition("</table>")
    bodies = re.findall(r"<tr[^>]*>(.*?)</tr>", found[0], re.DOTALL)[1:]
    return [" ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split()) for body in bodies]


def release(key: str = "order:42", by: str = "", reason: str = "") -> None:
    """Take a lock from its holder, by code."""
    inspector().force_release(f"lock:{key}", info(key).fingerprint, by=by, reason=reason)


def force(*names: str) -> None:
    """Take these locks from holders, the last one at last."""
    for key in names:
        lock(key, user="ann", label="pay", reentrant=False).take(0)
        release(key, by="rita", reason="stuck")


def lost(client: Client, server: FakeServer) -> None:
    held = lock("order:42").take(0)
    server.client().delete("lock:order:42")
    with suppress(LockLost):
        held.release()


def by_page(client: Client, server: FakeServer) -> None:
    lock("order:42").take(0)
    press(client, "release", "order:42", reason="stuck")


def by_command(client: Client, server: FakeServer) -> None:
    lock("order:42").take(0)
    call_command("locks", "release", "order:42", "--yes", "--reason", "stuck")


def by_code(client: Client, server: FakeServer) -> None:
    lock("order:42").take(0)
    release(by="a script", reason="stuck")


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (lost, "lost"),
        (by_page, "forced by admin: stuck"),
        (by_command, r"forced by \S+@\S+: stuck"),
        (by_code, "forced by a script: stuck"),
    ],
)
def test_how_a_hold_ended_is_told_on_the_page_of_its_lock_and_in_the_history(
    admin_client: Client,
    fake_server: FakeServer,
    end: Callable[[Client, FakeServer], None],
    said: str,
) -> None:
    end(admin_client, fake_server)

    assert re.search(rf"^{said}", rows(admin_client.get(PAGE))[0])
    (row,) = rows(admin_client.get(HISTORY))
    assert re.search(rf"^order:42 {said}", row)


def test_who_held_it_and_for_how_long_is_told(admin_client: Client) -> None:
    held = lock("order:42", user="ann", label="pay", note="by hand").take(0)
    release()

    page = admin_client.get(PAGE)

    (row,) = rows(page)
    assert re.search(r"ann@[\w.-]+:\d+ pay; by hand 20[\d-]+ [\d:]+ \+0000 - less than 1 s$", row)
    assert held.token not in page.content.decode()


def test_holds_of_other_locks_are_not_told(admin_client: Client) -> None:
    force("order:42", "order:421")

    assert len(rows(admin_client.get(PAGE))) == 1


def test_without_the_history_the_rest_of_the_lock_is_shown(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Inspector, *args: Any, **about: Any) -> None:
        raise LockUnavailable("order:42", cause="denied")

    lock("order:42").take(0)
    monkeypatch.setattr(Inspector, "history", refuse)

    page = admin_client.get(PAGE)

    assert "State held: Somebody holds it" in text(page)
    assert "Redis refuses the credentials of the cache, or they lack a right." in text(page)
    assert "Force-release…" in page.content.decode()
    assert "Redis refuses the credentials" in text(admin_client.get(HISTORY))


def test_the_lock_leads_to_its_history_and_back(admin_client: Client) -> None:
    force("order:42", "order:421")

    link = re.search(rf'href="({HISTORY}[^"]*)"', admin_client.get(PAGE).content.decode())
    assert link is not None
    page = admin_client.get(html.unescape(link[1]))

    assert len(rows(page)) == 1
    assert f'href="{PAGE}"' in page.content.decode()


def test_the_list_leads_to_the_history_and_back_to_the_list_as_it_was(
    admin_client: Client,
) -> None:
    listed = admin_client.get(LIST, {"q": "order", "o": "key"}).content.decode()
    link = f"{HISTORY}?_changelist_filters=q%3Dorder%26o%3Dkey"
    page = admin_client.get(link).content.decode()

    assert f'href="{link}"' in listed
    assert f'href="{LIST}?q=order&amp;o=key"' in page


def test_seeing_the_history_takes_the_permission() -> None:
    assert staff("release_lock").get(HISTORY).status_code == 403


def test_who_may_see_locks_may_see_the_history() -> None:
    force("order:42")

    assert len(rows(staff("view_lock").get(HISTORY))) == 1


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


@pytest.mark.parametrize("query", ["p=x", "p=-3", "q=%00", "q=%FF", "name=", "z=1"])
def test_what_makes_no_sense_in_the_address_does_no_harm(admin_client: Client, query: str) -> None:
    force("order:42")

    assert admin_client.get(f"{HISTORY}?{query}").status_code == 200


@pytest.mark.parametrize("name", ["session:1", "lock:a}b"])
def test_what_is_no_lock_of_the_project_has_no_history(admin_client: Client, name: str) -> None:
    assert admin_client.get(HISTORY, {"name": name}).status_code == 404


def test_each_cache_has_a_history_of_its_own(admin_client: Client, settings: Any) -> None:
    caches = {**settings.CACHES, "other": {**settings.CACHES["default"]}}
    caches["other"]["LOCATION"] = "redis://fake.invalid:6379/3"
    settings.CACHES = caches
    lock("k", using="other").take(0)
    look = inspector("other")
    look.force_release("lock:k", look.get("lock:k").fingerprint)

    assert keys(admin_client.get(HISTORY)) == []
    page = admin_client.get(HISTORY, {"using": "other"})
    assert keys(page) == ["k"]
    assert f'href="{address("change", "lock:k")}?using=other"' in page.content.decode()


def check(page: Any) -> None:
    """Hold a page to being sound."""
    assert page.status_code == 200
    assert unsound(page.content.decode(), longest=200_000) == ""


@pytest.mark.parametrize("what", SHOWN)
def test_no_record_of_a_holder_breaks_the_history(admin_client: Client, what: str) -> None:
    hold("order:42", RECORDS[what])
    release()

    check(admin_client.get(PAGE))
    check(admin_client.get(HISTORY))
    assert " forced" in rows(admin_client.get(HISTORY))[0]


@pytest.mark.parametrize("what", METAS)
def test_nothing_that_stood_beside_a_lock_breaks_the_history(
    admin_client: Client, what: str
) -> None:
    hold("order:42", meta=METAS[what])
    release()

    check(admin_client.get(PAGE))
    check(admin_client.get(HISTORY))


@pytest.mark.parametrize("what", ["not UTF-8", "lines", "terminal", "direction", "HTML", "1 MB"])
def test_no_reason_breaks_the_history(admin_client: Client, what: str) -> None:
    lock("order:42").take(0)
    release(by=TEXTS[what], reason=TEXTS[what])

    check(admin_client.get(PAGE))
    check(admin_client.get(HISTORY))


@pytest.mark.parametrize("key", KEYS, ids=ascii)
def test_no_key_breaks_the_history(admin_client: Client, key: str) -> None:
    name = hold(key).name
    release(name.removeprefix("lock:"))

    check(admin_client.get(address("change", name)))
    check(admin_client.get(HISTORY))
    check(admin_client.get(HISTORY, {"name": name}))
