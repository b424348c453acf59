from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.utils.timezone import get_current_timezone

from django_setnx_lock import lock
from django_setnx_lock.core import State
from django_setnx_lock.models import Lock
from tests.admin.pages import LIST, address, hold_since, info, messages, staff, text
from tests.core.helpers import ask

if TYPE_CHECKING:
    from tests.servers import FakeServer

pytestmark = pytest.mark.django_db
PAGE = address("change", "lock:order:42")
RELEASE = 'value="Force-release…"'


def test_the_list_leads_to_the_lock_and_back_to_the_list_as_it_was(admin_client: Client) -> None:
    lock("order:42").take(0)

    listed = admin_client.get(LIST, {"q": "order", "o": "-lease"}).content.decode()
    link = f"{PAGE}?_changelist_filters=q%3Dorder%26o%3D-lease"
    page = admin_client.get(link).content.decode()

    assert f'href="{link}"' in listed
    assert page.count(f'href="{LIST}?q=order&amp;o=-lease"') == 2


def test_seeing_a_lock_takes_the_permission() -> None:
    assert staff("release_lock").get(PAGE).status_code == 403


def test_everything_known_is_told(admin_client: Client) -> None:
    lock("order:42", timeout=150, label="pay", user="ann", note="by hand").take(0)
    hold_since("order:42", 3610)
    ask(lock("order:42").attempt(), waits=True)
    record = info("order:42").holder
    assert record is not None

    words = text(admin_client.get(PAGE))

    for said in [
        "Key order:42",
        "Name in Redis lock:order:42",
        "State held: Somebody holds it",
        "Held for 1 h",
        "Lease left 2 min",
        f"Fence {info('order:42').fence}",
        "Waiting 1",
        f"Fingerprint of the holder {info('order:42').fingerprint}",
        f"Host {record.host}",
        f"Process {record.pid}",
        f"Thread {record.thread}",
        "User ann",
        "Label pay",
        "Note by hand",
    ]:
        assert said in words


def test_how_the_lease_is_kept_and_when_it_was_renewed_last_is_told(
    admin_client: Client, fake_server: FakeServer
) -> None:
    lock("order:42", timeout=150).take(0)
    hold_since("order:42", 3610)
    fake_server.client().pexpire("lock:order:42", 120_500)

    words = text(admin_client.get(PAGE))

    assert "Lease 2 min 30 s, renewed while it is held, last 29 s ago" in words
    at = datetime.fromtimestamp(info("order:42").granted_at or 0, get_current_timezone())
    assert f"Held since {at:%Y-%m-%d %H:%M}" in words


def test_a_lease_that_is_not_renewed_is_said_not_to_be(admin_client: Client) -> None:
    lock("order:42", timeout=150, renew=False).take(0)

    assert "Lease 2 min 30 s, not renewed" in text(admin_client.get(PAGE))


def test_what_an_operator_asks_first_comes_first(admin_client: Client) -> None:
    lock("order:42", label="pay", user="ann").take(0)

    page = admin_client.get(PAGE).content.decode()

    asked = ["State", "Holder", "Held for", "Lease left", "Waiting", "Host", "Fence"]
    places = [page.index(f'<th scope="row">{label}</th>') for label in asked]
    places.insert(asked.index("Host"), page.index(RELEASE))
    assert places == sorted(places)


def test_what_is_in_redis_is_folded(admin_client: Client) -> None:
    lock("order:42").take(0)

    page = admin_client.get(PAGE).content.decode()

    (opened, folded) = re.search(r"<details([^>]*)>(.*?)</details>", page, re.DOTALL).groups()  # type: ignore[union-attr]  # it is there
    assert "open" not in opened
    for label in ("Name in Redis", "Type in Redis", "Fingerprint of the holder"):
        assert label in folded
        assert page.count(label) == 1


def test_the_token_is_not_told(admin_client: Client) -> None:
    held = lock("order:42").take(0)

    assert held.token not in admin_client.get(PAGE).content.decode()


