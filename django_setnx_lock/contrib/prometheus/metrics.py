"""What this process did with locks, as signals tell it, and what stands in Redis at a scrape."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import prometheus_client as prometheus
from django.core.exceptions import ImproperlyConfigured
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ... import signals
from ...conf import get_config
from ...connection import aliases_in, get_client
from ...core.connections.cluster import ClusterSession
from ...core.errors import LockUnavailable
from ...core.protocol.keys import name_for
from ...key_template import template_of
from ...locks import inspector, key_prefix

if TYPE_CHECKING:
    from django.dispatch import Signal

    from ...core.inspection.lock_info import LockInfo

# The label of locks without a template, and of those whose template is one too many.
OTHER = "other"
MAX_TEMPLATES = 200
OUTCOMES = ("acquired", "busy", "unavailable", "released", "lost")
REASONS = ("expired", "forced")
# Seconds. An uncontended lock takes less than a millisecond, a usual wait ends after 10 s.
WAIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
# Seconds. A view holds a lock for milliseconds, a job for an hour.
HOLD_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
# At how many locks of a cache a scrape looks.
LIMIT = 1_000
# For so many seconds Redis is waited for: a scrape has ten.
_PATIENCE = 2.0

_HELP = {
    "up": ("Whether Redis said what locks there are: 1 or 0.", ()),
    "listed_locks": ("Locks in the index, counted by Redis.", ()),
    "truncated": ("Whether more locks are listed than were looked at: 1 or 0.", ()),
    "locks": ("Locks by state.", ("template", "state")),
    "waiters": ("Callers that wait in a queue.", ("template",)),
    "longest_wait_seconds": ("Time for which the first in a queue has waited.", ("template",)),
    "oldest_hold_seconds": ("Time for which the oldest holder has had its lock.", ("template",)),
    "collect_seconds": ("Time that it took to ask Redis.", ()),
}


class LockMetrics:
    """The histograms and counters of the locks of this process.

    ``registry``: where they are registered (that of prometheus_client). The label ``template`` has
    at most 200 values; later ones count as ``other``. Raises ValueError if ``registry`` has these
    metrics already.
    """

    def __init__(self, registry: prometheus.CollectorRegistry = prometheus.REGISTRY) -> None:
        def made(kind: Any, name: str, text: str, *labels: str, **options: Any) -> Any:
            labels = ("template", *labels)
            return kind(f"setnx_lock_{name}", text, labels, registry=registry, **options)

        text = "Time from asking for a lock until it was acquired or the caller gave up."
        wait = made(prometheus.Histogram, "wait_seconds", text, buckets=WAIT_BUCKETS), "waited"
        text = "Time from acquiring a lock until it was released or found to be lost."
        hold = made(prometheus.Histogram, "hold_seconds", text, buckets=HOLD_BUCKETS), "held_for"
        text = "Locks acquired, released and lost; callers that gave up (busy) or met an error."
        self._outcomes = made(prometheus.Counter, "outcomes_total", text, "outcome")
        text = "Locks found to be lost: forced by an operator, or expired."
        self._losses = made(prometheus.Counter, "losses_total", text, "reason")
        text = "Renewals that came more than a third of the lease too late."
        self._late = made(prometheus.Counter, "late_renewals_total", text)
        self._templates: set[str] = set()
        self._receivers: Mapping[Signal, Callable[..., None]] = {
            signals.lock_acquired: partial(self._count, "acquired", *wait),
            signals.lock_busy: partial(self._count, "busy", *wait),
            signals.lock_unavailable: partial(self._count, "unavailable", *wait),
            signals.lock_released: partial(self._count, "released", *hold),
            signals.lock_lost: partial(self._count, "lost", *hold),
            signals.lock_renewed_late: self._count_late,
        }

    def connect(self) -> None:
        """Begin to count. Until then a lock costs nothing more."""
        for signal, receiver in self._receivers.items():
            signal.connect(receiver, weak=False)

    def disconnect(self) -> None:
        """Count no more. What was counted stays."""
        for signal, receiver in self._receivers.items():
            signal.disconnect(receiver)

    def _count(
        self, outcome: str, times: prometheus.Histogram, timed: str, *, template: str, **about: Any
    ) -> None:
        label = self._label(template)
        times.labels(label).observe(about[timed])
        self._outcomes.labels(label, outcome).inc()
        if outcome == "lost":
            self._losses.labels(label, "forced" if about["error"].forced_by else "expired").inc()

    def _count_late(self, *, template: str, **about: Any) -> None:
        self._late.labels(self._label(template)).inc()

    def _label(self, template: str) -> str:
        """Return the value of the label ``template``."""
        if template in self._templates:
            return template
        if template and template != OTHER and len(self._templates) < MAX_TEMPLATES:
            self._templates.add(template)
        else:
            template = OTHER
        # At 0 from the start: increase() sees no rise in a counter that begins with 1.
        for outcome in OUTCOMES:
            self._outcomes.labels(template, outcome)
        for reason in REASONS:
            self._losses.labels(template, reason)
        self._late.labels(template)
        return template


class LockCollector(Collector):
    """Gauges of all locks of the project, from Redis at each scrape.

    ``caches``: aliases of the caches with locks (those of the setting ``CACHE``). ``limit``: at how
    many locks of each cache a scrape looks at most, half of them those whose leases end first, half
    those whose leases end last; Redis and the scrape have no more work however many locks there are
    (1000).

    Where Redis does not answer, ``setnx_lock_up`` is 0 and nothing is raised.
    """

    def __init__(self, caches: Sequence[str] = (), *, limit: int = LIMIT) -> None:
        self._caches = caches
        self._limit = limit

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics without values, so that to register them asks no server."""
        return _families().values()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics as they are now."""
        found = _families()
        for cache in self._caches or aliases_in(get_config()["CACHE"]):
            began = time.perf_counter()
            is_up = 1.0
            try:
                _look(cache, self._limit, found)
            except (LockUnavailable, ImproperlyConfigured):
                is_up = 0.0
            found["up"].add_metric([cache], is_up)
            found["collect_seconds"].add_metric([cache], time.perf_counter() - began)
        return found.values()


def _families() -> dict[str, GaugeMetricFamily]:
    return {
        name: GaugeMetricFamily(f"setnx_lock_{name}", says, labels=["cache", *labels])
        for name, (says, labels) in _HELP.items()
    }


def _look(cache: str, limit: int, found: dict[str, GaugeMetricFamily]) -> None:
    """Add what is known of the locks in ``cache``. Raises LockUnavailable, ImproperlyConfigured."""
    client = get_client(cache)
    if ClusterSession.suits(client) or get_config()["PROTOCOL"] == "hosted":
        # To find the locks would take a look at every key there is.
        inspector(cache).get(name_for(key_prefix(), "up"))
        return
    seen = inspector(cache).find(limit, within=_PATIENCE)
    found["listed_locks"].add_metric([cache], seen.total)
    found["truncated"].add_metric([cache], float(seen.is_cut))
    by_template: defaultdict[str, list[LockInfo]] = defaultdict(list)
    for lock in seen.locks:
        by_template[template_of(lock.key) or OTHER].append(lock)
    for template, locks in by_template.items():
        figures = {
            "waiters": sum(lock.waiting for lock in locks),
            "longest_wait_seconds": max(lock.longest_wait or 0.0 for lock in locks),
            "oldest_hold_seconds": max(lock.longest_hold for lock in locks),
        }
        for name, value in figures.items():
            found[name].add_metric([cache, template], value)
        # Where one reader of several is gone, it is both read and holder gone.
        states = Counter(state.slug for lock in locks for state in lock.states)
        for state, count in states.items():
            found["locks"].add_metric([cache, template, state], count)
