"""A Django project whose locks are counted, for servers that tests start."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from typing import Any

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": os.environ["TEST_SERVER_URL"],
        }
    },
    INSTALLED_APPS=["django_setnx_lock", "django_setnx_lock.contrib.prometheus"],
    ROOT_URLCONF=__name__,
)
django.setup()

from django_setnx_lock import (  # noqa: E402
    LockLost,
    inspector,
    lock,
    redis_lock,
)
from django_setnx_lock.contrib.prometheus import LockCollector  # noqa: E402


def metrics(request: HttpRequest) -> HttpResponse:
    """Expose the metrics, as docs/monitoring.md says."""
    registry = REGISTRY
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # it has no types
        registry.register(LockCollector())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def process(request: HttpRequest) -> JsonResponse:
    """Say which process answers."""
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


urlpatterns = [
    path("", process),
    path("pay/<pk>/", pay),
    path("lose/<pk>/", lose),
    path("metrics/", metrics),
]
if importlib.util.find_spec("django_prometheus"):
    from django_prometheus.exports import ExportToDjangoView

    def exported(request: HttpRequest) -> HttpResponse:
        """Answer as the view of django-prometheus does."""
        answer: HttpResponse = ExportToDjangoView(request)
        return answer

    urlpatterns.append(path("django-prometheus/", exported))
application: Any = get_wsgi_application()
