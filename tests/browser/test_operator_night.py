"""An operator's night: real processes die and stop, and the operator frees what they left."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from django_setnx_lock.core import State
from tests.admin.pages import HISTORY, LIST, address, info
from tests.browser.conftest import CONFIRM, RELEASE, Browser
from tests.processes import eventually
from tests.servers import RealServer
from tests.support.waiting import waiting_for

Start = Callable[..., "subprocess.Popen[str]"]

pytestmark = pytest.mark.storm
ROW, STATE = "#result_list tbody tr", ".lock-state"


class Night:
    """The operator at the browser."""

    def __init__(self, browser: Browser, site: str) -> None:
        self.browser, self._site = browser, site

    def open(self, page: str) -> str:
        """Open a page, as a link in a chat does; return what it says."""
        self.browser.open(self._site + page)
        return self.browser.read("#content")

    def see_at_once(self, selector: str, within: int = 300) -> None:
        """See that this is far up on the page, which is no wider than the window."""
        script = f"return document.querySelector('{selector}').getBoundingClientRect().top"
        for width in (390, 1280):
            self.browser.show(width, "light")
            assert self.browser.run(f"{script} + scrollY") <= within, (selector, width)
        assert self.browser.narrower() == []
        self.browser.show(1280, "light")


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

        listed = night.open(LIST)
        night.see_at_once(ROW)
        assert listed.index("billing:close") < listed.index("exports")
        assert "20 leases ran out in the last hour" in listed
        assert "worker" not in night.browser.read("#result_list")

        shown = night.open(address("change", "lock:billing:close"))
        night.see_at_once(STATE)
        assert "60 wait, the first for" in shown
        assert "no sign of life for 15 s or longer, last renewed" in shown
        assert shown.count("view invoice") == 1

    a_dead_one_loses_its_share_and_nobody_else(night, "price-list", 3)
    a_dead_one_loses_its_share_and_nobody_else(night, "exports", 40)
    one_that_goes_on_keeps_its_lock(night, stopped)

    assert night.open(f"{HISTORY}?q=ran+out").count("lease ran out") == 20

    night.open(address("change", "lock:sync:warehouse"))
    night.browser.click(RELEASE)
    night.browser.click(CONFIRM)
    assert "sync:warehouse was taken from ann@" in night.open(LIST)
    assert lives.poll() is None or lives.returncode == 0
    assert permits.poll() is None


def a_dead_one_loses_its_share_and_nobody_else(night: Night, key: str, count: int) -> None:
    night.open(f"{LIST}?q={key}")
    night.browser.run("document.querySelector('.action-select').click()")
    night.browser.click("[name=selected]")
    night.see_at_once(STATE, within=400)
    question = night.browser.read("#content")
    night.browser.click(CONFIRM)
    done = night.browser.read(".messagelist")

    assert f"{count - 1} holders that are not chosen" in question
    assert done.count(f"{key}, ann@") == 1
    assert len(info(key).shares) == count - 1
    assert not gone(key)


def one_that_goes_on_keeps_its_lock(night: Night, stopped: subprocess.Popen[str]) -> None:
    night.open(address("change", "lock:report:daily"))
    night.browser.click(RELEASE)
    question = night.browser.read("#content")
    stopped.send_signal(signal.SIGCONT)
    eventually(lambda: not gone("report:daily"))
    night.browser.click(CONFIRM)

    assert "no sign of life for 15 s or longer, last renewed" in question
    assert "live again" in night.browser.read("#content")
    assert info("report:daily").is_held
    assert stopped.poll() is None
