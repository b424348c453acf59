from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django_redis.client import DefaultClient

from django_setnx_lock.connection import get_client, redis_aliases

REDIS = "django_redis.cache.RedisCache"
LOCAL = "django.core.cache.backends.locmem.LocMemCache"
CACHES = {
    "nowhere in particular": {"BACKEND": REDIS},
    "default": {"BACKEND": LOCAL},
    "first": {"BACKEND": REDIS, "LOCATION": "redis://h/0"},
    "second": {"BACKEND": REDIS, "LOCATION": "redis://h/1"},
    "shards": {
        "BACKEND": REDIS,
        "LOCATION": ["redis://a", "redis://b"],
        "OPTIONS": {"CLIENT_CLASS": "django_redis.client.ShardClient"},
    },
}


def test_the_client_is_that_of_the_configured_alias() -> None:
    with override_settings(CACHES=CACHES, SETNX_LOCK={"CACHE": "second"}):
        client = get_client()

    assert client.get_connection_kwargs()["db"] == 1


def test_an_alias_can_be_named_instead() -> None:
    with override_settings(CACHES=CACHES, SETNX_LOCK={"CACHE": "second"}):
        client = get_client("first")

    assert client.get_connection_kwargs()["db"] == 0


class Rotating(DefaultClient):  # type: ignore[misc] # it is untyped
    """Gives the client of another server each time."""

    turns = 0

    def get_next_client_index(self, write: bool = True, tried: list[int] | None = None) -> int:
        self.turns += 1
        return self.turns % len(self._server)


def moved(database: int) -> dict[str, Any]:
    """Return CACHES whose default is another database."""
    return {"default": {"BACKEND": REDIS, "LOCATION": f"redis://h/{database}"}}


def database(client: Any) -> int:
    found: int = client.get_connection_kwargs()["db"]
    return found


def test_the_client_is_the_one_that_django_has_in_this_thread() -> None:
    def both() -> tuple[Any, Any]:
        return get_client("first"), caches["first"].client.get_client()  # type: ignore[attr-defined] # BaseCache has none

    with override_settings(CACHES=CACHES), ThreadPoolExecutor(1) as other:
        get_client("first")
        ours, theirs = other.submit(both).result(10)

    assert ours is theirs


def test_caches_that_have_changed_are_found_anew() -> None:
    with override_settings(CACHES=moved(1)):
        before = get_client()
        with override_settings(CACHES=moved(2)):
            meanwhile = get_client()
        after = get_client()

    assert [database(client) for client in (before, meanwhile, after)] == [1, 2, 1]


def test_other_threads_find_changed_caches_anew_too() -> None:
    with ThreadPoolExecutor(1) as other:
        with override_settings(CACHES=moved(1)):
            before = other.submit(get_client).result(10)
        with override_settings(CACHES=moved(2)):
            after = other.submit(get_client).result(10)

    assert (database(before), database(after)) == (1, 2)


def test_an_alias_that_is_gone_is_refused_though_it_was_used() -> None:
    with override_settings(CACHES=CACHES):
        get_client("first")

    with pytest.raises(ImproperlyConfigured, match="no cache 'first' in CACHES"):
        get_client("first")


def test_a_client_class_may_choose_the_server_each_time() -> None:
    rotating = {
        "BACKEND": REDIS,
        "LOCATION": ["redis://h/1", "redis://h/2"],
        "OPTIONS": {"CLIENT_CLASS": f"{__name__}.{Rotating.__qualname__}"},
    }
    with override_settings(CACHES={"default": rotating}):
        databases = [database(get_client()) for _ in range(4)]

    assert databases == [2, 1, 2, 1]


@pytest.mark.parametrize(
    ("alias", "message"),
    [
        ("nowhere", "no cache 'nowhere' in CACHES"),
        ("default", "'default' is not a django-redis cache"),
        ("shards", "'shards' is sharded"),
        ("nowhere in particular", "has no LOCATION: write for example redis://"),
    ],
)
def test_an_alias_that_cannot_hold_locks_is_refused(alias: str, message: str) -> None:
    with (
        override_settings(CACHES=CACHES),
        pytest.raises(ImproperlyConfigured, match=message),
    ):
        get_client(alias)


def test_the_usable_aliases_come_with_the_configured_one_first() -> None:
    with override_settings(CACHES=CACHES, SETNX_LOCK={"CACHE": "second"}):
        aliases = redis_aliases()

    assert aliases == ["second", "first"]
