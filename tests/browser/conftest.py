from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import pytest

# What is imported where it is used takes a while, and one process alone starts browsers.
from tests.support import programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.test import Client
    from pytest_django.live_server_helper import LiveServer
    from selenium.webdriver.remote.webelement import WebElement

    from tests.servers import RealServer

# In the settings of Chromium: 2 blocks.
_BLOCKED = 2
WIDTHS = (390, 1280)
THEMES = ("light", "dark")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOURS = ["color-contrast", "link-in-text-block"]
_WITHOUT_COLOURS = (
    f"return axe.getRules({RULES}).filter(rule => !rule.tags.includes('experimental'))"
    f".map(rule => rule.ruleId).filter(id => !{COLOURS}.includes(id))"
)
# A colour on its way to another is neither.
USUAL_LOOK = "* { transition: none !important }"
#: The button on the page of a lock, and the one below a question.
RELEASE, CONFIRM = ".lock-release input[type=submit]", "#content form input[type=submit]"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test of this folder."""
    item.add_marker("browser")
    item.add_marker(pytest.mark.django_db(transaction=True))
    # A browser takes seconds to start where the machine is busy.
    item.add_marker(pytest.mark.timeout(300))
    # One process starts the browsers: side by side they keep everybody else waiting.
    item.add_marker(pytest.mark.xdist_group("browser"))


class Browser:
    """A headless Chromium; pages run no scripts in it unless ``with_scripts``."""

    def __init__(self, *, with_scripts: bool = False) -> None:
        from selenium import webdriver

        program, driver = programs.need("chromium", "chromedriver")
        options = webdriver.ChromeOptions()
        options.binary_location = program
        options.add_argument("--headless=new")
        # Neither a sandbox nor a large /dev/shm is to be had in a container.
        options.add_argument("--no-sandbox")
        options.add_argument("--disable-dev-shm-usage")
        if not with_scripts:
            options.add_experimental_option(
                "prefs", {"profile.managed_default_content_settings.javascript": _BLOCKED}
            )
        service = webdriver.ChromeService(executable_path=driver)
        self._driver = webdriver.Chrome(options=options, service=service)
        self._driver.set_page_load_timeout(20)
        self._driver.set_script_timeout(20)

    def open(self, url: str) -> None:
        """Open a page."""
        self._driver.get(url)

    def click(self, selector: str) -> None:
        """Click what leads to another page, and wait for that page."""
        self._leave(self._driver.find_element("css selector", selector))

    def follow(self, link: str) -> None:
        """Click a link in the content of the page by its words, and wait for its page."""
        content = self._driver.find_element("id", "content")
        self._leave(content.find_element("link text", link))

    def _leave(self, link: WebElement) -> None:
        from selenium.common.exceptions import WebDriverException
        from selenium.webdriver.support.wait import WebDriverWait

        # The driver may run scripts where pages may not. In the moment of the change it may not
        # answer either, and gives various errors for an element of the page that has gone.
        self.run("document.documentElement.dataset.left = 'yes'")
        link.click()
        there = "return !document.documentElement.dataset.left && document.readyState == 'complete'"
        wait = WebDriverWait(self._driver, 20, ignored_exceptions=[WebDriverException])
        wait.until(lambda driver: driver.execute_script(there))

    def write(self, field: str, text: str) -> None:
        """Write into the field of that name."""
        self._driver.find_element("name", field).send_keys(text)

    def read(self, selector: str = "body") -> str:
        """What is to be read there."""
        return self._driver.find_element("css selector", selector).text

    def sign_in(self, url: str, client: Client) -> None:
        """Have the session of ``client`` at the site of ``url``."""
        session = client.cookies["sessionid"].value
        cookie = {"name": "sessionid", "value": session, "url": url}
        self._driver.execute_cdp_cmd("Network.setCookie", cookie)

    def run(self, script: str) -> Any:
        """Run ``script`` in the page; return what it returns."""
        return self._driver.execute_script(script)

    def show(self, width: int, theme: str, height: int = 800) -> None:
        """Show the page so wide, and as to one who prefers that theme: ``light`` or ``dark``."""
        from selenium.webdriver.support.wait import WebDriverWait

        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        shown = (
            f"return innerWidth === {width}"
            f" && matchMedia('(prefers-color-scheme: {theme})').matches"
        )
        WebDriverWait(self._driver, 20).until(lambda driver: driver.execute_script(shown))
        # The page hears of its new size as it is drawn.
        self._driver.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0]))")

    def narrower(self) -> list[int]:
        """Return the widths of the screen that the page is wider than."""
        found = []
        # At 800 the admin's menu leaves the least room.
        for width in (*WIDTHS, 800):
            self.show(width, THEMES[0])
            if self.run("return document.documentElement.scrollWidth > innerWidth"):
                found.append(width)
        return found

    def faults(self, *, of_colour: bool = True) -> set[str]:
        """Return what axe finds at each width, and in each theme."""
        from selenium_axe_python.axe import Axe

        style = f"<style>{USUAL_LOOK}</style>"
        self.run(f"document.head.insertAdjacentHTML('beforeend', '{style}')")
        axe = Axe(self._driver)
        axe.inject()  # type: ignore[no-untyped-call]  # it has no annotations
        found = set()
        first: list[str] = RULES if of_colour else self.run(_WITHOUT_COLOURS)
        for width in WIDTHS:
            # Themes differ in colours alone, and widths in none.
            for theme in THEMES if of_colour and width == WIDTHS[-1] else THEMES[:1]:
                self.show(width, theme)
                # A bar that stays in sight is to cover nothing that can be scrolled from under it.
                self.show(width, theme, self.run("return document.documentElement.scrollHeight"))
                rules = first if theme == THEMES[0] else COLOURS
                results = axe.run(options={"runOnly": rules, "resultTypes": ["violations"]})
                for one in results["violations"]:
                    for node in one["nodes"]:
                        found.add(f"{one['id']} {node['target']} {width} {theme}")
        return found

    def forget(self) -> None:
        """Be signed in nowhere, and show nothing."""
        self.open("about:blank")
        self._driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        self._driver.execute_cdp_cmd("Network.clearBrowserCache", {})

    def close(self) -> None:
        """End the browser."""
        self._driver.quit()


@pytest.fixture(autouse=True)
def _listed(listed_at_once: None) -> None:
    """Have the list show what is held, however short."""


@pytest.fixture(scope="session")
def running_browsers() -> Iterator[Callable[[bool], Browser]]:
    """Give the browser that runs scripts, or that runs none, started when first asked for."""
    with contextlib.ExitStack() as browsers:

        @functools.cache
        def running(with_scripts: bool) -> Browser:
            browser = Browser(with_scripts=with_scripts)
            browsers.callback(browser.close)
            return browser

        yield running


@pytest.fixture
def chromium(running_browsers: Callable[[bool], Browser]) -> Iterator[Browser]:
    """Give a browser that runs scripts, none of which goes on when the test is over."""
    yield running_browsers(True)
    running_browsers(True).forget()


@pytest.fixture
def browser(running_browsers: Callable[[bool], Browser]) -> Iterator[Browser]:
    """Give a browser that runs no scripts, and remembers nothing of other tests."""
    yield running_browsers(False)
    running_browsers(False).forget()


@pytest.fixture
def operator(
    browser: Browser, live_server: LiveServer, real_cache: RealServer, admin_client: Client
) -> Browser:
    """Give a browser in which the administrator is logged in, at the admin's index."""
    browser.sign_in(live_server.url, admin_client)
    browser.open(f"{live_server.url}/admin/")
    return browser
