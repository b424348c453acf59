"""Settings of the tests: django-redis on the fake, or on a real server where the tests name one.

Not ``REDIS_URL``: the tests empty the server they run on.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from tests.servers import FakeServer

URL = os.environ.get("TEST_SERVER_URL")
# The programs that tests start need none, and start in two thirds of the time without.
if URL is None:
    FAKE = FakeServer()


def caches(url: str | None = None) -> dict[str, dict[str, Any]]:
    """Return CACHES for the real server at ``url``, or for the fake."""
    pool: dict[str, Any] = {}
    if url is None:
        import fakeredis

        pool = {"connection_class": fakeredis.FakeRedisConnection, "server": FAKE.core}
    cache = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": url or "redis://fake.invalid:6379/0",
        "OPTIONS": {"CONNECTION_POOL_KWARGS": pool},
    }
    return {"default": cache}


CACHES = caches(URL)

# A test takes locks for several callers in one thread; programs that it starts may differ.
SETNX_LOCK = {
    "REENTRANT": "TEST_REENTRANT" in os.environ,
}

SECRET_KEY = "only for the tests"
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES: dict[str, dict[str, Any]] = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": ":memory:",
        # In a file each thread of a live server has a connection of its own; in memory they would
        # all share one, and with it one another's transactions.
        "TEST": {"NAME": Path(tempfile.gettempdir(), f"django-setnx-lock-{os.getpid()}.sqlite3")},
        "OPTIONS": {
            "timeout": 20,
            "transaction_mode": "IMMEDIATE",
            # None of its data outlives a test.
            "init_command": "PRAGMA synchronous = OFF",
        },
    }
}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STATIC_URL = "static/"

INSTALLED_APPS = ["django.contrib.contenttypes", "django_setnx_lock", "tests.contrib.fencing"]
# A program that takes locks is to start soon.
if URL is None:
    ROOT_URLCONF = "tests.urls"
    INSTALLED_APPS += [
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.messages",
        "django.contrib.sessions",
        "django.contrib.staticfiles",
        "example_project.shop",
        "tests.rows",
    ]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_setnx_lock.middleware.LockMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
