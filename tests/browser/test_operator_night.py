"""An operator's night: real processes die and stop, and the operator frees what they left.

With ``NIGHT_SHOTS`` in the environment, a directory, each page is pictured there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock.core import State
from tests.admin.pages import HISTORY, LIST, address, info
from tests.browser.test_accessibility import faults
from tests.processes import eventually, figure
from tests.support.waiting import waiting_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.test import Client
    from pytest_django.live_server_helper import LiveServer

    from tests.browser.conftest import Browser
    from tests.servers import RealServer

    Start = Callable[..., subprocess.Popen[str]]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.storm,
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(300),
    # One process starts the browsers: side by side they keep everybody else waiting.
    pytest.mark.xdist_group("browser"),
]
ROW, STATE = "#result_list tbody tr", ".lock-state"
SELECT, SELECTED = ".action-select", "[name=selected]"
RELEASE, CONFIRM = ".lock-release input[type=submit]", "#content form input[type=submit]"
SHOTS = os.environ.get("NIGHT_SHOTS")


class Night:
    """The operator at the browser, who counts clicks."""

    def __init__(self, browser: Browser, site: str) -> None:
        self.browser, self._site = browser, site
        self.clicks = 0

    def open(self, page: str) -> None:
        """Open a page: what a link in a chat does."""
        self.browser.open(self._site + page)
        self.clicks = 0

    def click(self, selector: str, *, is_box: bool = False) -> None:
        """Click, once."""
        self.clicks += 1
        if is_box:
            self.browser.run(f"document.querySelector('{selector}').click()")
        else:
            self.browser.click(selector)

    def tops(self, what: str, selector: str) -> dict[int, int]:
        """Say how far down that is, by the width of the window; picture the page."""
        found = {}
        for width in (1280, 390):
            for theme in ("light", "dark"):
                self.browser.show(width, theme)
                self._picture(f"{what}-{width}-{theme}")
            script = f"return document.querySelector('{selector}').getBoundingClientRect().top"
            found[width] = round(self.browser.run(f"{script} + scrollY"))
            wide = self.browser.run("return document.documentElement.scrollWidth > innerWidth")
            assert not wide, f"{what} is wider than {width}"
        high = self.browser.run("return document.documentElement.scrollHeight")
        figure(f"{what}: clicks {self.clicks}, y {found}, height at 390: {high}")
        self.browser.show(1280, "light")
        return found

    def _picture(self, name: str) -> None:
        if SHOTS:
            Path(SHOTS, f"{name.replace(' ', '-')}.png").write_bytes(self.browser.picture())


@pytest.fixture
def start(real_cache: RealServer) -> Iterator[Start]:
    """Start programs that hold locks, and end them."""
    with ExitStack() as running:

        def start(key: str, kind: str = "alone", count: int = 1, timeout: float = 3600) -> Any:
            words = [sys.executable, "-m", "tests.browser.holding", key, kind, count, timeout]
            process = subprocess.Popen(
                [str(word) for word in words], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout is not None
            for end in (process.stdout.close, process.wait, process.kill):
                running.callback(end)
            assert process.stdout.readline() == "held\n"
            return process

        yield start


@pytest.fixture
def night(
    chromium: Browser, live_server: LiveServer, admin_client: Client, real_cache: RealServer
) -> Night:
    """Give the operator, signed in."""
    chromium.sign_in(live_server.url, admin_client)
    return Night(chromium, live_server.url)


def gone(key: str) -> bool:
    return State.GONE in info(key).states


def test_a_night(night: Night, start: Start) -> None:
    readers = [start("price-list", "read", 1, 600) for _ in range(3)]
    stopped = start("report:daily", timeout=120)
    billing = start("billing:close")
    permits = start("exports", "permit", 39)
    lost_permit = start("exports", "permit", 1, 900)
    lives = start("sync:warehouse", timeout=900)
    restarted = start("worker", count=20, timeout=6)
    with waiting_for(*["billing:close"] * 60, label="view invoice"):
        eventually(lambda: info("billing:close").waiting == 60)
        # Processes are taken for dead 15 s after they last said that they live.
        eventually(lambda: info("price-list").longest_hold > 11, 30)
        for process in (readers[0], billing, lost_permit):
            process.kill()
        restarted.terminate()
        stopped.send_signal(signal.SIGSTOP)
        dead = ("price-list", "billing:close", "exports", "report:daily")
        eventually(lambda: all(map(gone, dead)), 40)

        night.open(LIST)
        listed = night.browser.read("#content")
        first = night.tops("list", ROW)
        assert max(first.values()) <= 300
        assert listed.index("billing:close") < listed.index("exports")
        assert "20 leases ran out in the last hour" in listed
        assert "worker" not in night.browser.read("#result_list")
        assert faults(night.browser) == set()

        night.open(address("change", "lock:billing:close"))
        assert max(night.tops("60 waiters", STATE).values()) <= 300
        shown = night.browser.read("#content")
        assert "60 wait, the first for" in shown
        assert "no sign of life for 15 s or longer, last renewed" in shown
        assert shown.count("view invoice") == 1
        assert faults(night.browser) == set()

    a_dead_reader_loses_its_share_and_nobody_else(night, "price-list", 3)
    a_dead_reader_loses_its_share_and_nobody_else(night, "exports", 40)
    one_that_goes_on_keeps_its_lock(night, stopped)

    night.open(f"{HISTORY}?q=ran+out")
    night.tops("history", ".lock-past tbody tr")
    assert night.browser.read("#content").count("lease ran out") == 20

    night.open(address("change", "lock:sync:warehouse"))
    night.click(RELEASE)
    night.click(CONFIRM)
    night.open(LIST)
    night.tops("forced out", ".lock-unaware")
    assert "sync:warehouse was taken from ann@" in night.browser.read("#content")
    assert lives.poll() is None or lives.returncode == 0
    assert permits.poll() is None


def a_dead_reader_loses_its_share_and_nobody_else(night: Night, key: str, count: int) -> None:
    night.open(f"{LIST}?q={key}")
    night.click(SELECT, is_box=True)
    night.click(SELECTED)
    tops = night.tops(f"question about {count}", STATE)
    question = night.browser.read("#content")
    night.click(CONFIRM)
    done = night.browser.read(".messagelist")
    figure(f"free the dead one of {count}: clicks {night.clicks}")

    assert max(tops.values()) <= 400
    assert f"{count - 1} holders that are not chosen" in question
    assert done.count(f"{key}, ann@") == 1
    assert len(info(key).shares) == count - 1
    assert not gone(key)


def one_that_goes_on_keeps_its_lock(night: Night, stopped: subprocess.Popen[str]) -> None:
    night.open(address("change", "lock:report:daily"))
    night.click(RELEASE)
    night.tops("question about one that is stopped", STATE)
    question = night.browser.read("#content")
    stopped.send_signal(signal.SIGCONT)
    eventually(lambda: not gone("report:daily"))
    night.click(CONFIRM)
    night.tops("the same once it goes on", STATE)
    again = night.browser.read("#content")

    assert "no sign of life for 15 s or longer, last renewed" in question
    assert "live again" in again
    assert info("report:daily").is_held
    assert stopped.poll() is None
