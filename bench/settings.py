"""Django settings of the processes that are measured: the app with all its defaults."""

from __future__ import annotations

import os
from typing import Any

from bench.address import POOL_SECONDS, POOL_SIZE, URL_VARIABLE


def cache(**options: Any) -> dict[str, Any]:
    """Return a cache on the server of this run."""
    return {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ.get(URL_VARIABLE, "redis://bench.invalid:6379/0"),
        "OPTIONS": options,
    }


SECRET_KEY = "serves nobody"  # noqa: S105 - these processes serve no requests
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_setnx_lock"]
USE_TZ = True
CACHES = {
    "default": cache(),
    "small": cache(
        CONNECTION_POOL_CLASS="redis.BlockingConnectionPool",
        CONNECTION_POOL_KWARGS={"max_connections": POOL_SIZE, "timeout": POOL_SECONDS},
    ),
}
# Its own for each process.
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
