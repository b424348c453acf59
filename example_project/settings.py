"""Settings of the example project: for a look at the app on one machine, not for a site."""

from __future__ import annotations

from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = "public, as this project serves the local machine only"  # noqa: S105 - see there
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "example_project.urls"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "example_project.shop",  # before the next one, whose page for busy locks it replaces
    "django_setnx_lock",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
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

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": BASE_DIR / "db.sqlite3",
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"


def embedded_cache(number: int) -> dict[str, object]:
    """Return a cache in database ``number`` of the embedded server.

    A site writes ``"LOCATION": "redis://127.0.0.1:6379/1"`` and needs no CONNECTION_FACTORY.
    """
    return {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": f"embedded:///{number}",
        "OPTIONS": {
            "CONNECTION_FACTORY": "example_project.caches.EmbeddedConnectionFactory",
        },
    }


# The locks have a database of their own, so that clearing the cache releases none of them.
CACHES = {"default": embedded_cache(0), "locks": embedded_cache(1)}
SETNX_LOCK = {"CACHE": "locks"}

STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "UTC"
