"""What stands in Redis at the moment of a scrape, as gauges."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence

from django.core.exceptions import ImproperlyConfigured
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ...conf import get_config
from ...connection import aliases_in, get_client
from ...core.connections.cluster import ClusterSession
from ...core.errors import LockUnavailable
from ...core.protocol.keys import name_for
from ...key_template import template_of
from ...locks import inspector, key_prefix
from .metrics import OTHER

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

    states: Counter[tuple[str, str]] = Counter()
    waiters: dict[str, float] = {}
    oldest: dict[str, float] = {}
    longest: dict[str, float] = {}
    for one in seen.locks:
        template = template_of(one.key) or OTHER
        # Where one reader of several is gone, it is both read and holder gone.
        states.update((template, state.slug) for state in one.states)
        waiters[template] = waiters.get(template, 0) + one.waiting
        oldest[template] = max(oldest.get(template, 0.0), one.longest_hold)
        longest[template] = max(longest.get(template, 0.0), one.longest_wait or 0.0)
    found["listed_locks"].add_metric([cache], seen.total)
    found["truncated"].add_metric([cache], float(seen.is_cut))
    for (template, state), count in states.items():
        found["locks"].add_metric([cache, template, state], count)
    for template, waiting in waiters.items():
        found["waiters"].add_metric([cache, template], waiting)
        found["longest_wait_seconds"].add_metric([cache, template], longest[template])
        found["oldest_hold_seconds"].add_metric([cache, template], oldest[template])
