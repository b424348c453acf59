from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.test import Client, override_settings

from django_setnx_lock import LockUnavailable, lock
from django_setnx_lock.core import Inspector
from tests.admin.pages import LIST, address, keys, text
from tests.settings import caches

if TYPE_CHECKING:
    from tests.servers import FakeServer

pytestmark = pytest.mark.django_db
DETAIL = address("change", "lock:order:42")
PAGES = pytest.mark.parametrize("page", [LIST, DETAIL])


@PAGES
def test_when_redis_is_down_the_page_says_so_and_what_to_do(
    admin_client: Client, fake_server: FakeServer, page: str
) -> None:
    lock("order:42").take(0)
    fake_server.connected = False

    response = admin_client.get(page)

    assert response.status_code == 200
    assert "Redis cannot be reached" in text(response)
    assert "Check that the Redis server runs and can be reached from here." in text(response)


@PAGES
def test_when_redis_is_down_nothing_can_be_released(
    admin_client: Client, fake_server: FakeServer, page: str
) -> None:
    lock("order:42").take(0)
    fake_server.connected = False

    response = admin_client.get(page).content.decode()

    assert "<form" not in response[response.index('<div id="content"') :]


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("timeout", "Check that the Redis server runs"),
        ("denied", "Check the cache's user name and password"),
        ("pool", "raise max_connections"),
        ("memory", "the log of the Redis server"),
    ],
)
def test_the_advice_fits_the_cause(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, cause: str, said: str
) -> None:
    def fail(*args: Any, **_: object) -> None:
        raise LockUnavailable("the cause in full", cause=cause)

    monkeypatch.setattr(Inspector, "get", fail)

    page = text(admin_client.get(DETAIL))

    assert "The cause in full." in page
    assert said in page


@PAGES
def test_a_cache_that_cannot_hold_locks_is_named(admin_client: Client, page: str) -> None:
    memory = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    with override_settings(CACHES={"default": memory}):
        response = admin_client.get(page)

    assert response.status_code == 200
    assert "The cache 'default' is not a django-redis cache, but" in text(response)
    assert "Correct CACHES or SETNX_LOCK" in text(response)


@override_settings(SETNX_LOCK={"CACHE": "nowhere"})
def test_a_missing_cache_is_named_and_another_one_can_be_looked_at(admin_client: Client) -> None:
    lock("order:42", using="default").take(0)

    missing = admin_client.get(LIST)
    other = admin_client.get(LIST, {"using": "default"})

    assert "There is no cache 'nowhere' in CACHES." in text(missing)
    assert keys(other) == ["order:42"]


def test_a_password_in_the_address_of_the_cache_is_on_no_page(admin_client: Client) -> None:
    cache = {**caches()["default"], "LOCATION": "redis://ann:pass-word@127.0.0.1:1/0"}
    cache["OPTIONS"] = {}
    with override_settings(CACHES={"default": cache}):
        page = admin_client.get(LIST)

    assert "Redis cannot be reached" in text(page)
    assert "pass-word" not in page.content.decode()


@pytest.mark.parametrize(
    "setting",
    [
        {"LOCATION": "redis://ann:pass-word"},
        {"LOCATION": "memcached://127.0.0.1:1"},
        {"OPTIONS": {"CLIENT_CLASS": "no.such.Client"}},
    ],
)
def test_a_cache_whose_settings_cannot_be_used_is_named(
    admin_client: Client, setting: dict[str, Any]
) -> None:
    cache = {**caches()["default"], "OPTIONS": {}, **setting}
    with override_settings(CACHES={"default": cache}):
        page = admin_client.get(LIST)

    assert page.status_code == 200
    assert "of the cache 'default'" in text(page)
    assert "pass-word" not in page.content.decode()


@PAGES
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"TIME_OUT": 5}, "unknown option 'TIME_OUT'"),
        ({"CACHE": []}, "a list of them, not []"),
        ({"CACHE": 5}, "a list of them, not 5"),
        ([], "SETNX_LOCK must be a dict"),
    ],
)
def test_settings_that_cannot_be_used_are_named(
    admin_client: Client, page: str, setting: Any, said: str
) -> None:
    with override_settings(SETNX_LOCK=setting):
        response = admin_client.get(page)

    assert response.status_code == 200
    assert said in text(response)
    assert "Correct CACHES or SETNX_LOCK" in text(response)
