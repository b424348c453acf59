"""What this process did with locks, in histograms and counters that the signals feed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from ... import signals

if TYPE_CHECKING:
    from django.dispatch import Signal

    from ...core.errors import LockLost

# The label of locks without a template, and of those whose template is one too many.
OTHER = "other"
MAX_TEMPLATES = 200
OUTCOMES = ("acquired", "busy", "unavailable", "released", "lost")
REASONS = ("expired", "forced")
# Seconds. An uncontended lock takes less than a millisecond, a usual wait ends after 10 s.
WAIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
# Seconds. A view holds a lock for milliseconds, a job for an hour.
HOLD_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)


class LockMetrics:
    """The histograms and counters of the locks of this process.

    ``registry``: where they are registered (that of prometheus_client). The label ``template`` has
    at most 200 values; later ones count as ``other``. Raises ValueError if ``registry`` has these
    metrics already.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._wait = Histogram(
            "setnx_lock_wait_seconds",
            "Time from asking for a lock until it was acquired or the caller gave up.",
            ["template"],
            buckets=WAIT_BUCKETS,
            registry=registry,
        )
        self._hold = Histogram(
            "setnx_lock_hold_seconds",
            "Time from acquiring a lock until it was released or found to be lost.",
            ["template"],
            buckets=HOLD_BUCKETS,
            registry=registry,
        )

        def counter(name: str, text: str, *labels: str) -> Counter:
            whole = f"setnx_lock_{name}_total"
            return Counter(whole, text, ["template", *labels], registry=registry)

        text = "Locks acquired, released and lost; callers that gave up (busy) or met an error."
        self._outcomes = counter("outcomes", text, "outcome")
        text = "Locks found to be lost: forced by an operator, or expired."
        self._losses = counter("losses", text, "reason")
        text = "Renewals that came more than a third of the lease too late."
        self._late = counter("late_renewals", text)
        self._templates: dict[str, None] = {}
        self._receivers: Mapping[Signal, Callable[..., None]] = {
            signals.lock_acquired: partial(self._end_wait, "acquired"),
            signals.lock_busy: partial(self._end_wait, "busy"),
            signals.lock_unavailable: partial(self._end_wait, "unavailable"),
            signals.lock_renewed_late: self._renewed_late,
            signals.lock_released: partial(self._end_hold, "released"),
            signals.lock_lost: partial(self._end_hold, "lost"),
        }

    def connect(self) -> None:
        """Begin to count. Until then a lock costs nothing more."""
        for signal, receiver in self._receivers.items():
            signal.connect(receiver, weak=False)

    def disconnect(self) -> None:
        """Count no more. What was counted stays."""
        for signal, receiver in self._receivers.items():
            signal.disconnect(receiver)

    def _end_wait(self, outcome: str, *, template: str, waited: float, **about: Any) -> None:
        label = self._label(template)
        self._wait.labels(label).observe(waited)
        self._outcomes.labels(label, outcome).inc()

    def _renewed_late(self, *, template: str, **about: Any) -> None:
        self._late.labels(self._label(template)).inc()

    def _end_hold(
        self,
        outcome: str,
        *,
        template: str,
        held_for: float,
        error: LockLost | None = None,
        **about: Any,
    ) -> None:
        label = self._label(template)
        self._hold.labels(label).observe(held_for)
        self._outcomes.labels(label, outcome).inc()
        if error is not None:
            self._losses.labels(label, "forced" if error.forced_by else "expired").inc()

    def _label(self, template: str) -> str:
        """Return the value of the label ``template``."""
        if template in self._templates:
            return template
        if template and template != OTHER and len(self._templates) < MAX_TEMPLATES:
            self._templates[template] = None
        else:
            template = OTHER
        # At 0 from the start: increase() sees no rise in a counter that begins with 1.
        for outcome in OUTCOMES:
            self._outcomes.labels(template, outcome)
        for reason in REASONS:
            self._losses.labels(template, reason)
        self._late.labels(template)
        return template
