"""Every page of the package, held to WCAG 2.2 AA and to good practice by axe."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import django
import pytest
from django.contrib import admin
from django.contrib.auth.models import Group
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_setnx_lock import LockLost, inspector, lock, redis_lock
from example_project.shop.models import Order
from tests import past
from tests.admin.pages import HISTORY, LIST, address
from tests.browser.conftest import Browser
from tests.management.holders import hold_since, kill_holder
from tests.support.locks import leave_to_who_waits
from tests.support.seams import any_lock
from tests.support.waiting import waiting_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_django.live_server_helper import LiveServer

    from tests.servers import FakeServer

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
    # A browser takes seconds to start where the machine is busy.
    pytest.mark.timeout(180),
    # One process starts the browsers: side by side they keep everybody else waiting.
    pytest.mark.xdist_group("browser"),
]

WIDTHS = (390, 1280)
THEMES = ("light", "dark")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOURS = ["color-contrast", "link-in-text-block"]
# A colour on its way to another is neither.
USUAL_LOOK = "* { transition: none !important }"
LONG = "import:" + "k" * 193


@redis_lock("order:42", blocking_timeout=0)
def order(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done")


urlpatterns = [path("admin/", admin.site.urls), path("order/", order)]


class Operator:
    """The administrator at the browser, and the Redis that the pages tell of."""

    def __init__(self, browser: Browser, site: str, redis: FakeServer) -> None:
        self.browser = browser
        self.redis = redis
        self._site = site

    def open(self, page: str) -> None:
        """Open the page at that path."""
        self.browser.open(self._site + page)

    def open_lock(self, key: str) -> None:
        """Open the page of one lock."""
        self.open(address("change", f"lock:{key}"))


@pytest.fixture
def operator(
    chromium: Browser, live_server: LiveServer, admin_client: Client, fake_server: FakeServer
) -> Operator:
    """Give the administrator, signed in."""
    chromium.sign_in(live_server.url, admin_client)
    return Operator(chromium, live_server.url, fake_server)


def a_list_of_all_kinds(operator: Operator) -> None:
    hold_one_of_each_kind(operator)
    operator.open(LIST)


def a_list_by_key(operator: Operator) -> None:
    hold_one_of_each_kind(operator)
    operator.open(LIST + "?o=key")


def a_search(operator: Operator) -> None:
    hold_one_of_each_kind(operator)
    operator.open(LIST + "?q=letters")


def a_list_of_one_state(operator: Operator) -> None:
    hold_one_of_each_kind(operator)
    operator.open(LIST + "?state=kept")


def a_list_that_is_filtered(operator: Operator) -> None:
    hold_one_of_each_kind(operator)
    operator.open(LIST + "?q=order&state=held")


def release_of_all_found(operator: Operator) -> None:
    a_list_that_is_filtered(operator)
    operator.browser.click("[name=found]")


def a_lock_that_is_waited_for(operator: Operator) -> None:
    held_lock()
    with waiting_for("order:42", "order:42", label="view pay", note="invoice 7"):
        operator.open_lock("order:42")


def a_list_of_two_pages(operator: Operator) -> None:
    for number in range(55):
        lock(f"order:{number}").take(0)
    operator.open(LIST + "?p=2")


def hold_one_of_each_kind(operator: Operator) -> None:
    held_lock()
    three_readers()
    permits()
    kept_lock()
    no_lock(operator)
    operator.redis.client().set("lock:theirs", "their-token", px=50_000)
    operator.redis.client().set("lock:endless", "their-token")
    leave_to_who_waits(operator.redis.client(), "lock:passed", "their-token")
    # As if somebody had waited for them.
    met = {f"lock:{key}": 9e15 for key in ("theirs", "endless", "passed", "letters")}
    operator.redis.client().zadd("{lock:}:index", met)
    lock(LONG).take(0)
    in_trouble(operator)


def in_trouble(operator: Operator) -> None:
    """Have a lock whose renewal is overdue, and one of a dead process."""
    for key in ("late", "gone"):
        any_lock(key, timeout=300, label="nightly import", user="ann").take(0)
        hold_since(key, 600)
    operator.redis.client().pexpire("lock:late", 100_000)
    kill_holder("gone")


def held_lock() -> None:
    any_lock("order:42", timeout=3600, label="nightly import", user="ann", note="by hand").take(0)


def three_readers() -> None:
    for user in ("ann", "bob", "cyd"):
        any_lock(
            "report", shared=True, reentrant=False, timeout=3600, user=user, label="read"
        ).take(0)


def permits() -> None:
    for user in ("ann", "bob"):
        any_lock("exports", limit=3, user=user, reentrant=False).take(0)


def kept_lock() -> None:
    with lock("done", min_hold=125, label="nightly"):
        pass


def no_lock(operator: Operator) -> None:
    operator.redis.client().lpush("lock:letters", "a")


def held(operator: Operator) -> None:
    held_lock()
    operator.open_lock("order:42")


def shared(operator: Operator) -> None:
    three_readers()
    operator.open_lock("report")


def in_use(operator: Operator) -> None:
    permits()
    operator.open_lock("exports")


def kept(operator: Operator) -> None:
    kept_lock()
    operator.open_lock("done")


def not_a_lock(operator: Operator) -> None:
    no_lock(operator)
    operator.open_lock("letters")


def long_key(operator: Operator) -> None:
    lock(LONG).take(0)
    operator.open_lock(LONG)


def question(operator: Operator) -> None:
    held(operator)
    operator.browser.click(".lock-release input[type=submit]")


def not_renewed(operator: Operator) -> None:
    in_trouble(operator)
    operator.open_lock("late")


def holder_gone(operator: Operator) -> None:
    in_trouble(operator)
    operator.open_lock("gone")


def foreign(operator: Operator) -> None:
    operator.redis.client().set("lock:theirs", "their-token", px=50_000)
    operator.open_lock("theirs")


def never_expires(operator: Operator) -> None:
    operator.redis.client().set("lock:endless", "their-token")
    operator.open_lock("endless")


def changing_hands(operator: Operator) -> None:
    leave_to_who_waits(operator.redis.client(), "lock:passed", "their-token")
    operator.open_lock("passed")


def released(operator: Operator) -> None:
    question(operator)
    operator.browser.click("#content form input[type=submit]")


def changed_hands(operator: Operator) -> None:
    first = lock("order:42").take(0)
    operator.open_lock("order:42")
    first.release()
    held_lock()
    operator.browser.click(".lock-release input[type=submit]")


def operator_log(operator: Operator) -> None:
    released(operator)
    operator.open(address("history", "lock:order:42"))


def last_holds(operator: Operator) -> None:
    """Open the page of a lock that was forced from one, lost by another, and is held."""
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
    held_lock()
    operator.open_lock("order:42")


def all_history(operator: Operator) -> None:
    last_holds(operator)
    operator.open(HISTORY + "?q=order")


def release_of_selected(operator: Operator) -> None:
    one = Order.objects.create(number="2024-1", customer="Ann", amount=1)
    lock(f"order:{one.pk}", label="pay").take(0)
    operator.open("/admin/shop/order/")
    operator.browser.run(
        "document.querySelector('[name=_selected_action]').click();"
        "document.querySelector('[name=action]').value = 'release_locks_of_selected'"
    )
    operator.browser.click("#changelist-form [name=index]")


def without_redis(operator: Operator) -> None:
    operator.redis.connected = False
    operator.open(LIST)


def busy_view(operator: Operator) -> None:
    held_lock()
    operator.open("/order/")


def view_without_redis(operator: Operator) -> None:
    operator.redis.connected = False
    operator.open("/order/")


PAGES: dict[Callable[[Operator], None], str] = {
    a_list_of_all_kinds: "report",
    a_list_by_key: "theirs",
    a_search: "not a lock",
    a_list_of_two_pages: "55 locks",
    a_lock_that_is_waited_for: "invoice 7",
    a_list_of_one_state: "kept 1",
    a_list_that_is_filtered: "1 result",
    release_of_all_found: "Nothing is done until you confirm.",
    held: "nightly import",
    shared: "cyd@",
    in_use: "bob@",
    kept: "Its holder is done with it",
    not_a_lock: "Something that is no lock",
    long_key: LONG,
    question: "Nothing is done until you confirm.",
    not_renewed: "not renewed",
    holder_gone: "holder gone",
    foreign: "another program",
    never_expires: "never expires",
    changing_hands: "changing hands",
    released: "Released, but not stopped",
    changed_hands: "changed hands or is free since you looked",
    operator_log: "Force-released",
    last_holds: "forced by rita: its host was rebooted",
    all_history: "its host was rebooted",
    release_of_selected: "These holders lose their locks",
    without_redis: "Redis cannot be reached",
    busy_view: "Somebody else is working on this",
    view_without_redis: "Not available",
}


# What the other pages add to these, `make matrix` looks at.
ALWAYS = (a_list_of_all_kinds, busy_view)


def faults(browser: Browser) -> set[str]:
    """What axe finds at each width, and in each theme."""
    axe = browser.axe(USUAL_LOOK)
    found = set()
    for width in WIDTHS:
        # Themes differ in colours alone, and widths in none.
        for theme in THEMES if width == WIDTHS[-1] else THEMES[:1]:
            browser.show(width, theme)
            rules = RULES if theme == THEMES[0] else COLOURS
            results = axe.run(options={"runOnly": rules, "resultTypes": ["violations"]})
            for one in results["violations"]:
                for node in one["nodes"]:
                    found.add(f"{one['id']} {node['target']} {width} {theme}")
    return found


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page in ALWAYS else pytest.mark.matrix, id=page.__name__)
        for page in PAGES
    ],
)
def test_no_fault_is_found(operator: Operator, page: Callable[[Operator], None]) -> None:
    page(operator)

    assert PAGES[page] in operator.browser.read()
    assert faults(operator.browser) == set()


def test_no_page_is_wider_than_the_screen(operator: Operator) -> None:
    found: list[str] = []
    for page in (a_list_of_all_kinds, shared, question, busy_view):
        operator.redis.flush()
        page(operator)
        # At 800 the admin's menu leaves the least room.
        for width in (*WIDTHS, 800):
            operator.browser.show(width, "light")
            if operator.browser.run("return document.documentElement.scrollWidth > innerWidth"):
                found.append(f"{page.__name__} {width}")

    assert found == []


@pytest.mark.matrix
def test_no_column_of_the_list_is_cut_off_on_a_wide_screen(operator: Operator) -> None:
    a_list_by_key(operator)
    operator.browser.show(1280, "light")

    wide = operator.browser.run(
        "const box = document.querySelector('#changelist .results');"
        "return [box.scrollWidth, box.clientWidth]"
    )

    assert wide[0] <= wide[1]


FAULTS = {
    "image-alt": "<img src='data:,'>",
    "button-name": "<button type=button></button>",
    "target-size": "<div><button>a</button><button>b</button></div>",
    "heading-order": "<h5>deep</h5>",
    "color-contrast": "<p>pale</p>",
}


@pytest.mark.matrix
def test_a_fault_is_found_at_each_width_and_one_of_colour_in_each_theme(operator: Operator) -> None:
    busy_view(operator)
    all_faults = "".join(FAULTS.values())
    operator.browser.run(
        f"document.querySelector('main').insertAdjacentHTML('beforeend', `{all_faults}`);"
        "document.head.insertAdjacentHTML('beforeend', '<style>"
        "main p { color: #777; background: #888 }"
        "main div button { width: 9px; height: 9px; padding: 0; border: 0; font-size: 6px }"
        "</style>')"
    )

    found = [one.split() for one in faults(operator.browser)]

    for rule in FAULTS:
        seen = {(int(one[-2]), one[-1]) for one in found if one[0] == rule}
        dark = {(WIDTHS[-1], THEMES[1])} if rule in COLOURS else set()
        assert seen == {(width, THEMES[0]) for width in WIDTHS} | dark


@pytest.mark.matrix
@pytest.mark.skipif(django.VERSION >= (6, 0), reason="It underlines these links")
def test_the_fault_that_is_mended_for_django_is_on_its_own_pages(operator: Operator) -> None:
    group = Group.objects.create(name="those who sort the mail " * 4)
    operator.open(f"/admin/auth/group/{group.pk}/change/")
    axe = operator.browser.axe()

    found = axe.run(options={"runOnly": RULES})["violations"]

    nodes = [
        node["html"] for one in found if one["id"] == "link-in-text-block" for node in one["nodes"]
    ]
    assert '<a href="/admin/auth/">Authentication and Authorization</a>' in nodes
