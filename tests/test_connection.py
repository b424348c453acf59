from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

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
