"""The last holds on the page of a lock, and the page with the history of all locks."""

from __future__ import annotations

import html
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command

from django_setnx_lock import LockLost, LockUnavailable, inspector, lock
from django_setnx_lock.connection import get_client
from django_setnx_lock.core import End, Inspector, State
from django_setnx_lock.core.protocol.keys import history_beside, index_for
from tests.admin.pages import HISTORY, LIST, address, info, keys, staff, text
from tests.hostile import KEYS, METAS, RECORDS, SHOWN, TEXTS, hold, unsound
from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test import Client

pytestmark = pytest.mark.django_db
PAGE = address("change", "lock:order:42")


@pytest.fixture
def everything(settings: Any) -> None:
    """Have all holds kept."""
    settings.SETNX_LOCK = {**getattr(settings, "SETNX_LOCK", {}), "HISTORY": "all"}


def rows(page: Any) -> list[str]:
    """What the table of the past holds says, from top to bottom."""
    found = page.content.decode().partition('class="lock-rows lock-past"')[2].partition("</table>")
    bodies = re.findall(r"<tr[^>]*>(.*?)</tr>", found[0], re.DOTALL)[1:]
    return [" ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split()) for body in bodies]


def release(key: str = "order:42", **about: str) -> None:
    """Take a lock from its holder, by code."""
    inspector().force_release(f"lock:{key}", info(key).fingerprint, **about)


def force(*names: str) -> None:
    """Take these locks from holders, the last one at last."""
    for key in names:
        lock(key, user="ann", label="pay", reentrant=False).take(0)
        release(key, by="rita", reason="stuck")


def let_the_lease_end(key: str = "order:42") -> None:
    lock(key, timeout=0.05, renew=False, reentrant=False).take(0)
    eventually(lambda: info(key).state is State.OVER)


def end_released(client: Client) -> None:
    with lock("order:42"):
        pass


def end_lease_over(client: Client) -> None:
    let_the_lease_end()
    lock("order:42", reentrant=False).take(0)


def end_lost(client: Client) -> None:
    held = lock("order:42").take(0)
    get_client().delete("lock:order:42")
    with suppress(LockLost):
        held.release()


def end_dismissed(client: Client) -> None:
    let_the_lease_end()
    post(client, "dismiss")


def by_page(client: Client) -> None:
    lock("order:42").take(0)
    post(client, "release")


def by_command(client: Client) -> None:
    lock("order:42").take(0)
    call_command("locks", "release", "order:42", "--yes", "--reason", "stuck")


def by_code(client: Client) -> None:
    lock("order:42").take(0)
    release(by="a script", reason="stuck")


def post(client: Client, page: str) -> None:
    form = {"post": "yes", "fingerprint": info("order:42").fingerprint, "reason": "stuck"}
    client.post(address(page, "lock:order:42"), form)


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize(
    ("end", "said"),
    [
        (end_released, "released"),
        (end_lease_over, "lease over"),
        (end_lost, "lost"),
        (end_dismissed, "dismissed by admin"),
        (by_page, "forced by admin: stuck"),
        (by_command, r"forced by \S+@\S+: stuck"),
        (by_code, "forced by a script: stuck"),
    ],
)
def test_how_a_hold_ended_is_told_on_the_page_of_its_lock_and_in_the_history(
    admin_client: Client, end: Callable[[Client], None], said: str
) -> None:
    end(admin_client)

    assert any(re.search(rf"^\d+ {said}", row) for row in rows(admin_client.get(PAGE)))
    (row,) = rows(admin_client.get(HISTORY))
    assert re.search(rf"^order:42 {said}", row)


def test_who_held_it_since_when_and_for_how_long_is_told(admin_client: Client) -> None:
    held = lock("order:42", user="ann", label="pay", note="by hand").take(0)
    since = re.search(r"Held since ([\d :+-]+\d)", text(admin_client.get(PAGE)))
    release()

    (row,) = rows(admin_client.get(PAGE))

    assert since is not None
    assert re.search(r"ann@[\w.-]+:\d+ pay; by hand", row)
    assert since[1] in row
    assert row.endswith("- less than 1 s")
    assert held.token not in admin_client.get(PAGE).content.decode()


def test_the_present_holder_is_told_beside_those_before(admin_client: Client) -> None:
    force("order:42")
    lock("order:42", user="bob").take(0)

    first, second = rows(admin_client.get(PAGE))

    assert first.startswith("2 still held bob@")
    assert second.startswith("1 forced by rita: stuck ann@")


def test_the_picture_has_a_name_and_a_bar_for_each_row(admin_client: Client) -> None:
    force("order:42", "order:42")
    lock("order:42").take(0)

    page = admin_client.get(PAGE).content.decode()

    assert '<svg role="img" aria-labelledby="lock-timeline-title"' in page
    assert "The last holds of order:42</title>" in page
    assert page.count('class="lock-bar"') == 3


def test_holds_of_other_locks_are_not_told(admin_client: Client) -> None:
    force("order:42", "order:421")

    assert len(rows(admin_client.get(PAGE))) == 1


def test_nothing_has_a_style_or_a_script_in_the_page(admin_client: Client) -> None:
    force("order:42")

    for where in (PAGE, HISTORY):
        page = text_of_tags(admin_client.get(where))
        assert not re.search(r"\s(style|on\w+)\s*=|<style", page)


def text_of_tags(page: Any) -> str:
    content: str = page.content.decode()
    return content[content.index('<div id="content"') : content.index("<!-- END Content -->")]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "The history has what is notable, the last 10000: "),
        ({"HISTORY_HELD": 90}, "or lasted 1 min 30 s or longer"),
        ({"HISTORY": "all", "HISTORY_LENGTH": 500}, "The history has all holds, the last 500."),
        ({"HISTORY_HELD": 0}, "The history has all holds, the last 10000."),
        ({"HISTORY": None}, "No history is kept: the setting HISTORY turns it off."),
        ({"INDEX": False}, "No history is kept without the setting INDEX."),
    ],
)
def test_where_no_hold_is_known_the_pages_say_what_is_kept(
    admin_client: Client, settings: Any, changed: dict[str, Any], said: str
) -> None:
    settings.SETNX_LOCK = {**getattr(settings, "SETNX_LOCK", {}), **changed}

    page = text(admin_client.get(PAGE))

    assert "The history has no hold of this lock." in page
    assert said in page
    assert said in text(admin_client.get(HISTORY))


