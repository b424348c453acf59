"""The admin asks the holder of a lock to stop."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client

from django_setnx_lock import lock, rwlock
from django_setnx_lock.core import LockHandle
from tests.admin.pages import address, hold_since, info, messages, staff, text

if TYPE_CHECKING:
    from tests.servers import FakeServer

pytestmark = pytest.mark.django_db
STOP, CHANGE = address("stop", "lock:order:42"), address("change", "lock:order:42")
ASKING = "Are you sure you want to ask"


@pytest.fixture
def held() -> LockHandle:
    held = lock("order:42", timeout=150, label="pay", user="ann").take(0)
    hold_since("order:42", 3610)
    return held


def seen() -> dict[str, str]:
    """What a page sends on for the holder it showed."""
    return {"fingerprint": info("order:42").fingerprint}


def test_a_confirmation_names_the_holder_and_asks_nobody(
    admin_client: Client, held: LockHandle
) -> None:
    page = admin_client.post(STOP, seen())
    held.check()

    assert f"{ASKING} ann@" in text(page)
    assert "Held for: 1 h" in text(page)
    assert held.stop_requested is None


def test_an_address_with_the_whole_form_in_it_asks_nobody(
    admin_client: Client, held: LockHandle
) -> None:
    page = admin_client.get(STOP, {**seen(), "post": "yes"})
    held.check()

    assert ASKING in text(page)
    assert held.stop_requested is None


def test_once_confirmed_the_holder_hears_who_asks_and_why(
    admin_client: Client, held: LockHandle
) -> None:
    form = {**seen(), "post": "yes", "reason": "a deploy"}
    page = admin_client.post(STOP, form, follow=True)
    held.check()

    assert page.redirect_chain == [(CHANGE, 302)]
    (message,) = messages(page)
    assert message.startswith("success: ann@")
    assert message.endswith("was asked to stop, and still holds the lock “order:42”.")
    assert held.stop_requested is not None
    assert (held.stop_requested.by, held.stop_requested.reason) == ("admin", "a deploy")


def test_the_lock_shows_that_it_was_asked_and_asks_no_more(
    admin_client: Client, held: LockHandle
) -> None:
    before = admin_client.get(CHANGE)
    form = {**seen(), "post": "yes", "reason": "a <b>deploy</b>"}
    admin_client.post(STOP, form)
    after = admin_client.get(CHANGE)

    assert "Asked to stop" not in text(before)
    assert f'action="{STOP}"' in before.content.decode()
    assert "Asked to stop by admin, less than 1 s ago: a <b>deploy</b>" in text(after)
    assert f'action="{STOP}"' not in after.content.decode()
    assert held.token not in after.content.decode()


def test_a_holder_that_was_asked_is_not_asked_again(admin_client: Client, held: LockHandle) -> None:
    admin_client.post(STOP, {**seen(), "post": "yes", "reason": "first"})
    page = admin_client.post(STOP, {**seen(), "post": "yes", "reason": "second"}, follow=True)

    assert "was asked to stop before" in messages(page)[-1]
    assert LogEntry.objects.count() == 1


def test_the_request_is_in_the_history_of_the_lock(
    admin_client: Client, admin_user: User, held: LockHandle
) -> None:
    admin_client.post(STOP, {**seen(), "post": "yes", "reason": "a deploy"})

    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id) == (admin_user, "lock:order:42")
    assert entry.get_change_message().startswith("Asked to stop: ann@")
    assert entry.get_change_message().endswith("held it for 1 h. Reason: a deploy")
    assert "Asked to stop" in text(admin_client.get(address("history", "lock:order:42")))


@pytest.mark.parametrize("confirmed", [{}, {"post": "yes"}])
def test_when_it_changed_hands_nobody_is_asked(
    admin_client: Client, held: LockHandle, confirmed: dict[str, str]
) -> None:
    shown = seen()
    held.release()
    with lock("order:42") as now:
        page = admin_client.post(STOP, {**shown, **confirmed}, follow=True)
        now.check()

    assert messages(page)[0].startswith("warning: The lock “order:42” changed hands after you")
    assert now.stop_requested is None
    assert LogEntry.objects.count() == 0


def test_when_it_is_free_nobody_is_asked(admin_client: Client, held: LockHandle) -> None:
    shown = seen()
    held.release()
    page = admin_client.post(STOP, {**shown, "post": "yes"}, follow=True)

    assert messages(page)[0].startswith("warning: Nobody holds the lock “order:42” any more")


def test_another_program_cannot_be_asked(admin_client: Client, fake_server: FakeServer) -> None:
    fake_server.client().set("lock:order:42", "theirs", ex=60)
    page = admin_client.get(CHANGE)
    posted = admin_client.post(STOP, {**seen(), "post": "yes"}, follow=True)

    assert f'action="{STOP}"' not in page.content.decode()
    assert "has no holder who would know of it" in messages(posted)[0]


@pytest.mark.parametrize("permissions", [(), ("view_lock",), ("release_lock",)])
def test_who_may_not_release_may_not_ask(held: LockHandle, permissions: tuple[str, ...]) -> None:
    client = staff(*permissions)
    page = client.post(STOP, {**seen(), "post": "yes"})
    held.check()

    assert page.status_code == 403
    assert held.stop_requested is None


def test_a_lost_connection_tells_that_nobody_knows(
    admin_client: Client, held: LockHandle, fake_server: FakeServer
) -> None:
    shown = seen()
    fake_server.connected = False
    page = admin_client.post(STOP, {**shown, "post": "yes"})
    fake_server.connected = True

    assert "Redis cannot be reached." in text(page)


def test_one_reader_of_several_can_be_asked(admin_client: Client) -> None:
    with ExitStack() as stack:
        readers = [stack.enter_context(rwlock("order:42").read()) for _ in range(2)]
        shares = info("order:42").shares
        form = {"fingerprint": shares[0].fingerprint, "post": "yes"}
        admin_client.post(STOP, form)
        page = admin_client.get(CHANGE)
        for one in readers:
            one.check()
        asked = [one for one in readers if one.stop_requested]

    assert len(asked) == 1
    assert "Asked to stop 1 of 2 holders" in text(page)
