"""Two people at one form of the admin: one in a browser with scripts, one without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import inspector
from example_project.shop.models import Charge, Order
from tests.admin import orders
from tests.admin.orders import Person
from tests.processes import eventually

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

    from tests.browser.conftest import Browser

pytestmark = pytest.mark.urls("tests.admin.orders")
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

    def see_no_fault(self) -> None:
        """See that what the form has besides Django's own has no fault."""
        own = [one for one in self.ann.faults() if "lock-" in one or "button" in one]
        assert (own, self.ann.narrower()) == ([], [])


@pytest.fixture
def desk(chromium: Browser, browser: Browser, live_server: LiveServer) -> Desk:
    return Desk(live_server.url, chromium, browser)


def test_bob_has_a_browser_without_scripts(desk: Desk) -> None:
    desk.bob.open("data:text/html,<noscript>off</noscript><script>document.write('on')</script>")

    assert desk.bob.read() == "off"


def test_the_second_reads_who_edits_and_edits_when_the_first_has_saved_or_gone(desk: Desk) -> None:
    desk.ann.open(desk.url)
    desk.bob.open(desk.url)
    seen = desk.bob.read(".lock-editing")

    desk.type(desk.ann, "Ann Moe")
    desk.ann.click(SAVE)
    desk.ann.open(desk.url)
    desk.ann.open(desk.list)
    eventually(lambda: not desk.fingerprint)
    desk.bob.open(desk.url)
    desk.type(desk.bob, "Bob Roe")
    desk.bob.click(SAVE)

    assert seen.startswith("ann is working on this order (since ")
    assert desk.customer == "Bob Roe"
    assert desk.fingerprint == ""


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


TOLD = (
    "const told = document.querySelector('.lock-lost');"
    "told.textContent = 'bob is working on this order.'; told.hidden = false"
)


@pytest.mark.parametrize(
    "state",
    ["twice", *(pytest.param(one, marks=pytest.mark.matrix) for one in ("alone", "of another"))],
)
def test_no_form_has_a_fault_or_is_wider_than_the_screen(desk: Desk, state: str) -> None:
    if state != "alone":
        Person("bob" if state == "of another" else "ann").open(desk.order)
    desk.ann.open(desk.url)
    desk.see_no_fault()
    if state == "alone":
        desk.ann.run(TOLD)
        desk.see_no_fault()
        Order.objects.update(customer="Cyd Poe")
        desk.ann.click(SAVE)
        desk.see_no_fault()