def test_on_a_cluster_the_pages_say_that_nothing_is_kept(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inspector, "has_history", False)

    assert "On Redis Cluster no history is kept." in text(admin_client.get(PAGE))


def test_without_the_history_the_rest_of_the_lock_is_shown(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Inspector, *args: Any, **about: Any) -> None:
        raise LockUnavailable("order:42", cause="denied")

    lock("order:42").take(0)
    monkeypatch.setattr(Inspector, "history", refuse)

    page = text(admin_client.get(PAGE))

    assert "State held: Somebody holds it" in page
    assert "Redis refuses the credentials of the cache, or they lack a right." in page
    assert "Force-release…" in admin_client.get(PAGE).content.decode()
    assert "Redis refuses the credentials" in text(admin_client.get(HISTORY))


def test_the_lock_leads_to_its_history_and_back(admin_client: Client) -> None:
    force("order:42", "order:421")

    link = re.search(rf'href="({HISTORY}[^"]*)"', admin_client.get(PAGE).content.decode())
    assert link is not None
    page = admin_client.get(html.unescape(link[1]))

    assert len(rows(page)) == 1
    assert f'href="{PAGE}"' in page.content.decode()
    assert "order:42 ( Show all )" in text(page)


def test_the_list_leads_to_the_history_and_back_to_the_list_as_it_was(
    admin_client: Client,
) -> None:
    force("order:42")

    listed = admin_client.get(LIST, {"q": "order", "o": "-lease"}).content.decode()
    link = f"{HISTORY}?_changelist_filters=q%3Dorder%26o%3D-lease"
    page = admin_client.get(link).content.decode()

    assert f'href="{link}"' in listed
    assert f'href="{LIST}?q=order&amp;o=-lease"' in page


def test_the_history_and_the_operator_log_have_names_of_their_own(admin_client: Client) -> None:
    page = text_of_tags(admin_client.get(PAGE))
    log = text_of_tags(admin_client.get(address("history", "lock:order:42")))

    assert f'href="{address("history", "lock:order:42")}" class="closelink">Operator log<' in page
    assert ">History of this lock<" in page
    assert "<h1>Operator log</h1>" in log
    assert f'href="{HISTORY}?name=lock%3Aorder%3A42"' in log


