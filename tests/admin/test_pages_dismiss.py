"""The admin shows whose lease ran out, until an operator dismisses it."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_setnx_lock import lock
from django_setnx_lock.core import State
from tests.admin.pages import LIST, address, info, messages, staff, text
from tests.processes import eventually

pytestmark = pytest.mark.django_db
DISMISS, CHANGE = address("dismiss", "lock:order:42"), address("change", "lock:order:42")
BUTTON = 'value="Dismiss"'


@pytest.fixture(autouse=True)
def _over() -> None:
    """Have a lease run out."""
    lock("order:42", timeout=0.2, label="pay", user="ann", renew=False).take(0)
    eventually(lambda: info("order:42").state is State.OVER)


def form() -> dict[str, str]:
    return {"fingerprint": info("order:42").fingerprint, "post": "yes"}


def test_the_lock_shows_whose_lease_it_was(admin_client: Client) -> None:
    page = admin_client.get(CHANGE)

    assert "State lease over:" in text(page)
    assert "Last holder ann@" in text(page)
    assert "Lease left over for" in text(page)
    assert BUTTON in page.content.decode()
    assert "Force-release…" not in page.content.decode()


def test_dismissed_it_is_in_no_list(admin_client: Client) -> None:
    page = admin_client.post(DISMISS, form(), follow=True)

    assert page.redirect_chain == [(LIST, 302)]
    (message,) = messages(page)
    assert message.startswith("success: The lock “order:42”, whose last holder was ann@")
    assert "order:42" not in text(page).replace(message.partition(": ")[2], "")
    assert info("order:42").state is State.FREE
    assert LogEntry.objects.get().change_message.startswith("Dismissed: the lease of ann@")


def test_without_a_button_pressed_it_is_asked_for(admin_client: Client) -> None:
    page = admin_client.get(DISMISS)

    assert "Are you sure you want to dismiss the lock “order:42”" in text(page)
    assert info("order:42").state is State.OVER


def test_a_lock_that_is_held_again_is_not_dismissed(admin_client: Client) -> None:
    given = form()
    with lock("order:42"):
        page = admin_client.post(DISMISS, given, follow=True)
        assert info("order:42").state is State.HELD

    assert page.redirect_chain == [(CHANGE, 302)]
    assert messages(page) == [
        "warning: Somebody has had the lock “order:42” since you looked: nothing was dismissed."
    ]
    assert not LogEntry.objects.exists()


def test_dismissing_takes_the_right_to_release() -> None:
    client = staff("view_lock")

    assert client.post(DISMISS, form()).status_code == 403
    assert BUTTON not in client.get(CHANGE).content.decode()
    assert info("order:42").state is State.OVER


def test_it_is_not_released(admin_client: Client) -> None:
    page = admin_client.post(address("release", "lock:order:42"), form(), follow=True)

    (message,) = messages(page)
    assert message.startswith("warning: Nobody holds the lock “order:42” any more")
