from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import staleness_of
from selenium.webdriver.support.wait import WebDriverWait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.live_server_helper import LiveServer
    from selenium.webdriver.remote.webelement import WebElement

    from tests.servers import RealServer

# In the settings of Chromium: 2 blocks.
_BLOCKED = 2


class Browser:
    """A headless Chromium that runs no scripts."""

    def __init__(self, program: str, driver: str) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = program
        options.add_argument("--headless=new")
        # Neither a sandbox nor a large /dev/shm is to be had in a container.
        options.add_argument("--no-sandbox")
        options.add_argument("--disable-dev-shm-usage")
        options.add_experimental_option(
            "prefs", {"profile.managed_default_content_settings.javascript": _BLOCKED}
        )
        service = webdriver.ChromeService(executable_path=driver)
        self._driver = webdriver.Chrome(options=options, service=service)
        self._driver.set_page_load_timeout(20)

    def open(self, url: str) -> None:
        """Open a page."""
        self._driver.get(url)

    def click(self, selector: str) -> None:
        """Click what leads to another page, and wait for that page."""
        page = self._driver.find_element(By.TAG_NAME, "html")
        self._driver.find_element(By.CSS_SELECTOR, selector).click()
        self._wait_for_page_after(page)

    def follow(self, link: str) -> None:
        """Click a link in the content of the page by its words, and wait for its page."""
        page = self._driver.find_element(By.TAG_NAME, "html")
        content = self._driver.find_element(By.ID, "content")
        content.find_element(By.LINK_TEXT, link).click()
        self._wait_for_page_after(page)

    def _wait_for_page_after(self, page: WebElement) -> None:
        wait = WebDriverWait(self._driver, 20)
        wait.until(staleness_of(page))
        # The driver may run this where pages may not; what is found before may be replaced.
        wait.until(lambda driver: driver.execute_script("return document.readyState") == "complete")

    def write(self, field: str, text: str) -> None:
        """Write into the field of that name."""
        self._driver.find_element(By.NAME, field).send_keys(text)

    def read(self, selector: str = "body") -> str:
        """What is to be read there."""
        return self._driver.find_element(By.CSS_SELECTOR, selector).text

    def close(self) -> None:
        """End the browser."""
        self._driver.quit()


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Give a browser that runs no scripts."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not program or not driver:
        pytest.skip("chromium and chromedriver are not both on this machine")
    browser = Browser(program, driver)
    yield browser
    browser.close()


@pytest.fixture
def operator(
    browser: Browser, live_server: LiveServer, real_cache: RealServer, admin_user: User
) -> Browser:
    """Give a browser in which the administrator is logged in, at the admin's index."""
    browser.open(f"{live_server.url}/admin/")
    browser.write("username", admin_user.get_username())
    browser.write("password", "password")
    browser.click("#login-form input[type=submit]")
    return browser
