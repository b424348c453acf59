"""Holders are asked to stop, or lose their locks: only those that were shown and confirmed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client, override_settings

from django_setnx_lock import LockLost, LockUnavailable, lock
from django_setnx_lock.core import Inspector, LockHandle
from django_setnx_lock.models import Lock
from tests.admin.pages import (
    LIST,
    address,
    boxes,
    choose,
    confirm,
    entries_of,
    info,
    keys,
    messages,
    press,
    staff,
    text,
    ticked,
)
from tests.management.holders import (
    age_sharer,
    hold_many,
    hold_since,
    kill_holder,
    read_by,
    revive_holder,
)
from tests.support.seams import any_lock

if TYPE_CHECKING:
    from tests.servers import FakeServer

pytestmark = pytest.mark.django_db
KEY, LISTED = "order:42", "price-list"
GONE = "state=holder-gone"
# The texts, once: a test below says in which case each is shown.
RELEASED, ASKED = "success: Released, but not stopped: ", "success: Asked to stop: "
CHANGED = "warning: Changed hands after you looked, so "
FREE = "warning: Not held any more, so "
both = pytest.mark.parametrize("page", ["release", "stop"])


@pytest.fixture
def held() -> LockHandle:
    held = any_lock(KEY, timeout=150, label="pay", user="ann", note="by hand").take(0)
    hold_since(KEY, 3610)
    return held


@pytest.fixture
def readers(nobody_looks: None) -> list[LockHandle]:
    """Hold the price list by three readers, the first of which is gone, and is not renewed."""
    held = read_by(LISTED, "ann", "bob", "cyd")
    age_sharer(LISTED, held[0].token, 60, is_killed=True)
    return held


def is_untouched(held: LockHandle) -> bool:
    """Whether its holder has the lock, and was not asked to stop."""
    held.check()
    return held.owned() and held.stop_requested is None


@both
def test_the_question_names_the_holder_and_does_nothing(
    admin_client: Client, held: LockHandle, page: str
) -> None:
    question = choose(admin_client, page, *boxes(KEY))

    said = text(question)
    assert "1 holder. Nothing is done until you confirm." in said
    assert re.search(r"order:42 , ann@\S+ \(pay; by hand\)", said)
    assert "held: last renewed " in said
    assert "; nobody waits; frees itself " in said
    assert "Somebody holds it, for as long as the lease runs or is renewed. Held for: 1 h." in said
    assert "Hears of this within 50 s." in said
    assert held.token not in question.content.decode()
    assert is_untouched(held)
    assert not LogEntry.objects.exists()


def test_a_holder_that_loses_its_lock_hears_who_released_it_and_why_and_it_is_logged(
    admin_client: Client, admin_user: User, held: LockHandle
) -> None:
    done = press(admin_client, "release", KEY, reason="its host is gone")

    assert done.redirect_chain == [(LIST, 302)]
    assert messages(done)[0].startswith(f"{RELEASED}{KEY}, ann@")
    with pytest.raises(LockLost) as caught:
        held.check()
    assert (caught.value.forced_by, caught.value.reason) == ("admin", "its host is gone")
    (entry,) = entries_of(Lock)
    assert (entry.user, entry.object_id, entry.object_repr) == (admin_user, f"lock:{KEY}", KEY)
    noted = r"Force-released from ann@\S+ \(pay; by hand\), held for 1 h. Reason: its host is gone"
    assert re.fullmatch(noted, entry.change_message)


def test_a_holder_that_is_asked_to_stop_hears_who_asks_and_why_and_it_is_logged(
    admin_client: Client, held: LockHandle
) -> None:
    done = press(admin_client, "stop", KEY, reason="a <b>deploy</b>")
    held.check()

    assert messages(done)[0].startswith(f"{ASKED}{KEY}, ann@")
    assert done.redirect_chain == [(address("change", f"lock:{KEY}"), 302)]
    asked = r"Asked to stop by admin, (less than 1|\d+) s ago: a <b>deploy</b>"
    assert re.search(asked, text(done))
    assert held.stop_requested is not None
    assert (held.stop_requested.by, held.stop_requested.reason) == ("admin", "a <b>deploy</b>")
    (entry,) = entries_of(Lock)
    noted = r"Asked to stop: ann@\S+ \(pay; by hand\), who has.* Reason: a <b>deploy</b>"
    assert re.fullmatch(noted, entry.change_message)


def test_a_holder_is_asked_to_stop_once(admin_client: Client, held: LockHandle) -> None:
    question = choose(admin_client, "stop", *boxes(KEY))
    first, second = confirm(admin_client, question), confirm(admin_client, question)

    assert 'value="Ask to stop…"' not in first.content.decode()
    assert messages(second)[0].startswith("warning: Asked to stop before: ")
    assert len(entries_of(Lock)) == 1


def changed_hands(held: LockHandle) -> LockHandle:
    held.release()
    return any_lock(KEY, user="bob").take(0)


@both
def test_when_it_changed_hands_nothing_is_asked_or_done(
    admin_client: Client, held: LockHandle, page: str
) -> None:
    chosen = boxes(KEY)
    question = choose(admin_client, page, *chosen)
    later = changed_hands(held)

    asked = admin_client.post(f"{LIST}{page}/", {"_selected_action": chosen}, follow=True)
    done = confirm(admin_client, question)

    assert messages(asked)[0].startswith("warning: This changed hands or is free since you looked")
    assert asked.redirect_chain == [(address("change", f"lock:{KEY}"), 302)]
    assert messages(done)[0].startswith(CHANGED)
    assert "User bob" in text(asked)
    assert "User bob" in text(done)
    assert is_untouched(later)
    assert not LogEntry.objects.exists()


@both
def test_when_it_is_free_nothing_is_done_and_the_list_is_as_it_was(
    admin_client: Client, held: LockHandle, page: str
) -> None:
    question = choose(admin_client, page, *boxes(KEY), filters="q=order&o=key")
    held.release()

    answer = confirm(admin_client, question)

    assert messages(answer)[0].startswith(FREE)
    assert answer.redirect_chain == [(f"{LIST}?q=order&o=key", 302)]
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(("looks", "state"), [("gone", "holder gone"), ("overdue", "not renewed")])
def test_a_holder_that_lives_again_keeps_its_lock_and_is_shown_anew(
    admin_client: Client, fake_server: FakeServer, held: LockHandle, looks: str, state: str
) -> None:
    if looks == "gone":
        kill_holder(KEY)
    else:
        fake_server.client().pexpire(f"lock:{KEY}", 40_000)
    question = choose(admin_client, "release", *boxes(KEY))
    revive_holder(KEY)
    fake_server.client().pexpire(f"lock:{KEY}", 150_000)

    again = confirm(admin_client, question)
    kept = is_untouched(held)
    done = confirm(admin_client, again)

    assert f"{state}: " in text(question)
    assert "These holders live again" in text(again)
    assert "held: last renewed " in text(again)
    assert kept
    assert messages(done)[0].startswith(RELEASED)
    assert not held.owned()


def test_of_several_only_the_holder_that_lives_again_is_shown_anew(
    admin_client: Client, readers: list[LockHandle]
) -> None:
    age_sharer(LISTED, readers[1].token, 60, is_killed=True)
    question = choose(admin_client, "release", *boxes(LISTED), selected="1", filters=GONE)
    age_sharer(LISTED, readers[0].token, -60)

    again = confirm(admin_client, question)

    assert messages(again)[0].startswith(f"{RELEASED}{LISTED}, bob@")
    assert "These holders live again" in text(again)
    assert "ann@" in text(again)
    assert [one.owned() for one in readers] == [True, False, True]


@pytest.mark.parametrize("how", ["found", "selected"])
def test_what_is_found_by_a_state_is_taken_from_the_holders_in_that_state(
    admin_client: Client, readers: list[LockHandle], how: str
) -> None:
    chosen = boxes(LISTED) if how == "selected" else []
    question = choose(admin_client, "release", *chosen, filters=GONE, **{how: "1"})
    done = confirm(admin_client, question)

    assert "1 holder. Nothing is done" in text(question)
    assert "ann@" in text(question)
    assert "bob@" not in text(question)
    assert messages(done)[0].startswith(f"{RELEASED}{LISTED}, ann@")
    assert [one.owned() for one in readers] == [False, True, True]


def test_each_holder_has_a_line_and_who_lives_is_not_chosen(
    admin_client: Client, readers: list[LockHandle]
) -> None:
    question = choose(admin_client, "release", *boxes(LISTED))
    done = confirm(admin_client, question)

    said = text(question)
    assert "3 holders. Nothing is done" in said
    assert re.search(r"price-list , ann@\S+ holder gone: no sign of life for 15 s", said)
    assert re.search(r" 2 holders that are not chosen price-list , bob@\S+ held: last rene", said)
    assert ticked(question.content.decode()) == ["0"]
    assert messages(done)[0].startswith(f"{RELEASED}price-list, ann@")
    assert [held.owned() for held in readers] == [False, True, True]
    assert len(entries_of(Lock)) == 1


def test_who_lives_can_be_chosen(admin_client: Client, readers: list[LockHandle]) -> None:
    question = choose(admin_client, "release", *boxes(LISTED))

    confirm(admin_client, question, holder=["0", "2"])

    assert [held.owned() for held in readers] == [False, True, False]


@both
def test_without_a_choice_it_is_asked_again(
    admin_client: Client, page: str, readers: list[LockHandle]
) -> None:
    question = choose(admin_client, page, *boxes(LISTED))

    again = confirm(admin_client, question, holder=["7", "x"])
    chosen = ticked(again.content.decode())
    done = confirm(admin_client, again, holder=["0"])

    assert "Choose at least one holder." in text(again)
    assert chosen == []
    assert "ann@" in messages(done)[0]
    assert all(is_untouched(held) for held in readers[1:])


@both
def test_one_of_several_holders_is_chosen_on_the_page_of_the_lock(
    admin_client: Client, page: str, readers: list[LockHandle]
) -> None:
    opened = admin_client.get(address("change", f"lock:{LISTED}")).content.decode()
    sent = re.findall(r'name="_selected_action" value="([^"]*)"', opened)
    # Each is there with both buttons.
    box = list(dict.fromkeys(sent))[1]

    question = choose(admin_client, page, box)
    confirm(admin_client, question)
    present = {one.holder.user: one for one in info(LISTED).shares if one.holder}

    assert "bob@" in text(question)
    assert "ann@" not in text(question)
    assert ("bob" in present) == (page == "stop")
    assert page == "release" or present["bob"].stop_requested
    assert is_untouched(readers[2])


def test_where_all_live_all_are_chosen_and_one_that_joins_later_keeps_its_share(
    admin_client: Client,
) -> None:
    held = read_by("report", "ann", "bob", "cyd")
    question = choose(admin_client, "release", *boxes("report"))
    (later,) = read_by("report", "dan")

    confirm(admin_client, question)

    assert not any(one.owned() for one in held)
    assert later.owned()


def test_all_that_a_search_finds_are_released(admin_client: Client) -> None:
    held = [any_lock(f"job:{number}", user="ann").take(0) for number in range(60)]
    other = any_lock("other", user="bob").take(0)
    whole = admin_client.get(LIST).content.decode()
    found = admin_client.get(LIST, {"q": "job"}).content.decode()

    question = choose(admin_client, "release", found="1", filters="q=job")
    done = confirm(admin_client, question)

    assert ["all that are found" in page for page in (whole, found)] == [False, True]
    assert "60 holders. Nothing is done" in text(question)
    assert messages(done)[0].endswith("; and 50 more.")
    assert not any(one.owned() for one in held)
    assert other.owned()
    assert len(entries_of(Lock)) == 60


def test_not_more_than_a_number_are_chosen_at_once(admin_client: Client) -> None:
    hold_many(501, "job:{}".format)

    question = choose(admin_client, "release", found="1", filters="q=job")

    assert "There are more: not more than 500 are chosen at once." in text(question)
    assert "500 holders." in text(question)


def test_the_boxes_of_the_list_choose_what_they_stand_for(admin_client: Client) -> None:
    first, second, other = (lock(key).take(0) for key in ("a", "b", "c"))
    listed = admin_client.get(LIST)
    sent = re.findall(r'name="_selected_action" value="([^"]*)"', listed.content.decode())
    chosen = [box for key, box in zip(keys(listed), sent, strict=True) if key in ("a", "b")]

    done = confirm(admin_client, choose(admin_client, "release", *chosen, selected="1"))

    assert messages(done)[0].startswith(RELEASED)
    assert [first.owned(), second.owned(), other.owned()] == [False, False, True]


def test_one_that_changed_hands_before_the_question_is_not_among_others(
    admin_client: Client,
) -> None:
    first, stays = lock("a").take(0), lock("b").take(0)
    chosen = boxes("a", "b")
    first.release()
    later = lock("a").take(0)

    question = choose(admin_client, "release", *chosen, selected="1")
    confirm(admin_client, question)

    assert "1 selected lock has changed since you looked" in text(question)
    assert [later.owned(), stays.owned()] == [True, False]


@pytest.mark.parametrize("forged", ["", "x", "eyJhIjoiYiJ9:1abcde:forged"])
def test_a_forged_confirmation_is_refused(
    admin_client: Client, held: LockHandle, forged: str
) -> None:
    done = admin_client.post(f"{LIST}release/", {"post": "yes", "seen": forged}, follow=True)

    assert "The confirmation was changed or is broken: nothing was done." in messages(done)[0]
    assert is_untouched(held)


@pytest.mark.parametrize(
    ("chosen", "status"),
    [([], 302), (["x"], 404), (["x:"], 404), (["lock:nothing:x"], 404), (["x:session%3A1"], 404)],
)
def test_senseless_choices_do_nothing(
    admin_client: Client, held: LockHandle, chosen: list[str], status: int
) -> None:
    assert choose(admin_client, "release", *chosen).status_code == status
    assert is_untouched(held)


@both
@pytest.mark.parametrize("permissions", [(), ("view_lock",), ("release_lock",)])
def test_it_takes_both_permissions(
    held: LockHandle, page: str, permissions: tuple[str, ...]
) -> None:
    client = staff(*permissions)

    assert client.get(f"{LIST}{page}/").status_code == 403
    assert choose(client, page, *boxes(KEY)).status_code == 403
    assert is_untouched(held)
    client.logout()
    User.objects.all().delete()
    done = press(staff("view_lock", "release_lock"), page, KEY)
    assert messages(done)[0].startswith((RELEASED, ASKED))


@both
def test_an_address_does_nothing_and_neither_does_another_site(
    admin_client: Client, admin_user: User, held: LockHandle, page: str
) -> None:
    question = choose(admin_client, page, *boxes(KEY))
    form = {"post": "yes", "seen": question.context["seen"]}
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(admin_user)

    assert admin_client.get(f"{LIST}{page}/", form, follow=True).redirect_chain == [(LIST, 302)]
    assert strict.post(f"{LIST}{page}/", form).status_code == 403
    assert is_untouched(held)


@pytest.mark.parametrize("reason", ["a\0b", "x" * 201], ids=["nul", "too long"])
def test_a_reason_that_cannot_be_kept_is_refused_before_anything_is_done(
    admin_client: Client, held: LockHandle, reason: str
) -> None:
    again = press(admin_client, "release", KEY, reason=reason)

    assert 'class="errorlist"' in again.content.decode()
    assert is_untouched(held)
    page = again.content.decode()
    (described,) = re.findall(r'name="reason"[^>]* aria-describedby="([^" ]*)', page)
    assert f'id="{described}"' in page


@override_settings(SETNX_LOCK={"REQUIRE_REASON": True})
def test_a_reason_that_is_required_is_asked_for_about_who_was_shown_first(
    admin_client: Client, held: LockHandle
) -> None:
    again = press(admin_client, "release", KEY, reason=" ")
    missing = "This field is required." in text(again)
    later = changed_hands(held)

    done = confirm(admin_client, again, reason="stuck")

    assert missing
    assert messages(done)[0].startswith(CHANGED)
    assert is_untouched(later)
    assert messages(press(admin_client, "stop", KEY))[0].startswith(ASKED)


@pytest.mark.parametrize("method", ["get_each", "force_release"])
def test_a_redis_that_goes_away_is_told_and_what_is_not_known(
    admin_client: Client, held: LockHandle, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    question = choose(admin_client, "release", *boxes(KEY))

    def answer_lost(*args: Any, **about: Any) -> None:
        raise LockUnavailable("Redis did not answer in time", cause="timeout")

    monkeypatch.setattr(Inspector, method, answer_lost)

    said = messages(confirm(admin_client, question))

    assert any(one.startswith("error: Redis did not answer in time.") for one in said)
    unsure = [one for one in said if "It is not known whether this was done" in one]
    assert len(unsure) == (method == "force_release")
    assert not LogEntry.objects.exists()
