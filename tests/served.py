"""A Django project with a view that holds a lock, for servers that tests start.

It takes no lock while it is imported, as a project that gunicorn preloads.
"""

from __future__ import annotations

import os
import time
from typing import Any

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    DEBUG_PROPAGATE_EXCEPTIONS=True,
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": os.environ["TEST_SERVER_URL"],
        }
    },
    INSTALLED_APPS=["django_setnx_lock"],
    ROOT_URLCONF=__name__,
)
django.setup()

from django_setnx_lock import lock  # noqa: E402

_inside: list[object] = []


def hold(request: HttpRequest, key: str) -> JsonResponse:
    """Hold ``key`` for so long, twice; tell who was inside at the same time."""
    timeout, seconds = float(request.GET.get("timeout", 30)), float(request.GET["seconds"])
    me = object()
    mine = lock(key, timeout=timeout, blocking_timeout=40)
    with mine as held, lock(key, timeout=timeout) as again:
        began = time.monotonic()
        _inside.append(me)
        time.sleep(seconds)
        inside = len(_inside)
        if "timeout" in request.GET:
            held.check()
        _inside.remove(me)
        return JsonResponse(
            {
                "inside": inside,
                "fence": held.fence,
                "again": again.fence,
                "pid": os.getpid(),
                "began": began,
                "ended": time.monotonic(),
            }
        )


def ping(request: HttpRequest) -> JsonResponse:
    """Answer at once."""
    return JsonResponse({})


urlpatterns = [path("hold/<key>/", hold), path("ping/", ping)]
application: Any = get_wsgi_application()
