"""What needs attention comes first in the list, is counted, and can be listed alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from django.test import Client

from django_setnx_lock import lock
from django_setnx_lock.admin.lock_list import LOOKED_AT
from tests.admin.pages import LIST, hold_since, keys, text
from tests.core.test_inspection_many import hold
from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import FakeServer, RealServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def zoo(fake_server: FakeServer) -> Iterator[list[str]]:
    """Locks in several states, the most urgent first: the key of one is waited for."""
    client = fake_server.client()
    client.set("lock:endless", "their-token")
    lock("a", timeout=60, renew=False).take(0)
    busy = lock("busy", timeout=60, renew=False).take(0)
    lock("frozen", timeout=60).take(0)
    # A renewal is due after 20 s.
    hold_since("frozen", 40)
    client.pexpire("lock:frozen", 20_000)
    client.zadd("{lock:}:index", {"lock:endless": 9e15})
    with ThreadPoolExecutor(1) as pool:
        turn = pool.submit(lock("busy").take, 20)
        eventually(lambda: client.zcard("{lock:busy}:waiters"))
        yield ["frozen", "endless", "busy", "a"]
        busy.release()
        turn.result(20).release()


def test_what_needs_attention_comes_first(admin_client: Client, zoo: list[str]) -> None:
    assert keys(admin_client.get(LIST)) == zoo
    assert keys(admin_client.get(LIST, {"o": "-worst"})) == zoo[::-1]


def test_the_states_are_counted(admin_client: Client, zoo: list[str]) -> None:
    said = text(admin_client.get(LIST))

    for one in ("held 2", "waited for 1", "not renewed 1", "holder gone 0", "never expires 1"):
        assert one in said
    assert "As of 20" in said


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("not-renewed", ["frozen"]),
        ("never-expires", ["endless"]),
        ("waiting", ["busy"]),
        ("holder-gone", []),
        ("nonsense", ["frozen", "endless", "busy", "a"]),
    ],
)
@pytest.mark.usefixtures("zoo")
def test_a_count_leads_to_the_locks_in_that_state(
    admin_client: Client, state: str, expected: list[str]
) -> None:
    page = admin_client.get(LIST, {"state": state})

    assert keys(page) == expected
    assert ("No lock that was looked at is in this state." in text(page)) == (not expected)


@pytest.mark.usefixtures("zoo")
def test_the_count_of_a_state_is_a_link(admin_client: Client) -> None:
    page = admin_client.get(LIST, {"q": "e"}).content.decode()

    assert '<a href="?q=e&amp;state=not-renewed">not renewed 1</a>' in page


@pytest.mark.parametrize(("order", "first"), [("-held", "frozen"), ("-waiting", "busy")])
@pytest.mark.usefixtures("zoo")
def test_the_list_is_sorted_by_time_held_and_by_queue(
    admin_client: Client, order: str, first: str
) -> None:
    assert keys(admin_client.get(LIST, {"o": order}))[0] == first
    assert keys(admin_client.get(LIST, {"o": order[1:]}))[-1] == first


def test_of_many_locks_the_page_says_how_many_were_looked_at(
    admin_client: Client, real_cache: RealServer
) -> None:
    many = hold(real_cache.client(), LOOKED_AT + 50)

    page, held = (admin_client.get(LIST, asked) for asked in ({}, {"state": "foreign"}))

    assert f"of {LOOKED_AT} locks that were looked at" in text(page)
    assert f"{len(many)} locks" in text(page)
    assert "The list has all of them." in text(page)
    assert "So is this list." in text(held)
    assert f"{LOOKED_AT} locks" in text(held)


def test_many_locks_are_sorted_by_key_if_asked(
    admin_client: Client, real_cache: RealServer
) -> None:
    many = hold(real_cache.client(), LOOKED_AT + 50)

    assert keys(admin_client.get(LIST, {"o": "key", "p": "2"})) == sorted(many)[50:100]
