from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client, override_settings

from django_setnx_lock import LockLost, lock
from django_setnx_lock.core import Inspector, LockHandle, Outcome
from django_setnx_lock.models import Lock
from tests.admin.pages import LIST, address, hold_since, info, messages, refuse_entries, staff, text

if TYPE_CHECKING:
    from tests.servers import FakeServer

pytestmark = pytest.mark.django_db
RELEASE = address("release", "lock:order:42")
ASKING = "Are you sure you want to take the lock"


@pytest.fixture
def held() -> LockHandle:
    held = lock("order:42", timeout=150, label="pay", user="ann", note="by hand").take(0)
    hold_since("order:42", 3610)
    return held


def seen() -> dict[str, str]:
    """What a page sends on for the holder it showed."""
    return {"fingerprint": info("order:42").fingerprint}


def test_a_confirmation_names_the_holder_and_releases_nothing(
    admin_client: Client, held: LockHandle
) -> None:
    page = admin_client.post(RELEASE, seen())

    record = info("order:42").holder
    assert record is not None
    assert f"{ASKING} “order:42” from ann@{record.host}:{record.pid} (pay; by hand)?" in text(page)
    assert "Held for: 1 h" in text(page)
    assert "Lease left: 2 min" in text(page)
    assert "The holder is not stopped." in text(page)
    assert held.owned()


def test_the_confirmation_can_be_asked_for_by_its_address(
    admin_client: Client, held: LockHandle
) -> None:
    page = admin_client.get(RELEASE)

    assert ASKING in text(page)
    assert f'value="{info("order:42").fingerprint}"' in page.content.decode()
    assert held.owned()


def test_an_address_with_the_whole_form_in_it_releases_nothing(
    admin_client: Client, held: LockHandle
) -> None:
    page = admin_client.get(RELEASE, {**seen(), "post": "yes"})

    assert ASKING in text(page)
    assert held.owned()


def test_once_confirmed_the_lock_is_released(admin_client: Client, held: LockHandle) -> None:
    page = admin_client.post(RELEASE, {**seen(), "post": "yes"}, follow=True)

    assert not held.locked()
    assert page.redirect_chain == [(LIST, 302)]
    assert messages(page)[0].startswith("success: The lock “order:42” was released from ann@")


def test_after_a_release_the_list_is_as_it_was(admin_client: Client, held: LockHandle) -> None:
    page = admin_client.post(
        f"{RELEASE}?_changelist_filters=q%3Dorder%26p%3D2", {**seen(), "post": "yes"}
    )

    assert page.headers["Location"] == f"{LIST}?q=order&p=2"


def test_the_holder_learns_who_released_it_and_why(admin_client: Client, held: LockHandle) -> None:
    admin_client.post(RELEASE, {**seen(), "post": "yes", "reason": "its host is gone"})

    with pytest.raises(LockLost) as caught:
        held.check()
    assert caught.value.forced_by == "admin"
    assert caught.value.reason == "its host is gone"


def test_the_release_is_logged_with_holder_and_reason(
    admin_client: Client, admin_user: User, held: LockHandle
) -> None:
    record = info("order:42").holder
    assert record is not None

    admin_client.post(RELEASE, {**seen(), "post": "yes", "reason": "its host is gone"})

    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id, entry.object_repr) == (
        admin_user,
        "lock:order:42",
        "order:42",
    )
    assert entry.content_type is not None
    assert entry.content_type.model_class() is Lock
    assert entry.get_change_message() == (
        f"Force-released from ann@{record.host}:{record.pid} (pay; by hand), "
        "held for 1 h. Reason: its host is gone"
    )


