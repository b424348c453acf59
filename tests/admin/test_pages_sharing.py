"""The pages of locks that several hold together."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_setnx_lock import lock, semaphore
from django_setnx_lock.core import LockHandle
from tests.admin.pages import LIST, address, info, messages, row, staff, text

pytestmark = pytest.mark.django_db
PAGE = address("change", "lock:report")
RELEASE = address("release", "lock:report")
ONE, ALL = 'value="Force-release…"', 'value="Force-release all…"'


def readers(*notes: str) -> list[LockHandle]:
    return [
        lock(
            "report", shared=True, reentrant=False, user=note, note=note, timeout=60 + number
        ).take(0)
        for number, note in enumerate(notes)
    ]


def test_the_list_names_those_who_read(admin_client: Client) -> None:
    held = readers("ann", "bob")

    said = row(admin_client.get(LIST), "report")

    assert said.startswith("report read ann@")
    assert "bob@" in said
    assert "ann, bob" in said
    assert all(one.owned() for one in held)


def test_of_many_it_names_the_first_few(admin_client: Client) -> None:
    held = readers("ann", "bob", "cyd", "dan", "eve")

    said = row(admin_client.get(LIST), "report")

    assert "and 2 more" in said
    assert len(held) == 5


def test_permits_in_use_are_listed(admin_client: Client) -> None:
    with semaphore("exports", 2, user="ann"), semaphore("exports", 2, user="bob"):
        said = row(admin_client.get(LIST), "exports")

    assert said.startswith("exports in use, 2 of 2 ann@")


def test_the_page_tells_how_many_of_the_permits_are_in_use(admin_client: Client) -> None:
    with semaphore("exports", 3), semaphore("exports", 3):
        said = text(admin_client.get(address("change", "lock:exports")))

    assert "State in use, 2 of 3: Several hold it together" in said


def test_the_page_of_the_lock_tells_all_of_each(admin_client: Client) -> None:
    held = readers("ann", "bob")

    page = admin_client.get(PAGE)

    said = text(page)
    assert "State read: Readers hold it together" in said
    for one in held:
        assert str(one.fence) in said
    assert said.index("ann@") < said.index("bob@")
    assert page.content.decode().count(ONE) == 2
    assert page.content.decode().count(ALL) == 1


def test_who_may_not_release_sees_no_buttons() -> None:
    held = readers("ann", "bob")

    page = staff("view_lock").get(PAGE).content.decode()

    assert ONE not in page
    assert ALL not in page
    assert held[0].owned()


def test_one_of_them_is_released(admin_client: Client) -> None:
    first, second = readers("ann", "bob")
    seen = info("report").shares[0].fingerprint

    asked = admin_client.post(RELEASE, {"fingerprint": seen})
    done = admin_client.post(
        RELEASE, {"fingerprint": seen, "reason": "stuck", "post": "yes"}, follow=True
    )

    assert "from ann@" in text(asked)
    assert "bob@" not in text(asked)
    assert messages(done)[0].startswith("success: The lock “report” was released from ann@")
    assert "from ann@" in LogEntry.objects.get().change_message
    assert (first.owned(), second.owned()) == (False, True)


def test_all_of_them_are(admin_client: Client) -> None:
    held = readers("ann", "bob")
    seen = info("report").fingerprint

    asked = admin_client.post(RELEASE, {"fingerprint": seen})
    admin_client.post(RELEASE, {"fingerprint": seen, "post": "yes"})

    assert "ann@" in text(asked)
    assert "bob@" in text(asked)
    assert not any(one.owned() for one in held)


def test_none_is_when_another_has_joined_since(admin_client: Client) -> None:
    held = readers("ann", "bob")
    seen = info("report").fingerprint
    held += readers("cyd")

    done = admin_client.post(RELEASE, {"fingerprint": seen, "post": "yes"}, follow=True)

    assert "changed hands after you looked" in messages(done)[0]
    assert all(one.owned() for one in held)


def test_one_who_has_let_go_since_is_not_taken_for_the_others(admin_client: Client) -> None:
    first, second = readers("ann", "bob")
    seen = info("report").shares[0].fingerprint
    first.release()

    done = admin_client.post(RELEASE, {"fingerprint": seen, "post": "yes"}, follow=True)

    assert "nothing was released" in messages(done)[0]
    assert second.owned()