def test_a_lock_of_another_program_has_no_record(
    admin_client: Client, fake_server: FakeServer
) -> None:
    fake_server.client().set("lock:order:42", "their-token", px=50_000)

    page = admin_client.get(PAGE)

    assert "The holder left no record: it is another program." in text(page)
    assert "their-token" not in page.content.decode()


def test_what_the_holder_says_is_escaped(admin_client: Client) -> None:
    lock("a & <b >key", label="<script>label", user="<script>user", note="<script>note").take(0)

    page = admin_client.get(address("change", "lock:a & <b >key"))

    for word in ("a & <b >key", "<script>label", "<script>user", "<script>note"):
        assert word not in page.content.decode()
        assert word in text(page)


def test_a_held_lock_can_be_released(admin_client: Client) -> None:
    lock("order:42").take(0)

    assert RELEASE in admin_client.get(PAGE).content.decode()


def test_without_permission_to_release_there_is_no_button() -> None:
    lock("order:42").take(0)

    page = staff("view_lock").get(PAGE)

    assert "State held" in text(page)
    assert RELEASE not in page.content.decode()


def test_a_lock_that_is_kept_after_its_release_says_so_and_can_be_released(
    admin_client: Client,
) -> None:
    with lock("order:42", min_hold=60, label="nightly"):
        pass

    page = admin_client.get(address("change", "lock:order:42"))
    admin_client.post(
        address("release", "lock:order:42"),
        {"fingerprint": info("order:42").fingerprint, "post": "yes"},
    )

    assert "kept: Its holder is done with it." in text(page)
    assert "Label nightly" in text(page)
    assert RELEASE in page.content.decode()
    assert info("order:42").state is State.FREE


def test_a_lock_that_changes_hands_has_no_holder_to_release_it_from(
    admin_client: Client, fake_server: FakeServer
) -> None:
    fake_server.client().set("lock:order:42", "baton:their-token", px=60_000)

    page = admin_client.get(address("change", "lock:order:42"))
    answer = admin_client.post(address("release", "lock:order:42"), follow=True)

    assert "changing hands: It was left to the next who waits" in text(page)
    assert "Nobody holds it." in text(page)
    assert "Force-release" not in text(page)
    assert "nothing was released" in messages(answer)[0]


def test_a_free_lock_has_a_page_without_a_button(admin_client: Client) -> None:
    page = admin_client.get(PAGE)

    assert "State free: Nobody holds it." in text(page)
    assert RELEASE not in page.content.decode()


@pytest.mark.parametrize("key", ["a/b", "a_b", "ä:ö", "a b?c=d&e#f", "x" * 300, "{tag}:1", 'q"<'])
def test_every_key_has_a_page(admin_client: Client, key: str) -> None:
    name = lock(key).name

    page = admin_client.get(address("change", name))

    assert f"Name in Redis {name}" in text(page)


@pytest.mark.parametrize("name", ["session:1", "lock:a}b", "{lock:}:index"])
def test_what_is_no_lock_of_the_project_is_not_found(admin_client: Client, name: str) -> None:
    assert admin_client.get(address("change", name)).status_code == 404


def test_the_log_leads_to_the_lock(admin_client: Client, admin_user: User) -> None:
    entry = LogEntry.objects.log_actions(
        admin_user.pk, [Lock(name="lock:order:42")], CHANGE, "released", single_object=True
    )

    assert entry.get_admin_url() == PAGE
    assert f'href="{PAGE}"' in admin_client.get("/admin/").content.decode()


def test_the_history_of_a_lock_tells_its_releases(admin_client: Client, admin_user: User) -> None:
    LogEntry.objects.log_actions(
        admin_user.pk, [Lock(name="lock:order:42")], CHANGE, "it was stuck", single_object=True
    )

    history = address("history", "lock:order:42")

    assert f'href="{history}"' in admin_client.get(PAGE).content.decode()
    assert "it was stuck" in text(admin_client.get(history))


def test_seeing_the_history_takes_the_permission() -> None:
    assert staff().get(address("history", "lock:order:42")).status_code == 403
