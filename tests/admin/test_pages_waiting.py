"""What the page of a lock says of those who wait for it, and of what its holder waits for."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_setnx_lock.connection import get_client
from django_setnx_lock.core.protocol.keys import lock_keys
from tests.admin.pages import LIST, address, staff, text
from tests.core.helpers import ask, listed
from tests.core.nesting import waiting
from tests.hostile import KEYS, RECORDS, SHOWN, unsound

pytestmark = pytest.mark.django_db
PAGE = address("change", "lock:a")


def wait_for_a(count: int = 1) -> list[str]:
    """Have so many callers wait for a lock that is held; return their tokens."""
    listed(get_client(), "a").take(0)
    turns = [listed(get_client(), "a", label=f"view {number}").attempt() for number in range(count)]
    for turn in turns:
        ask(turn, waits=True)
    return [turn.token for turn in turns]


def test_those_who_wait_are_named_in_order(admin_client: Client) -> None:
    tokens = wait_for_a(2)

    response = admin_client.get(PAGE)

    words = text(response)
    assert words.index("(view 0)") < words.index("(view 1)")
    assert "less than 1 s" in words
    assert not [token for token in tokens if token in response.content.decode()]


def test_of_many_the_rest_are_counted(admin_client: Client) -> None:
    wait_for_a(52)

    words = text(admin_client.get(PAGE))

    assert "(view 49)" in words
    assert "(view 50)" not in words
    assert "2 more wait." in words


def test_what_the_holder_waits_for_is_a_link(admin_client: Client) -> None:
    with waiting(get_client(), ("b",), ("a", "b")):
        page = admin_client.get(PAGE)

    assert "The holder itself waits for b" in text(page)
    assert f'<a href="{address("change", "lock:b")}">b</a>' in page.content.decode()


@pytest.mark.parametrize("what", SHOWN)
def test_no_record_of_a_waiter_breaks_the_page(admin_client: Client, what: str) -> None:
    (token,) = wait_for_a()
    get_client().hset(lock_keys("lock:a").alive, f"who:{token}", RECORDS[what])

    response = admin_client.get(PAGE)

    assert response.status_code == 200
    assert not unsound(response.content.decode(), longest=60_000)


GRAPH = "/admin/django_setnx_lock/lock/graph/"


def test_the_graph_is_linked_and_says_that_nobody_waits(admin_client: Client) -> None:
    assert f'href="{GRAPH}"' in admin_client.get(LIST).content.decode()
    assert "Nobody waits for a lock." in text(admin_client.get(GRAPH))


def test_the_graph_takes_the_permission_to_see() -> None:
    assert staff("release_lock").get(GRAPH).status_code == 403
    assert staff_again("view_lock").get(GRAPH).status_code == 200


def staff_again(*permissions: str) -> Client:
    User.objects.all().delete()
    return staff(*permissions)


def test_the_graph_has_those_that_wait_within_what_blocks_them(admin_client: Client) -> None:
    with waiting(get_client(), ("a", "x"), ("b", "a"), ("c", "b"), ("", "x")):
        page = admin_client.get(GRAPH)

    words = text(page)
    places = [words.index(f"{key} held") for key in "abcx"]
    assert places == sorted(places)
    assert "Waiting behind it in all : 2" in words.replace("all:", "all :")
    html = page.content.decode()
    lists = html[html.index('<div class="lock-chains">') :]
    assert (lists.count("<ul>"), lists.count("<li>")) == (3, 4)
    assert (lists.count("</ul>") >= 3, lists.count("</li>") >= 4) == (True, True)


@pytest.mark.parametrize("key", KEYS)
def test_no_key_breaks_the_graph(admin_client: Client, key: str) -> None:
    listed(get_client(), key).take(0)
    ask(listed(get_client(), key).attempt(), waits=True)

    response = admin_client.get(GRAPH)

    assert response.status_code == 200
    assert not unsound(response.content.decode(), longest=60_000)
