"""Two people at one form of the admin: one in a browser with scripts, one without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import inspector
from example_project.shop.models import Charge, Order
from tests.admin import orders
from tests.admin.orders import Person
from tests.browser.test_accessibility import THEMES, WIDTHS, faults
from tests.processes import eventually

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

    from tests.browser.conftest import Browser

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("tests.admin.orders"),
    # A browser takes seconds to start where the machine is busy.
    pytest.mark.timeout(180),
    # One process starts the browsers: side by side they keep everybody else waiting.
    pytest.mark.xdist_group("browser"),
]
SAVE = "input[name=_save]"


class Desk:
    """Ann at a browser with scripts, Bob at one without, and an order with a charge."""

    def __init__(self, site: str, ann: Browser, bob: Browser) -> None:
        self.ann, self.bob = ann, bob
        self.order = Order.objects.create(number="2026-7", customer="Ann Lee", amount="10.00")
        Charge.objects.create(order=self.order, amount="3.00")
        self.url = f"{site}{Person('ann').url(self.order)}"
        self.list = f"{site}{Person('ann').url()}"
        ann.sign_in(site, Person("ann").client)
        bob.sign_in(site, Person("bob").client)

    @property
    def fingerprint(self) -> str:
        """What stands for the token of who holds the lock; it is another after each beacon."""
        return inspector().get(f"lock:order:{self.order.pk}").fingerprint

    @property
    def customer(self) -> str:
        return str(Order.objects.values_list("customer", flat=True).get(pk=self.order.pk))

    def type(self, who: Browser, text: str) -> None:
        who.run("document.querySelector('[name=customer]').value = ''")
        who.write("customer", text)


@pytest.fixture
def desk(chromium: Browser, browser: Browser, live_server: LiveServer) -> Desk:
    return Desk(live_server.url, chromium, browser)


def test_the_second_reads_who_edits_and_edits_when_the_first_has_saved(desk: Desk) -> None:
    desk.ann.open(desk.url)
    desk.bob.open(desk.url)
    seen = desk.bob.read(".lock-editing")

    desk.type(desk.ann, "Ann Moe")
    desk.ann.click(SAVE)
    desk.bob.open(desk.url)
    desk.type(desk.bob, "Bob Roe")
    desk.bob.click(SAVE)

    assert seen.startswith("ann is working on this order (since ")
    assert desk.customer == "Bob Roe"
    assert desk.fingerprint == ""


def test_what_is_refused_stays_on_the_page(desk: Desk) -> None:
    desk.bob.open(desk.url)
    Order.objects.update(customer="Cyd Poe")

    desk.type(desk.bob, "Bob Roe")
    desk.bob.click(SAVE)

    assert "This order was changed after you opened it." in desk.bob.read(".errorlist")
    assert desk.bob.run("return document.querySelector('[name=customer]').value") == "Bob Roe"
    assert desk.customer == "Cyd Poe"


def test_going_elsewhere_releases_the_lock(desk: Desk) -> None:
    desk.ann.open(desk.url)
    assert desk.fingerprint

    desk.ann.open(desk.list)

    eventually(lambda: not desk.fingerprint)


def test_loading_the_page_again_keeps_the_lock(desk: Desk) -> None:
    for _ in range(3):
        desk.ann.open(desk.url)

    assert desk.fingerprint
    desk.ann.click("[name=_leave]")
    assert desk.fingerprint == ""


@pytest.mark.matrix
def test_an_open_form_says_so_until_nobody_types_and_again_when_somebody_does(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders.OrderAdmin, "edit_timeout", 3)
    desk.ann.open(desk.url)
    first = desk.fingerprint
    second = eventually(lambda: desk.fingerprint != first and desk.fingerprint)
    eventually(lambda: desk.fingerprint not in (first, second, ""))

    monkeypatch.setattr(orders.OrderAdmin, "edit_idle", 0)
    desk.ann.open(desk.url)
    eventually(lambda: desk.fingerprint == "")
    desk.type(desk.ann, "Ann Moe")

    eventually(lambda: desk.fingerprint)


def test_who_is_taken_from_is_told_in_the_page(desk: Desk) -> None:
    desk.ann.open(desk.url)
    desk.type(desk.ann, "Ann Moe")
    desk.bob.open(desk.url)
    desk.bob.click("button[name=action]")
    desk.bob.click("#content form input[type=submit]")

    # As a page does that the browser had put away.
    desk.ann.run("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    eventually(lambda: "bob" in desk.ann.read(".lock-lost"))
    desk.ann.click(SAVE)
    assert "bob is working on this order" in desk.ann.read(".errorlist")
    assert desk.customer == "Ann Lee"


@pytest.mark.parametrize(
    "state",
    [
        "own, twice",
        *(
            pytest.param(state, marks=pytest.mark.matrix)
            for state in ("own", "refused", "told", "of another")
        ),
    ],
)
def test_no_form_has_a_fault_or_is_wider_than_the_screen(desk: Desk, state: str) -> None:
    page = Person("bob" if state == "of another" else "ann").open(desk.order)
    if state in ("own", "refused"):
        page.leave()
    desk.ann.open(desk.url)
    if state == "refused":
        Order.objects.update(customer="Cyd Poe")
        desk.type(desk.ann, "Ann Moe")
        desk.ann.click(SAVE)
    if state == "told":
        desk.ann.run(
            "const told = document.querySelector('.lock-lost');"
            "told.textContent = 'bob is working on this order.';"
            "told.hidden = false"
        )

    assert own_faults(desk.ann) == set()
    assert wide(desk.ann) == []


def own_faults(browser: Browser) -> set[str]:
    """What axe finds in what the form has besides Django's own, which is not without faults."""
    return {fault for fault in faults(browser) if "lock-" in fault or "button" in fault}


def wide(browser: Browser) -> list[int]:
    """The widths of the screen that the page is wider than."""
    found = []
    for width in WIDTHS:
        browser.show(width, THEMES[0])
        if browser.run("return document.documentElement.scrollWidth > innerWidth"):
            found.append(width)
    return found
