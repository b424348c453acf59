"""A view with all metrics, which also works where several processes serve."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from django.apps import apps
from django.http import HttpRequest, HttpResponse
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

if TYPE_CHECKING:
    from .apps import PrometheusConfig


def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics of this process, and the gauges of the locks in Redis.

    In the multiprocess mode of prometheus_client, which ``PROMETHEUS_MULTIPROC_DIR`` turns on,
    the metrics of all processes. Raises LookupError if the app is not installed.
    """
    config = cast("PrometheusConfig", apps.get_app_config("setnx_lock_prometheus"))
    registry = config.registry
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]  # it has no types
        # That mode leaves out what asks at each scrape.
        registry.register(config.collector)
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(registry), content_type=content_type)