def test_seeing_the_history_takes_the_permission() -> None:
    assert staff("release_lock").get(HISTORY).status_code == 403


def test_who_may_see_locks_may_see_the_history() -> None:
    force("order:42")

    assert len(rows(staff("view_lock").get(HISTORY))) == 1


def test_the_latest_end_is_first(admin_client: Client) -> None:
    force("a", "b", "c")

    assert keys(admin_client.get(HISTORY)) == ["c", "b", "a"]


@pytest.mark.usefixtures("everything")
def test_ends_of_one_kind_can_be_chosen(admin_client: Client) -> None:
    force("order:42")
    end_lost(admin_client)
    end_released(admin_client)

    page = admin_client.get(HISTORY)
    links = [f"?end={end.slug}" in page.content.decode() for end in End]
    chosen = {end.slug: len(rows(admin_client.get(HISTORY, {"end": end.slug}))) for end in End}

    assert all(links)
    assert len(rows(page)) == 3
    assert chosen == {"released": 1, "lease-over": 0, "lost": 1, "forced": 1, "dismissed": 0}


def test_a_part_of_the_key_can_be_searched_for_among_ends_of_one_kind(
    admin_client: Client,
) -> None:
    force("order:42", "import", "order:7")

    found = admin_client.get(HISTORY, {"q": "order", "end": "forced"})

    assert keys(found) == ["order:7", "order:42"]
    assert 'name="end" value="forced"' in found.content.decode()
    assert keys(admin_client.get(HISTORY, {"q": "order", "end": "lost"})) == []


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("search", ["", "order"])
def test_older_ones_are_on_the_next_page(admin_client: Client, search: str) -> None:
    for number in range(52):
        with lock(f"order:{number}"):
            pass

    first = admin_client.get(HISTORY, {"q": search})
    link = re.search(r'class="lock-onward"><a href="([^"]*)"', first.content.decode())
    assert link is not None
    second = admin_client.get(HISTORY + html.unescape(link[1]))

    assert keys(first) + keys(second) == [f"order:{number}" for number in reversed(range(52))]
    assert len(keys(first)) == 50
    assert "lock-onward" not in second.content.decode()


@pytest.mark.parametrize(
    "query",
    ["end=eaten", "before=yesterday", f"before={2**64}-0", "before=0-0", "q=%00", "q=%FF", "name="],
)
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
    force("order:42")
    hold("order:42", meta=METAS[what])
    check(admin_client.get(PAGE))
    release()

    check(admin_client.get(PAGE))
    check(admin_client.get(HISTORY))


@pytest.mark.parametrize("what", ["not UTF-8", "lines", "terminal", "direction", "HTML", "1 MB"])
def test_no_reason_breaks_the_history(admin_client: Client, what: str) -> None:
    lock("order:42").take(0)
    release(by=TEXTS[what], reason=TEXTS[what])

    check(admin_client.get(PAGE))
    check(admin_client.get(HISTORY))
    assert " forced" in rows(admin_client.get(HISTORY))[0]


@pytest.mark.parametrize("key", KEYS, ids=ascii)
def test_no_key_breaks_the_history(admin_client: Client, key: str) -> None:
    name = hold(key).name
    release(name.removeprefix("lock:"))

    check(admin_client.get(address("change", name)))
    check(admin_client.get(HISTORY))
    check(admin_client.get(HISTORY, {"name": name}))


def test_what_others_wrote_into_the_history_breaks_no_page(admin_client: Client) -> None:
    stream = history_beside(index_for("lock:"))
    for end in (*TEXTS.values(), *(one.value for one in End)):
        written = end.encode("utf-8", "surrogatepass")
        for text_ in TEXTS.values():
            other = text_.encode("utf-8", "surrogatepass")
            told = {"name": b"lock:order:42", "end": written, "known": other, "more": other}
            get_client().xadd(stream, told)
        get_client().xadd(stream, {"name": other, "end": written})
        get_client().xadd(stream, {written: b"lock:order:42"})

    check(admin_client.get(PAGE))
    check(admin_client.get(HISTORY))
    check(admin_client.get(HISTORY, {"q": "order"}))


def test_a_history_that_is_no_stream_breaks_no_page(admin_client: Client) -> None:
    lock("order:42").take(0)
    get_client().set(history_beside(index_for("lock:")), "theirs")

    assert "State held" in text(admin_client.get(PAGE))
    assert admin_client.get(HISTORY).status_code == 200
