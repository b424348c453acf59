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

BOX = "#lock-refresh"
# Five seconds are over at once.
HURRY = "const later = setTimeout; window.setTimeout = (what, ms) => later(what, ms / 100);"


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


@pytest.mark.parametrize(
    "busy",
    [
        "document.querySelector('.action-select').click()",
        "document.querySelector('#searchbar').focus()",
        "Object.defineProperty(document, 'hidden', {value: true});"
        "document.dispatchEvent(new Event('visibilitychange'))",
    ],
    ids=["selects", "types", "nobody sees it"],
)
def test_a_list_in_which_somebody_selects_or_types_or_that_nobody_sees_is_not_refreshed(
    listed: Browser, busy: str
) -> None:
    lock("order:42").take(0)
    listed.run("location.reload()")
    eventually(lambda: listed.run("return !!document.querySelector('.action-select')"))
    # At once: a list that nobody touches yet is refreshed.
    listed.run(f"window.loaded = true; {busy}; {HURRY} document.querySelector('{BOX}').click()")
    # As long as ten refreshes would take.
    listed.run("window.late = false; setTimeout(() => { window.late = true }, 50000)")

    eventually(lambda: listed.run("return window.late === true"))
    assert listed.run("return window.loaded") is True
