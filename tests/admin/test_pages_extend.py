"""The admin gives the holder of a lock more time."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_setnx_lock import lock, rwlock
from django_setnx_lock.connection import get_client
from django_setnx_lock.core import LockHandle
from tests.admin.pages import address, info, messages, staff, text

pytestmark = pytest.mark.django_db
EXTEND, CHANGE = address("extend", "lock:order:42"), address("change", "lock:order:42")
ASKING = "How much more time is ann@"


@pytest.fixture
def held() -> LockHandle:
    return lock("order:42", timeout=150, label="pay", user="ann").take(0)


def form(minutes: str = "10", **more: str) -> dict[str, str]:
    """What the confirmation sends for the holder of now."""
    seen = info("order:42").fingerprint
    return {"fingerprint": seen, "post": "yes", "minutes": minutes, **more}


def test_a_confirmation_asks_how_much_time_and_gives_none(
    admin_client: Client, held: LockHandle
) -> None:
    page = admin_client.post(EXTEND, {"fingerprint": info("order:42").fingerprint})

    assert ASKING in text(page)
    assert 'name="minutes" value="10"' in page.content.decode()
    assert "takes the lock for lost then" in text(page)
    assert (info("order:42").remaining or 0) <= 150


def test_once_confirmed_the_lease_is_that_much_longer(
    admin_client: Client, held: LockHandle
) -> None:
    page = admin_client.post(EXTEND, form("20", reason="import"), follow=True)

    assert page.redirect_chain == [(CHANGE, 302)]
    assert messages(page) == ["success: The lease of the lock “order:42” was extended."]
    assert info("order:42").remaining == pytest.approx(1350, abs=3)
    entry = LogEntry.objects.get()
    assert entry.change_message.startswith("Extended by 20 min for ann@")
    assert entry.change_message.endswith("Reason: import")


@pytest.mark.parametrize("minutes", ["0", "-5", "1441", "1.5", "ten", ""])
def test_a_time_that_is_none_is_asked_for_again(
    admin_client: Client, held: LockHandle, minutes: str
) -> None:
    page = admin_client.post(EXTEND, form(minutes))

    assert ASKING in text(page)
    assert "errorlist" in page.content.decode()
    assert (info("order:42").remaining or 0) <= 150
    assert not LogEntry.objects.exists()


def test_a_next_holder_is_not_extended(admin_client: Client, held: LockHandle) -> None:
    given = form()
    held.release()
    with lock("order:42", timeout=30):
        page = admin_client.post(EXTEND, given, follow=True)
        assert (info("order:42").remaining or 0) <= 30

    (message,) = messages(page)
    assert message.startswith("warning: The lock “order:42” changed hands")


def test_extending_takes_the_right_to_release(held: LockHandle) -> None:
    assert staff("view_lock").post(EXTEND, form()).status_code == 403
    assert (info("order:42").remaining or 0) <= 150


def test_a_lock_without_end_has_no_such_button_and_is_not_extended(admin_client: Client) -> None:
    get_client().set("lock:order:42", "theirs")

    page = admin_client.get(CHANGE).content.decode()
    answer = admin_client.post(EXTEND, form(), follow=True)

    assert "Extend…" not in page
    (message,) = messages(answer)
    assert message.startswith("warning: This cannot be done to the lock “order:42” as it is held")
    assert "cannot extend the lock 'order:42': it is 'never expires'" in message


def test_the_buttons_come_in_the_order_of_their_harm(
    admin_client: Client, held: LockHandle
) -> None:
    page = admin_client.get(CHANGE).content.decode()

    places = [page.index(f'value="{name}…"') for name in ("Ask to stop", "Extend", "Force-release")]
    assert places == sorted(places)


def test_several_who_hold_it_together_can_all_be_extended(admin_client: Client) -> None:
    kept = [rwlock("order:42", timeout=60).read().take(0) for _ in range(2)]

    page = admin_client.get(CHANGE).content.decode()
    admin_client.post(EXTEND, form())

    assert 'value="Extend all…"' in page
    assert [one.remaining for one in info("order:42").shares] == [pytest.approx(660, abs=3)] * 2
    del kept
