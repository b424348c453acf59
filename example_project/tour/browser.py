"""A visitor of the site over HTTP, who keeps cookies, follows links and fills in forms."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from html.parser import HTMLParser
from http.cookiejar import CookieJar
from textwrap import shorten
from urllib.error import HTTPError
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

from example_project.tour import WentWrong

TIMEOUT = 15  # seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came back. ``seconds``: how long it took; ``retry_after``: the header or ""."""

    status: int
    url: str
    text: str
    seconds: float
    retry_after: str = ""

    @property
    def path(self) -> str:
        return urlsplit(self.url).path

    @property
    def detail(self) -> str:
        """What a JSON answer says; "" when it is none."""
        try:
            return str(json.loads(self.text)["detail"])
        except (ValueError, KeyError, TypeError):
            return ""


class Page(HTMLParser):
    """What is on a page: its text, links by text, table rows, and forms.

    A form is where it posts to, and its fields, without its buttons.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.status = answer.status
        self.url = answer.url
        self.path = answer.path
        self.links: dict[str, str] = {}
        self.rows: list[list[str]] = []
        self.forms: list[tuple[str, dict[str, str]]] = []
        self._texts: list[str] = []
        self._link = ""
        self._is_code = False
        self.feed(answer.text)

    @property
    def text(self) -> str:
        """All that can be read, in one line."""
        return " ".join(" ".join(self._texts).split())

    @property
    def gist(self) -> str:
        """The status and the beginning of the text, in one short line."""
        return f"{self.status} with {shorten(self.text, 200)}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._is_code = tag in ("script", "style")
        if tag == "a":
            self._link = given.get("href", "")
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
        elif tag == "form":
            self.forms.append((urljoin(self.url, given.get("action", "")), {}))
        elif tag == "input" and self.forms and "name" in given and given.get("type") != "submit":
            self.forms[-1][1][given["name"]] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        self._is_code = False
        if tag == "a":
            self._link = ""

    def handle_data(self, data: str) -> None:
        if self._is_code:
            return
        self._texts.append(data)
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] = f"{self.rows[-1][-1]} {data}".strip()
        if self._link:
            self.links[data.strip()] = self._link


class Browser:
    """Visits the site at ``base``. Every call raises OSError when the site does not answer."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._cookies = CookieJar()
        # No proxy that the environment names stands between here and this machine.
        self._opener = build_opener(ProxyHandler({}), HTTPCookieProcessor(self._cookies))

    def open(self, address: str) -> Page:
        """Return the page at ``address``."""
        return Page(self._ask(address, None, "text/html"))

    def follow(self, page: Page, text: str) -> Page:
        """Return the page behind the link with that text. Raises WentWrong if there is none."""
        if text not in page.links:
            raise WentWrong(f"expected a link {text!r}, but got {page.gist}")
        return self.open(urljoin(page.url, page.links[text]))

    def submit(self, page: Page, field: str, *, to: str = "", **values: str) -> Page:
        """Fill ``values`` into the form of ``page`` that has ``field``, send it, return the page.

        ``to``: what the address that it posts to ends with (any).
        Raises WentWrong if there is no such form.
        """
        for address, fields in page.forms:
            if field in fields and address.endswith(to):
                return Page(self._ask(address, {**fields, **values}, "text/html"))
        raise WentWrong(f"expected a form with the field {field!r}, but got {page.gist}")

    def post(self, address: str) -> Answer:
        """Post to ``address`` as a program does, and return its answer."""
        return self._ask(address, {}, "application/json")

    def _ask(self, address: str, fields: dict[str, str] | None, accept: str) -> Answer:
        url = urljoin(self._base, address)
        data = None if fields is None else urlencode(fields).encode()
        headers = {"Accept": accept, "X-CSRFToken": self._csrf_token}
        began = time.monotonic()
        try:
            response = self._opener.open(Request(url, data, headers), timeout=TIMEOUT)  # noqa: S310 - ours
        except HTTPError as error:
            response = error
        with response:
            return Answer(
                status=response.status,
                url=response.url,
                text=response.read().decode(),
                seconds=time.monotonic() - began,
                retry_after=response.headers.get("Retry-After", ""),
            )

    @property
    def _csrf_token(self) -> str:
        return next((one.value or "" for one in self._cookies if one.name == "csrftoken"), "")
