"""A Django project with all shapes of views, for servers that a test starts.

``DATABASE`` is the path of its database, ``TEST_SERVER_URL`` the Redis of its locks.
"""

from __future__ import annotations

import os
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.management import call_command, execute_from_command_line
from django.core.wsgi import get_wsgi_application

settings.configure(
    SECRET_KEY="only for the tests",
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF="tests.views.shapes",
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django_setnx_lock"],
    MIDDLEWARE=["django_setnx_lock.middleware.LockMiddleware"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ["DATABASE"],
            "ATOMIC_REQUESTS": True,
            "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
        }
    },
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": os.environ["TEST_SERVER_URL"],
        }
    },
    SETNX_LOCK={"REENTRANT": False},
    REST_FRAMEWORK={
        "EXCEPTION_HANDLER": "django_setnx_lock.contrib.rest_framework.exception_handler"
    },
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    ADMINS=["ann@example.com"] if django.VERSION >= (6,) else [("Ann", "ann@example.com")],
    # A mail is text in what the server says.
    EMAIL_BACKEND="django.core.mail.backends.console.EmailBackend",
)
django.setup()
call_command("migrate", verbosity=0, skip_checks=True)

application: Any = get_wsgi_application()
asgi: Any = get_asgi_application()

if __name__ == "__main__":
    execute_from_command_line()
