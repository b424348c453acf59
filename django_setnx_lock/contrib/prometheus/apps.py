from __future__ import annotations

from functools import cache

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _
from prometheus_client import REGISTRY

from .metrics import LockCollector, LockMetrics


class PrometheusConfig(AppConfig):
    """Counts what locks of this process do, and shows those in Redis, in the default registry."""

    name = "django_setnx_lock.contrib.prometheus"
    label = "setnx_lock_prometheus"
    verbose_name = _("Metrics of distributed locks")

    def ready(self) -> None:
        """Begin to count, before the first lock is taken."""
        self.metrics = _made()
        self.metrics.connect()


@cache
def _made() -> LockMetrics:
    # Django may call ready() again, as override_settings(INSTALLED_APPS=...) does, and a registry
    # takes a metric once.
    REGISTRY.register(LockCollector())
    return LockMetrics()
