"""A Django project for servers that tests start: shapes of views, a lock that stays, and metrics.

``TEST_SERVER_URL`` is the Redis of its locks; ``DATABASE`` the path of its database, if it has one.
It takes no lock while it is imported, as a project that gunicorn preloads.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import time
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.management import call_command, execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

DATABASE = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": os.environ.get("DATABASE"),
    "ATOMIC_REQUESTS": True,
    "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
}
settings.configure(
    SECRET_KEY="only for the tests",
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=[
        *("django.contrib.contenttypes", "django.contrib.auth"),
        *("django_setnx_lock", "django_setnx_lock.contrib.prometheus"),
    ],
    MIDDLEWARE=["django_setnx_lock.middleware.LockMiddleware"],
    DATABASES={"default": DATABASE} if DATABASE["NAME"] else {},
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
    # What is mailed is text in what the server says.
    EMAIL_BACKEND="django.core.mail.backends.console.EmailBackend",
)
django.setup()

from prometheus_client import (  # noqa: E402
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector  # noqa: E402

from django_setnx_lock import LockLost, inspector, lock, redis_lock  # noqa: E402
from django_setnx_lock.contrib.prometheus import LockCollector  # noqa: E402

_inside: list[object] = []


def hold(request: HttpRequest, key: str) -> JsonResponse:
    """Hold ``key`` for so long, twice; tell who was inside at the same time."""
    timeout, seconds = float(request.GET.get("timeout", 30)), float(request.GET["seconds"])
    me = object()
    mine = lock(key, timeout=timeout, blocking_timeout=40, reentrant=True)
    with mine as held, mine as again:
        began = time.monotonic()
        _inside.append(me)
        time.sleep(seconds)
        inside = len(_inside)
        if "timeout" in request.GET:
            held.check()
        _inside.remove(me)
        answer = {"inside": inside, "fence": held.fence, "again": again.fence, "pid": os.getpid()}
        return JsonResponse({**answer, "began": began, "ended": time.monotonic()})


def process(request: HttpRequest) -> JsonResponse:
    """Say at once which process answers."""
    return JsonResponse({"pid": os.getpid()})


@redis_lock("order:<pk>", blocking_timeout=0)
def pay(request: HttpRequest, pk: str) -> JsonResponse:
    """Hold the lock for a moment; 409 if somebody else has it."""
    return process(request)


def lose(request: HttpRequest, pk: str) -> JsonResponse:
    """Take the lock, and have an operator take it away."""
    held = lock(f"order:{pk}").take()
    inspector().force_release(held.name, inspector().get(held.name).fingerprint, by="anna")
    with contextlib.suppress(LockLost):
        held.check()
    return process(request)


def metrics(request: HttpRequest) -> HttpResponse:
    """Expose the metrics, as docs/monitoring.md says."""
    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # it has no types
        registry.register(LockCollector())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


urlpatterns = [
    path("", process),
    path("hold/<key>/", hold),
    path("pay/<pk>/", pay),
    path("lose/<pk>/", lose),
    path("metrics/", metrics),
]
if DATABASE["NAME"]:
    call_command("migrate", verbosity=0, skip_checks=True)
    from tests.views import shapes

    urlpatterns += shapes.urlpatterns
if importlib.util.find_spec("django_prometheus"):
    from django_prometheus.exports import ExportToDjangoView

    def exported(request: HttpRequest) -> HttpResponse:
        """Answer as the view of django-prometheus does."""
        answer: HttpResponse = ExportToDjangoView(request)
        return answer

    urlpatterns.append(path("django-prometheus/", exported))

application: Any = get_wsgi_application()
asgi: Any = get_asgi_application()

if __name__ == "__main__":
    execute_from_command_line()
