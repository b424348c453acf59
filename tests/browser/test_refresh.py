"""The list that loads itself anew, in a browser that runs scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import lock
from tests.admin.pages import LIST
from tests.processes import eventually

if TYPE_CHECKING:
    from django.test import Client
    from pytest_django.live_server_helper import LiveServer

    from tests.browser.conftest import Browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    # A browser takes seconds to start where the machine is busy.
    pytest.mark.timeout(180),
    # One process starts the browsers: side by side they keep everybody else waiting.
    pytest.mark.xdist_group("browser"),
]
BOX = "#lock-refresh"
# Five seconds are over at once.
HURRY = "const later = setTimeout; window.setTimeout = (what, ms) => later(what, ms / 100);"
HIDE = (
    "Object.defineProperty(document, 'hidden', {value: true});"
    "document.dispatchEvent(new Event('visibilitychange'));"
)


@pytest.fixture
def listed(chromium: Browser, live_server: LiveServer, admin_client: Client) -> Browser:
    """Give a browser that shows the list."""
    chromium.sign_in(live_server.url, admin_client)
    chromium.open(live_server.url + LIST)
    # What another test has chosen.
    chromium.run("sessionStorage.clear()")
    chromium.open(live_server.url + LIST)
    return chromium


def test_the_list_is_refreshed_as_long_as_that_is_asked_for(listed: Browser) -> None:
    lock("order:42").take(0)
    assert "order:42" not in listed.read("#content")

    listed.run(HURRY)
    listed.run(f"document.querySelector('{BOX}').click()")
    # By a script: an element that was found may be gone with its page before it is read.
    eventually(lambda: "order:42" in listed.run("return document.body?.innerText ?? ''"))

    # The choice outlives the page.
    eventually(lambda: listed.run(f"return document.querySelector('{BOX}')?.checked"))
    listed.run(f"document.querySelector('{BOX}').click()")
    assert listed.run("return sessionStorage.getItem('django_setnx_lock.refresh')") == ""


def test_a_list_that_nobody_sees_asks_redis_for_nothing(listed: Browser) -> None:
    listed.run("window.name = 'the same page'; window.loaded = true")
    listed.run(HURRY)
    listed.run(HIDE)
    listed.run(f"document.querySelector('{BOX}').click()")
    # As long as ten refreshes would take.
    listed.run("window.late = false; setTimeout(() => { window.late = true }, 50000)")

    eventually(lambda: listed.run("return window.late === true"))
    assert listed.run("return window.loaded") is True


@pytest.mark.parametrize("busy", [".action-select').click()", "#searchbar').focus()"])
def test_a_list_in_which_somebody_selects_or_types_is_not_refreshed(
    listed: Browser, busy: str
) -> None:
    lock("order:42").take(0)
    listed.run("location.reload()")
    eventually(lambda: listed.run("return !!document.querySelector('.action-select')"))
    # At once: a list that nobody touches yet is refreshed.
    listed.run(
        f"window.loaded = true; document.querySelector('{busy}; {HURRY}"
        f"document.querySelector('{BOX}').click()"
    )
    # As long as ten refreshes would take.
    listed.run("window.late = false; setTimeout(() => { window.late = true }, 50000)")

    eventually(lambda: listed.run("return window.late === true"))
    assert listed.run("return window.loaded") is True