def test_the_log_is_written_after_redis_has_answered(
    admin_client: Client, held: LockHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries_at_release = []
    force_release = Inspector.force_release

    def watched(self: Inspector, name: str, fingerprint: str, **about: str) -> Outcome:
        outcome = force_release(self, name, fingerprint, **about)
        entries_at_release.append(LogEntry.objects.count())
        return outcome

    monkeypatch.setattr(Inspector, "force_release", watched)

    admin_client.post(RELEASE, {**seen(), "post": "yes"})

    assert entries_at_release == [0]
    assert LogEntry.objects.count() == 1


@pytest.mark.parametrize("confirmed", [{}, {"post": "yes"}])
def test_when_it_changed_hands_nothing_is_released(
    admin_client: Client, held: LockHandle, confirmed: dict[str, str]
) -> None:
    shown = seen()
    held.release()
    next_holder = lock("order:42", user="bob").take(0)

    page = admin_client.post(RELEASE, {**shown, **confirmed}, follow=True)

    assert next_holder.owned()
    assert page.redirect_chain == [(address("change", "lock:order:42"), 302)]
    assert messages(page) == [
        "warning: The lock “order:42” changed hands after you looked: nothing was released. "
        "This is its holder now."
    ]
    assert "User bob" in text(page)
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("confirmed", [{}, {"post": "yes"}])
def test_when_it_became_free_nothing_is_released(
    admin_client: Client, held: LockHandle, confirmed: dict[str, str]
) -> None:
    shown = seen()
    held.release()

    page = admin_client.post(RELEASE, {**shown, **confirmed}, follow=True)

    assert messages(page) == [
        "warning: Nobody holds the lock “order:42” any more: nothing was released."
    ]
    assert not LogEntry.objects.exists()


def test_a_holder_that_was_never_seen_is_not_released(
    admin_client: Client, held: LockHandle
) -> None:
    page = admin_client.post(RELEASE, {"post": "yes"})

    assert page.status_code == 200
    assert held.owned()


def test_a_reason_that_is_too_long_is_refused_before_anything_is_done(
    admin_client: Client, held: LockHandle
) -> None:
    page = admin_client.post(RELEASE, {**seen(), "post": "yes", "reason": "x" * 201})

    assert "Ensure this value has at most 200 characters" in text(page)
    assert f'value="{info("order:42").fingerprint}"' in page.content.decode()
    assert held.owned()


@pytest.mark.parametrize("permissions", [(), ("view_lock",), ("release_lock",)])
def test_releasing_takes_both_permissions(held: LockHandle, permissions: tuple[str, ...]) -> None:
    client = staff(*permissions)

    assert client.get(RELEASE).status_code == 403
    assert client.post(RELEASE, seen()).status_code == 403
    assert client.post(RELEASE, {**seen(), "post": "yes"}).status_code == 403
    assert held.owned()


def test_both_permissions_are_enough_to_release(held: LockHandle) -> None:
    staff("view_lock", "release_lock").post(RELEASE, {**seen(), "post": "yes"})

    assert not held.locked()


def test_a_post_from_another_site_is_refused(admin_user: User, held: LockHandle) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(admin_user)

    assert client.post(RELEASE, {**seen(), "post": "yes"}).status_code == 403
    assert held.owned()


def test_nothing_but_locks_of_the_project_can_be_released(
    admin_client: Client, fake_server: FakeServer
) -> None:
    fake_server.client().set("session:1", "secret")

    page = admin_client.post(address("release", "session:1"), {"post": "yes", "fingerprint": "x"})

    assert page.status_code == 404
    assert fake_server.client().get("session:1") == b"secret"


def test_a_lock_of_another_program_is_released_and_logged_as_such(
    admin_client: Client, fake_server: FakeServer
) -> None:
    fake_server.client().set("lock:order:42", "their-token")

    admin_client.post(RELEASE, {**seen(), "post": "yes"})

    assert not fake_server.client().exists("lock:order:42")
    assert (
        LogEntry.objects.get()
        .get_change_message()
        .startswith("Force-released from another program, held for -.")
    )


def test_neither_pages_nor_log_tell_the_token(admin_client: Client, held: LockHandle) -> None:
    asked = admin_client.post(RELEASE, seen())
    told = admin_client.post(RELEASE, {**seen(), "post": "yes"}, follow=True)

    assert held.token not in asked.content.decode()
    assert held.token not in told.content.decode()
    assert held.token not in LogEntry.objects.get().change_message


def test_what_the_holder_says_is_escaped(admin_client: Client) -> None:
    lock("order:42", label="<script>label", user="<script>user", note="<script>note").take(0)

    asked = admin_client.post(RELEASE, seen())
    told = admin_client.post(
        RELEASE, {**seen(), "post": "yes", "reason": "<script>why"}, follow=True
    )

    assert "<script>label; <script>note" in text(asked)
    assert "<script>label; <script>note" in messages(told)[0]
    for page in (asked, told, admin_client.get(address("history", "lock:order:42"))):
        assert "<script>l" not in page.content.decode()
        assert "<script>w" not in page.content.decode()


def test_a_reason_of_several_lines_is_logged_and_told_in_one(
    admin_client: Client, held: LockHandle
) -> None:
    admin_client.post(RELEASE, {**seen(), "post": "yes", "reason": "stuck\r\nERROR forged"})

    with pytest.raises(LockLost, match=r": stuck\\r\\nERROR forged\Z"):
        held.check()
    assert LogEntry.objects.get().change_message.endswith(r"stuck\r\nERROR forged")


def test_a_release_that_the_log_does_not_take_is_answered_and_logged_elsewhere(
    admin_client: Client,
    held: LockHandle,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refuse_entries("order:42")

    page = admin_client.post(RELEASE, {**seen(), "post": "yes", "reason": "stuck"}, follow=True)

    assert not held.locked()
    assert messages(page)[0].startswith("success: The lock “order:42” was released from ann@")
    (record,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert record.name == "django_setnx_lock.force_release"
    assert record.getMessage().startswith("the admin's log did not take what 'admin' did to 'order")
    assert record.getMessage().endswith("(pay; by hand), held for 1 h. Reason: stuck")


@pytest.mark.parametrize("name", ["lock:a\nb", "lock:a\0b", "lock:\u202eb"])
def test_the_history_of_a_lock_with_any_name_shows_its_releases(
    admin_client: Client, name: str
) -> None:
    key = name.removeprefix("lock:")
    lock(key).take(0)
    form = {"fingerprint": info(key).fingerprint, "post": "yes", "reason": "stuck"}

    admin_client.post(address("release", name), form)
    history = admin_client.get(address("history", name))

    assert "Reason: stuck" in text(history)
    assert address("change", name) in history.content.decode()


@pytest.mark.parametrize("reason", ["", "  "])
def test_where_a_reason_is_required_there_is_no_release_without(
    admin_client: Client, held: LockHandle, reason: str
) -> None:
    with override_settings(SETNX_LOCK={**settings.SETNX_LOCK, "REQUIRE_REASON": True}):
        page = admin_client.post(RELEASE, {**seen(), "post": "yes", "reason": reason})

    assert ASKING in text(page)
    assert "This field is required." in text(page)
    assert held.owned()


def test_where_a_reason_is_required_one_is_enough(admin_client: Client, held: LockHandle) -> None:
    with override_settings(SETNX_LOCK={**settings.SETNX_LOCK, "REQUIRE_REASON": True}):
        admin_client.post(RELEASE, {**seen(), "post": "yes", "reason": "stuck"})

    assert not held.owned()
