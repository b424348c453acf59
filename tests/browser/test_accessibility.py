"""Every page of the package and of its docs, held to WCAG 2.2 AA and to good practice by axe."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from pytest_django.live_server_helper import LiveServer

from django_setnx_lock import LockLost, inspector, lock, redis_lock
from example_project.shop.models import Order
from tests import past
from tests.admin.pages import HISTORY, LIST, address
from tests.browser.conftest import CONFIRM, RELEASE, THEMES, WIDTHS, Browser
from tests.management.holders import INDEX, hold_in_each_state, read_by
from tests.servers import FakeServer
from tests.support.locks import leave_to_who_waits
from tests.support.seams import any_lock
from tests.support.waiting import waiting_for

pytestmark = pytest.mark.urls(__name__)
ROOT = Path(__file__).parents[2]
LONG = "import:" + "k" * 193


@redis_lock("order:42", blocking_timeout=0)
def order(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


urlpatterns = [path("admin/", admin.site.urls), path("order/", order)]


class Operator(NamedTuple):
    """The administrator at the browser, and the Redis that the pages tell of."""

    browser: Browser
    site: str
    redis: FakeServer

    def open(self, page: str) -> None:
        """Open the page at that path."""
        self.browser.open(self.site + page)


@pytest.fixture
def operator(
    chromium: Browser, live_server: LiveServer, admin_client: Client, fake_server: FakeServer
) -> Operator:
    """Give the administrator, signed in."""
    chromium.sign_in(live_server.url, admin_client)
    return Operator(chromium, live_server.url, fake_server)


# What stands in Redis


def held_lock(operator: Operator) -> None:
    any_lock("order:42", timeout=3600, label="nightly import", user="ann", note="by hand").take(0)


def several_holders(operator: Operator) -> None:
    read_by("report", "ann", "bob", "cyd")
    for user in ("ann", "bob"):
        any_lock("exports", limit=3, user=user, reentrant=False).take(0)


def all_kinds(operator: Operator) -> None:
    held_lock(operator)
    several_holders(operator)
    hold_in_each_state()
    lock(LONG).take(0)
    client = operator.redis.client()
    client.lpush("lock:letters", "a")
    leave_to_who_waits(client, "lock:passed", "their-token")
    # As if somebody had waited for them.
    client.zadd(INDEX, {"lock:passed": 9e15, "lock:letters": 9e15})


def two_pages(operator: Operator) -> None:
    for number in range(55):
        lock(f"order:{number}").take(0)


def waited_for(operator: Operator) -> None:
    held_lock(operator)
    with waiting_for("order:42", "order:42", label="view pay", note="invoice 7"):
        operator.open(address("change", "lock:order:42"))


def changed_hands(operator: Operator) -> None:
    first = lock("order:42").take(0)
    operator.open(address("change", "lock:order:42"))
    first.release()
    held_lock(operator)


def released(operator: Operator) -> None:
    held_lock(operator)
    operator.open(address("change", "lock:order:42"))
    operator.browser.click(RELEASE)
    operator.browser.click(CONFIRM)


def last_holds(operator: Operator) -> None:
    """Have a lock that was forced from one, lost by another, and is held."""
    taken = any_lock("order:42", user="ann", label="nightly import", timeout=3600).take(0)
    fingerprint = inspector().get(taken.name).fingerprint
    inspector().force_release(taken.name, fingerprint, by="rita", reason="its host was rebooted")
    with suppress(LockLost):
        taken.release()
    lost = lock("order:42", reentrant=False).take(0)
    operator.redis.client().delete(lost.name)
    with suppress(LockLost):
        lost.release()
    past.noted(2)
    held_lock(operator)


def selected_order(operator: Operator) -> None:
    one = Order.objects.create(number="2024-1", customer="Ann", amount=1)
    lock(f"order:{one.pk}", label="pay").take(0)
    operator.open("/admin/shop/order/")
    operator.browser.run(
        "document.querySelector('[name=_selected_action]').click();"
        "document.querySelector('[name=action]').value = 'release_locks_of_selected'"
    )


def no_redis(operator: Operator) -> None:
    operator.redis.connected = False


class Scene(NamedTuple):
    """A page, or the one that is open, where that stands in Redis; what is clicked there."""

    before: Callable[[Operator], None]
    page: str
    said: str
    click: str = ""

    def open(self, operator: Operator) -> None:
        """Open it, and see that it is the page."""
        self.before(operator)
        if self.page:
            operator.open(self.page)
        if self.click:
            operator.browser.click(self.click)
        assert self.said in operator.browser.read()


def of_lock(key: str) -> str:
    return address("change", f"lock:{key}")


# What the others add to these two, `make matrix` looks at.
ALWAYS = {
    "list": Scene(all_kinds, LIST, "report"),
    "busy view": Scene(held_lock, "/order/", "Somebody else is working on this"),
}
SCENES = {
    **ALWAYS,
    "list by key": Scene(all_kinds, f"{LIST}?o=key", "theirs"),
    "second page": Scene(two_pages, f"{LIST}?p=2", "55 locks"),
    "all found": Scene(
        all_kinds, f"{LIST}?q=order&state=held", "until you confirm.", "[name=found]"
    ),
    "held": Scene(held_lock, of_lock("order:42"), "nightly import"),
    "shared": Scene(several_holders, of_lock("report"), "cyd@"),
    "in use": Scene(several_holders, of_lock("exports"), "bob@"),
    "not a lock": Scene(all_kinds, of_lock("letters"), "Something that is no lock"),
    "long key": Scene(all_kinds, of_lock(LONG), LONG),
    "holder gone": Scene(all_kinds, of_lock("gone"), "holder gone"),
    "changing hands": Scene(all_kinds, of_lock("passed"), "changing hands"),
    "waited for": Scene(waited_for, "", "invoice 7"),
    "question": Scene(held_lock, of_lock("order:42"), "until you confirm.", RELEASE),
    "changed hands": Scene(changed_hands, "", "changed hands or is free since", RELEASE),
    "released": Scene(released, "", "Released, but not stopped"),
    "log": Scene(released, address("history", "lock:order:42"), "Force-released"),
    "last holds": Scene(last_holds, of_lock("order:42"), "forced by rita: its host was rebooted"),
    "history": Scene(last_holds, f"{HISTORY}?q=order", "its host was rebooted"),
    "selected": Scene(
        selected_order, "", "These holders lose their locks", "#changelist-form [name=index]"
    ),
    "list without Redis": Scene(no_redis, LIST, "Redis cannot be reached"),
    "view without Redis": Scene(no_redis, "/order/", "Not available"),
}


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(scene, marks=[] if name in ALWAYS else pytest.mark.matrix, id=name)
        for name, scene in SCENES.items()
    ],
)
def test_no_fault_is_found(operator: Operator, scene: Scene) -> None:
    scene.open(operator)

    assert operator.browser.faults() == set()


def test_no_page_is_wider_than_the_screen_and_no_column_than_a_wide_one(operator: Operator) -> None:
    for name in ("shared", "question", "busy view", "list by key"):
        operator.redis.flush()
        SCENES[name].open(operator)
        assert operator.browser.narrower() == [], name
    operator.browser.show(1280, "light")

    box = "document.querySelector('#changelist .results')"
    assert operator.browser.run(f"return {box}.scrollWidth <= {box}.clientWidth")


@pytest.mark.parametrize(
    ("scene", "first", "most"),
    [
        (Scene(last_holds, LIST, "1 lease ran out"), "#result_list tbody tr", 300),
        (SCENES["last holds"], ".lock-state", 300),
        (SCENES["question"], ".lock-state", 400),
    ],
    ids=["list", "lock", "question"],
)
def test_what_is_asked_first_is_far_up_on_the_page(
    operator: Operator, scene: Scene, first: str, most: int
) -> None:
    past.note("worker", "ran out", at=time.time() - 60)
    scene.open(operator)

    for width in WIDTHS:
        operator.browser.show(width, "light")
        at = f"document.querySelector('{first}').getBoundingClientRect().top + scrollY"
        assert operator.browser.run(f"return {at}") <= most


TINY = "<button style='width: 9px; height: 9px; padding: 0; border: 0; font-size: 6px'>a</button>"
FAULTS = {
    "image-alt": "<img src='data:,'>",
    "target-size": f"<div>{TINY}{TINY}</div>",
    "heading-order": "<h5>deep</h5>",
    "color-contrast": "<p style='color: #777; background: #888'>pale</p>",
}


@pytest.mark.matrix
def test_a_fault_is_found_at_each_width_and_one_of_colour_in_each_theme(operator: Operator) -> None:
    SCENES["busy view"].open(operator)
    added = "".join(FAULTS.values())
    operator.browser.run(f"document.querySelector('main').innerHTML += `{added}`")

    faults = [one.split() for one in operator.browser.faults()]
    found = {(one[0], int(one[-2]), one[-1]) for one in faults}

    usual = {(rule, width, THEMES[0]) for rule in FAULTS for width in WIDTHS}
    assert found == {*usual, ("color-contrast", WIDTHS[-1], THEMES[1])}


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the pages as ``make docs`` does."""
    pytest.importorskip("furo", reason="make docs installs Sphinx and its theme")
    folder = tmp_path_factory.mktemp("docs")
    subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-b", "html", ROOT / "docs", folder],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=200,
    )
    return folder


@pytest.mark.matrix
@pytest.mark.parametrize("page", sorted(path.stem for path in ROOT.joinpath("docs").glob("*.md")))
def test_no_fault_is_found_in_the_docs(chromium: Browser, docs: Path, page: str) -> None:
    chromium.open((docs / f"{page}.html").as_uri())

    # The colours of a long page take half a minute, and are the theme's.
    assert chromium.faults(of_colour=False) == set()
