from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from example_project.shop import payments
from example_project.shop.models import Order
from tests.support import programs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.live_server_helper import LiveServer
    from selenium import webdriver

    from tests.servers import RealServer

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls("example_project.urls"),
    # A browser takes seconds to start where the machine is busy.
    pytest.mark.timeout(180),
    # One process starts the browsers: side by side they keep everybody else waiting.
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture
def driver() -> Iterator[webdriver.Chrome]:
    """Give a headless Chromium, one that runs scripts."""
    # It takes a while to import, and one process alone starts browsers.
    from selenium import webdriver

    program, chromedriver = programs.need("chromium", "chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    # Neither a sandbox nor a large /dev/shm is to be had in a container.
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    service = webdriver.ChromeService(executable_path=chromedriver)
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


def test_the_page_pays_ten_times_at_once_and_shows_who_got_the_lock(
    driver: webdriver.Chrome,
    live_server: LiveServer,
    real_cache: RealServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.wait import WebDriverWait

    order = Order(number="1001", customer="Ada", amount=42)
    order.save()
    nine_are_told = threading.Event()
    monkeypatch.setattr(payments, "await_answer", lambda: nine_are_told.wait(60))
    driver.get(live_server.url)
    wait = WebDriverWait(driver, 60)

    def answers() -> list[list[str]]:
        rows = driver.find_elements(By.CSS_SELECTOR, "#race tbody tr")
        return [[cell.text for cell in row.find_elements(By.TAG_NAME, "td")] for row in rows]

    driver.find_element(By.CSS_SELECTOR, "[data-race]").click()
    wait.until(lambda _: sum(row[0] == "409" for row in answers()) == 9)
    nine_are_told.set()
    wait.until(lambda _: "got the lock" in driver.find_element(By.ID, "race-outcome").text)

    outcome = driver.find_element(By.ID, "race-outcome").text
    told = sorted(row[:3] for row in answers())
    assert outcome == "1 got the lock and paid. 9 were told to come back later."
    assert told[0][:2] == ["200", "got it, and paid"]
    assert all(row[2] in {f"{seconds} s" for seconds in range(1, 11)} for row in told[1:])
    wait.until(lambda _: "charged once" in driver.find_element(By.ID, "orders").text)
    assert order.charges.count() == 1
