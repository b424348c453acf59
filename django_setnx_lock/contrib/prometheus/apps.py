from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _
from prometheus_client import REGISTRY, CollectorRegistry

from .collector import LIMIT, LockCollector
from .metrics import HOLD_BUCKETS, MAX_TEMPLATES, WAIT_BUCKETS, LockMetrics

# Django may call ready() again, as override_settings(INSTALLED_APPS=...) does, and a registry takes
# a metric once.
_made: dict[CollectorRegistry, LockMetrics] = {}


class PrometheusConfig(AppConfig):
    """Counts what locks of this process do, and shows those in Redis; subclass it to change how.

    The attributes are parameters of :class:`LockMetrics` and :class:`LockCollector`.
    """

    name = "django_setnx_lock.contrib.prometheus"
    label = "setnx_lock_prometheus"
    verbose_name = _("Metrics of distributed locks")

    registry = REGISTRY
    caches: ClassVar[Sequence[str]] = ()
    templates: ClassVar[Sequence[str]] = ()
    wait_buckets: ClassVar[Sequence[float]] = WAIT_BUCKETS
    hold_buckets: ClassVar[Sequence[float]] = HOLD_BUCKETS
    max_templates = MAX_TEMPLATES
    limit = LIMIT

    def ready(self) -> None:
        """Begin to count, before the first lock is taken."""
        if self.registry not in _made:
            metrics = _made[self.registry] = LockMetrics(
                self.registry,
                templates=self.templates,
                wait_buckets=self.wait_buckets,
                hold_buckets=self.hold_buckets,
                max_templates=self.max_templates,
            )
            self.registry.register(
                LockCollector(self.caches, templates=lambda: metrics.templates, limit=self.limit)
            )
        self.metrics = _made[self.registry]
        self.metrics.connect()
