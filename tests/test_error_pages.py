"""Django's technical error page and error mail of a view whose lock failed: no token is there."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
import redis
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from django.utils.log import AdminEmailHandler

from django_setnx_lock import inspector, lock, rwlock
from django_setnx_lock.core import RedisLock
from tests.processes import eventually
from tests.servers import ONCE, free_port
from tests.support import seams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_django.fixtures import Settings

pytestmark = [pytest.mark.urls(__name__), pytest.mark.usefixtures("real_cache")]


def get_client() -> redis.Redis:
    client: redis.Redis = lock("a").client
    return client


def taken_where_no_lock_is() -> None:
    get_client().hset("lock:a", "42", "paid")
    lock("a").take(0)


def taken_with_others_where_no_lock_is() -> None:
    get_client().hset("lock:b", "42", "paid")
    lock("a", "b").take(0)


def lost_and_left() -> None:
    with lock("a"):
        get_client().delete("lock:a")


def lost_and_checked() -> None:
    with lock("a") as held:
        get_client().delete("lock:a")
        held.check()


def extended_where_no_lock_is() -> None:
    with lock("a") as held:
        get_client().delete("{lock:a}:meta")
        get_client().hset("{lock:a}:meta", "42", "paid")
        get_client().delete("lock:a")
        get_client().hset("lock:a", "42", "paid")
        held.extend(5)


def read_where_no_lock_is() -> None:
    get_client().hset("lock:a", "42", "paid")
    with rwlock("a").read():
        pass


def has_no_script(name: str) -> None:
    """Have Redis refuse what needs a function of the script ``name``: what is beside the lock."""
    get_client().delete(name)
    get_client().set(name, "paid")


def given_away_where_no_lock_is() -> None:
    held: Any = lock("a").take(0)
    has_no_script("{lock:a}:gone")
    held.give_away()


def forced_where_no_lock_is() -> None:
    held: Any = lock("a").take(0)
    seen = inspector().get("lock:a").fingerprint
    has_no_script("{lock:a}:forced")
    inspector().force_release("lock:a", seen, by="joe")
    held.check()


def found_to_be_a_deadlock() -> None:
    client = get_client()
    looks: Any = {"reentrant": True, "deadlock_timeout": 0.01}

    def take_in_the_other_order() -> None:
        with RedisLock(client, "lock:b", **looks), RedisLock(client, "lock:a", **looks):
            pass

    with RedisLock(client, "lock:a", **looks):
        other = threading.Thread(target=take_in_the_other_order)
        other.start()
        eventually(lambda: client.keys("*:waits:*"))
        RedisLock(client, "lock:b", **looks).take(20)
    other.join()


def taken_without_a_server() -> None:
    with redis.Redis(port=free_port(), retry=ONCE) as client:
        RedisLock(client, "a").take(0)


class Unsent:
    """A socket that takes nothing of a script."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def sendall(self, data: bytes) -> None:
        if b"EVAL" in data:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        self._real.sendall(data)


class UnsentConnection(redis.Connection):
    def _connect(self) -> Any:
        return Unsent(super()._connect())  # type: ignore[no-untyped-call]  # nor is redis-py's


def taken_where_nothing_is_sent() -> None:
    at = get_client().connection_pool.connection_kwargs
    pool = redis.ConnectionPool(UnsentConnection, host=at["host"], port=at["port"], db=7)
    with redis.Redis.from_pool(pool) as client:
        RedisLock(client, "a").take(0)


def taken_in_asyncio_without_a_server() -> None:
    async def take() -> None:
        with redis.Redis(port=free_port(), retry=ONCE) as client:
            await RedisLock(client, "a").atake(0)

    asyncio.run(take())


CALLS: list[Callable[[], None]] = [
    taken_where_no_lock_is,
    taken_with_others_where_no_lock_is,
    lost_and_left,
    lost_and_checked,
    extended_where_no_lock_is,
    read_where_no_lock_is,
    given_away_where_no_lock_is,
    forced_where_no_lock_is,
    found_to_be_a_deadlock,
    taken_without_a_server,
    taken_where_nothing_is_sent,
    taken_in_asyncio_without_a_server,
]


def view(request: HttpRequest, name: str) -> HttpResponse:
    globals()[name]()
    return HttpResponse("done")


urlpatterns = [path("<name>/", view)]


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the list of all tokens that were ever made."""
    made: list[str] = []
    seams.note_tokens(monkeypatch, made)
    return made


@pytest.fixture
def visitor(settings: Settings) -> Client:
    # LockMiddleware would answer these errors.
    settings.MIDDLEWARE = []
    return Client(raise_request_exception=False)


class Mailing(AdminEmailHandler):
    """Keeps what would be mailed, with the variables of each frame."""

    def __init__(self) -> None:
        super().__init__(include_html=True)
        self.sent: list[str] = []

    def send_mail(self, subject: Any, message: Any, *args: Any, **options: Any) -> None:
        self.sent += [subject, message, options["html_message"]]


@pytest.fixture
def mails() -> Iterator[list[str]]:
    """Give what is mailed of errors in views."""
    logger, handler = logging.getLogger("django.request"), Mailing()
    logger.addHandler(handler)
    yield handler.sent
    logger.removeHandler(handler)


def assert_no_token(page: str, tokens: list[str]) -> None:
    assert tokens
    assert re.search(r"Lock(Deadlock|Error|Lost|Unavailable)", page)
    # Django breaks what was sent into lines.
    page = re.sub(r"(&#x27;|')\n\s*b(&#x27;|')", "", page)
    assert [token for token in tokens if token in page] == []


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_the_technical_error_page_shows_no_token(
    call: Callable[[], None], visitor: Client, settings: Settings, tokens: list[str]
) -> None:
    settings.DEBUG = True

    page = visitor.get(f"/{call.__name__}/")

    assert page.status_code == 500
    assert_no_token(page.content.decode(), tokens)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_the_mail_about_an_error_shows_no_token(
    call: Callable[[], None], visitor: Client, tokens: list[str], mails: list[str]
) -> None:
    visitor.get(f"/{call.__name__}/")

    assert len(mails) == 3
    assert "<html" in mails[2]
    assert_no_token("".join(mails), tokens)


def test_the_technical_error_page_of_a_server_under_with_lock_shows_no_token(
    visitor: Client, settings: Settings, tokens: list[str]
) -> None:
    settings.DEBUG = True
    # What with_lock gives to its command. wsgiref, and so runserver, has the environment in what is
    # told of a request.
    name, value = "SETNX_LOCK_HELD_TOKENS", '[{"token": "of-the-command"}]'
    tokens.append("of-the-command")
    visitor.defaults[name] = value
    page = visitor.get("/lost_and_checked/").content.decode()

    assert name in page
    assert_no_token(page, tokens)
