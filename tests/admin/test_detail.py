"""The page of one lock."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client

from django_setnx_lock import lock, semaphore
from django_setnx_lock.core import Inspector
from tests.admin.pages import LIST, address, info, staff, text
from tests.management.holders import read_by
from tests.support.locks import leave_to_who_waits
from tests.support.seams import any_lock
from tests.support.waiting import waiting_for

if TYPE_CHECKING:
    from tests.servers import FakeServer

pytestmark = pytest.mark.django_db
PAGE = address("change", "lock:order:42")
RELEASE, ALL = 'value="Force-release…"', 'value="Force-release all…"'


def test_everything_known_is_told_and_first_what_an_operator_asks_first(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = any_lock("order:42", timeout=150, label="pay", user="ann", note="by hand").take(0)
    # Time stands still.
    seen = replace(info("order:42"), held_for=3610.0, remaining=120.5)
    assert seen.holder is not None
    monkeypatch.setattr(Inspector, "get", lambda *_, **options: seen)

    page = admin_client.get(PAGE)

    said, place = text(page), 0
    for part in [
        "State held: last renewed 20",
        "(29 s ago); nobody waits; frees itself 20",
        "(in 2 min) unless it is renewed Somebody holds it",
        "Held since 20",
        "Held for 1 h",
        "Lease left 2 min",
        "Waiting 0",
        f"Host {seen.holder.host}",
        f"Process {seen.holder.pid}",
        f"Thread {seen.holder.thread}",
        "User ann",
        "Label pay",
        "Note by hand",
        "Lease 2 min 30 s, renewed while it is held",
        "Name in Redis lock:order:42",
        f"Fence {seen.fence}",
        f"Fingerprint of the holder {seen.fingerprint}",
    ]:
        place = said.index(part, place)
    assert held.token not in page.content.decode()


def test_a_lease_that_is_not_renewed_is_told(admin_client: Client) -> None:
    lock("order:42", timeout=150, renew=False).take(0)

    assert "Lease 2 min 30 s, not renewed" in text(admin_client.get(PAGE))


def test_a_lock_of_another_program_has_no_record(
    admin_client: Client, fake_server: FakeServer
) -> None:
    fake_server.client().set("lock:order:42", "their-token", px=50_000)

    page = admin_client.get(PAGE)

    assert "The holder left no record: it is another program." in text(page)
    assert "their-token" not in page.content.decode()
    assert RELEASE in page.content.decode()
    assert "Ask to stop…" not in page.content.decode()


def test_without_permission_to_release_there_is_no_button() -> None:
    lock("order:42").take(0)
    any_lock("report", shared=True).take(0)
    client = staff("view_lock")

    for page in (client.get(PAGE), client.get(address("change", "lock:report"))):
        assert "<form" not in text(page)
        assert "Force-release" not in page.content.decode()
        assert "Ask to stop" not in page.content.decode()


def test_a_lock_that_is_kept_says_so_and_can_be_released(admin_client: Client) -> None:
    with lock("order:42", min_hold=60, label="nightly"):
        pass

    page = admin_client.get(PAGE)

    assert re.search(
        r"kept: .*frees itself 20\S+ \S+ \S+ \(in \d+ s\) Its holder is done", text(page)
    )
    assert "Label nightly" in text(page)
    assert RELEASE in page.content.decode()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "State free: nobody waits Nobody holds it."),
        ("their-token", "It was left to the next who waits"),
    ],
)
def test_a_lock_that_nobody_holds_has_a_page_without_a_button(
    admin_client: Client, fake_server: FakeServer, value: str | None, said: str
) -> None:
    if value:
        leave_to_who_waits(fake_server.client(), "lock:order:42", value)

    page = admin_client.get(PAGE)

    assert said in text(page)
    assert RELEASE not in page.content.decode()


@pytest.mark.parametrize("name", ["session:1", "lock:a}b", "{lock:}:index"])
def test_what_is_no_lock_of_the_project_is_not_found(admin_client: Client, name: str) -> None:
    assert admin_client.get(address("change", name)).status_code == 404


def test_each_of_several_holders_has_a_row_and_buttons_of_its_own(admin_client: Client) -> None:
    held = read_by("order:42", "ann", "bob", "cyd")

    page = admin_client.get(PAGE)

    said, content = text(page), page.content.decode()
    assert "State read: nobody waits; frees itself 20" in said
    assert said.index("ann@") < said.index("bob@") < said.index("cyd@")
    assert all(str(one.fence) in said for one in held)
    assert (content.count(RELEASE), content.count(ALL)) == (3, 1)
    names = re.findall(r'<input type="submit"[^>]* aria-label="([^"]*)"', content)
    assert len(set(names)) == len(names) == 2 * len(held)


def test_how_many_permits_are_in_use_is_told_and_one_holder_has_one_button(
    admin_client: Client,
) -> None:
    with semaphore("exports", 3):
        with semaphore("exports", 3):
            page = text(admin_client.get(address("change", "lock:exports")))
        alone = admin_client.get(address("change", "lock:exports")).content.decode()

    assert re.search(r"State in use, 2 of 3: .* unless it is renewed Several hold it", page)
    assert alone.count(RELEASE) == 1


def test_a_fence_is_written_so_that_it_can_be_pasted(admin_client: Client, settings: Any) -> None:
    settings.LANGUAGE_CODE, settings.USE_THOUSAND_SEPARATOR = "de", True
    held = read_by("order:42", "ann", "bob")

    content = admin_client.get(PAGE).content.decode()

    assert all(f">{one.fence}<" in content for one in held)


def test_callers_that_wait_are_named_in_order_and_the_rest_are_counted(
    admin_client: Client,
) -> None:
    lock("order:42").take(0)

    with waiting_for(*["order:42"] * 12):
        page = admin_client.get(PAGE)
        listed = admin_client.get(LIST)

    words = text(page)
    assert re.search(r"; 12 wait, the first for (less than 1|\d+) s; frees itself ", words)
    assert re.search(r"Waiting 12 \((less than 1|\d+) s\)", words)
    assert re.search(r"Since 12 \S \S+:\d+ \d{4}-", words)
    assert "more wait" not in words
    assert re.search(r" 12 \((less than 1|\d+) s\)", text(listed))
