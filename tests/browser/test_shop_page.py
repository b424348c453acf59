"""The page of the shop, in a browser that runs scripts."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, cast

import pytest

from example_project.shop import payments
from example_project.shop.models import Order
from tests.browser.conftest import Browser
from tests.processes import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.live_server_helper import LiveServer

    from tests.servers import RealServer

pytestmark = pytest.mark.urls("example_project.urls")


@pytest.fixture
def fresh() -> Iterator[Browser]:
    """Give a browser of its own: its connections to the server are few, and none is in use."""
    with closing(Browser(with_scripts=True)) as browser:
        yield browser


def test_the_page_pays_ten_times_at_once_and_shows_who_got_the_lock(
    fresh: Browser, live_server: LiveServer, real_cache: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = Order(number="1001", customer="Ada", amount=42)
    order.save()
    nine_are_told = threading.Event()
    monkeypatch.setattr(payments, "await_answer", lambda: nine_are_told.wait(60))
    fresh.open(live_server.url)

    def answers() -> list[list[str]]:
        rows = fresh.run(
            "return [...document.querySelectorAll('#race tbody tr')]"
            ".map(row => [...row.querySelectorAll('td')].map(cell => cell.innerText))"
        )
        return cast("list[list[str]]", rows)

    fresh.run("document.querySelector('[data-race]').click()")
    eventually(lambda: sum(row[0] == "409" for row in answers()) == 9, seconds=60)
    nine_are_told.set()
    eventually(lambda: "got the lock" in fresh.read("#race-outcome"), seconds=60)

    told = sorted(row[:3] for row in answers())
    assert fresh.read("#race-outcome") == (
        "1 got the lock and paid. 9 were told to come back later."
    )
    assert told[0][:2] == ["200", "got it, and paid"]
    assert all(row[2] in {f"{seconds} s" for seconds in range(1, 11)} for row in told[1:])
    # By a script: the table that was found may be replaced before it is read.
    orders = "return document.getElementById('orders').innerText"
    eventually(lambda: "charged once" in fresh.run(orders), seconds=60)
    assert order.charges.count() == 1
