"""Many locks of the list are released together, each from the holder who was seen."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client, override_settings

from django_setnx_lock import LockLost, lock
from django_setnx_lock.admin import pages
from django_setnx_lock.connection import get_client
from django_setnx_lock.models import Lock
from tests.admin.pages import LIST, entries_of, info, keys, messages, staff, text
from tests.hostile import KEYS, RECORDS, unsound
from tests.hostile import hold as hold_hostile

pytestmark = pytest.mark.django_db
RELEASE = f"{LIST}release/"
BROKEN = "error: The confirmation was changed or is broken: nothing was released."


def boxes(page: Any) -> list[str]:
    """What the check boxes of the list send."""
    found = re.findall(r'name="_selected_action" value="([^"]*)"', page.content.decode())
    return [html.unescape(one) for one in found]


def ask(client: Client, *, filters: str = "", **fields: Any) -> Any:
    return client.post(f"{RELEASE}?_changelist_filters={filters}", fields, follow=True)


def select(client: Client, *wanted: str) -> Any:
    """Select the locks of these keys, as they are now, and have them released."""
    listed = client.get(LIST)
    chosen = [box for key, box in zip(keys(listed), boxes(listed), strict=True) if key in wanted]
    return ask(client, selected="1", _selected_action=chosen)


def confirm(client: Client, question: Any, **fields: str) -> Any:
    (seen,) = re.findall(r'name="seen" value="([^"]+)"', question.content.decode())
    return ask(client, post="yes", seen=seen, **fields)


def test_a_dry_run_comes_first_and_releases_nothing(admin_client: Client) -> None:
    held = [lock(key, label="pay", user="ann").take(0) for key in ("a", "b", "c")]

    said = text(select(admin_client, "a", "c"))

    assert "2 locks. Nothing is released until you confirm." in said
    assert re.search(r"a, held, held by ann@\S+ \(pay\), held for less than 1 s", said)
    assert "b, held" not in said
    assert all(one.owned() for one in held)
    assert LogEntry.objects.count() == 0


def test_confirmed_each_is_released_told_and_logged(admin_client: Client) -> None:
    first, second, other = (lock(key).take(0) for key in ("a", "b", "c"))

    done = confirm(admin_client, select(admin_client, "a", "b"), reason="host is down")

    assert messages(done) == ["success: 2 locks were released."]
    for one in (first, second):
        with pytest.raises(LockLost, match="force-released by admin: host is down"):
            one.check()
    assert other.owned()
    assert sorted(entry.object_repr for entry in entries_of(Lock)) == ["a", "b"]
    assert all("host is down" in entry.change_message for entry in entries_of(Lock))


def test_released_changed_and_free_are_counted_apart(admin_client: Client) -> None:
    held = {key: lock(key).take(0) for key in ("same", "changed", "free", "gone")}
    question = select(admin_client, *held)
    for key in ("changed", "free", "gone"):
        held[key].release()
    later = lock("changed").take(0)

    done = confirm(admin_client, question)

    assert messages(done) == [
        "success: 1 lock was released.",
        "warning: 1 lock had changed hands: nothing was released there.",
        "warning: 2 locks were free: nothing was released there.",
    ]
    assert later.owned()
    assert [entry.object_repr for entry in entries_of(Lock)] == ["same"]


def test_one_that_changed_hands_before_the_question_is_not_among_them(
    admin_client: Client,
) -> None:
    first, stays = lock("a").take(0), lock("b").take(0)
    chosen = boxes(admin_client.get(LIST))
    first.release()
    later = lock("a").take(0)

    question = ask(admin_client, selected="1", _selected_action=chosen)
    confirm(admin_client, question)

    assert "1 selected lock has changed hands or is free" in text(question)
    assert later.owned()
    assert not stays.owned()


def test_all_that_a_filter_finds_are_released(admin_client: Client) -> None:
    held = [lock(f"job:{number}", user="ann").take(0) for number in range(60)]
    other = lock("other", user="bob").take(0)

    question = ask(admin_client, filters="user%3Dann", found="1")
    done = confirm(admin_client, question)

    assert "60 locks. Nothing is released" in text(question)
    assert messages(done) == ["success: 60 locks were released."]
    assert not any(one.owned() for one in held)
    assert other.owned()
    assert len(entries_of(Lock)) == 60


def test_without_a_filter_there_is_no_button_for_all(admin_client: Client) -> None:
    lock("a", user="ann").take(0)

    assert "all that are found" not in admin_client.get(LIST).content.decode()
    assert "all that are found" in admin_client.get(LIST, {"user": "ann"}).content.decode()


def test_not_more_than_a_number_are_released_at_once(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MOST_RELEASED", 3)
    for number in range(5):
        lock(f"job:{number}").take(0)

    question = ask(admin_client, filters="q%3Djob", found="1")

    assert "There are more: not more than 3 are released at once." in text(question)
    assert messages(confirm(admin_client, question)) == ["success: 3 locks were released."]


@override_settings(SETNX_LOCK={"REQUIRE_REASON": True})
def test_a_reason_that_is_required_is_asked_for(admin_client: Client) -> None:
    held = lock("a").take(0)
    question = select(admin_client, "a")

    again = confirm(admin_client, question, reason="")

    assert "This field is required." in text(again)
    assert held.owned()
    assert messages(confirm(admin_client, again, reason="stuck")) == [
        "success: 1 lock was released."
    ]


def test_whom_the_form_showed_again_is_who_was_shown_first(admin_client: Client) -> None:
    with override_settings(SETNX_LOCK={"REQUIRE_REASON": True}):
        first = lock("a").take(0)
        question = select(admin_client, "a")
        first.release()
        later = lock("a").take(0)

        done = confirm(admin_client, confirm(admin_client, question), reason="stuck")

    assert "changed hands" in messages(done)[0]
    assert later.owned()


@pytest.mark.parametrize("forged", ["", "x", "eyJhIjoiYiJ9:1abcde:forged"])
def test_a_forged_confirmation_is_refused(admin_client: Client, forged: str) -> None:
    held = lock("a").take(0)

    assert messages(ask(admin_client, post="yes", seen=forged)) == [BROKEN]
    assert held.owned()


def test_what_is_no_lock_of_ours_cannot_be_selected(admin_client: Client) -> None:
    get_client().set("session:1", "secret")

    assert ask(admin_client, selected="1", _selected_action=["x:session%3A1"]).status_code == 404
    assert get_client().get("session:1") == b"secret"


@pytest.mark.parametrize("chosen", [[], ["x"], ["x:"], ["lock:nothing:x"], [":lock%3Anothing"]])
def test_senseless_choices_release_nothing(admin_client: Client, chosen: list[str]) -> None:
    held = lock("a").take(0)

    assert ask(admin_client, selected="1", _selected_action=chosen).status_code in (200, 404)
    assert held.owned()


def test_it_takes_the_permission() -> None:
    lock("a").take(0)
    client = staff("view_lock")

    assert client.post(RELEASE, {"found": "1"}).status_code == 403
    assert boxes(client.get(LIST)) == []
    assert "Force-release" not in client.get(LIST).content.decode().partition("lock-states")[0]


def test_to_look_at_the_address_releases_nothing(admin_client: Client) -> None:
    held = lock("a").take(0)

    assert admin_client.get(RELEASE, follow=True).status_code == 200
    assert held.owned()


def test_a_redis_that_is_away_is_told(admin_client: Client, fake_server: Any) -> None:
    lock("a").take(0)
    question = select(admin_client, "a")
    fake_server.connected = False

    done = confirm(admin_client, question)

    assert messages(done)[0].startswith("error: ")
    fake_server.connected = True
    assert info("a").is_held


def test_nothing_that_others_wrote_breaks_it(admin_client: Client, no_collection: None) -> None:
    for number, record in enumerate(list(RECORDS.values())[:20]):
        hold_hostile(f"record-{number}", record)
    for key in KEYS:
        hold_hostile(key)

    listed = admin_client.get(LIST)
    question = ask(admin_client, selected="1", _selected_action=boxes(listed))
    done = confirm(admin_client, question)

    assert unsound(question.content.decode(), longest=200_000) == ""
    assert messages(done) == [f"success: {len(boxes(listed))} locks were released."]
