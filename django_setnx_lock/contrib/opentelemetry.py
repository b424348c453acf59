"""Spans and metrics of locks for OpenTelemetry: ``instrument()``. :doc:`tracing` lists them."""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import suppress
from typing import Any, NamedTuple

from opentelemetry import metrics, trace
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, Status, StatusCode

from .. import signals
from ..core.errors import LockBusy, LockUnavailable
from ..core.holder import Holder

_NAME = "django_setnx_lock"
_RECEIVER = f"{_NAME}.contrib.opentelemetry"
# In the place of a template where nobody gave one: the word of the semantic conventions.
_OTHER = "_OTHER"
# Those of the semantic conventions, and longer ones: some locks are held for minutes.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300)
# So many holds are known at the same time at most: a lock may be thrown away without a release.
_MOST_HOLDS = 10_000

_active: list[_Instruments] = []


def instrument(
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    with_keys: bool = False,
) -> None:
    """Make spans and metrics of the locks of this process from now on.

    ``tracer_provider`` and ``meter_provider``: who gets them (None: the global ones, which may be
    set later). ``with_keys``: whether spans carry the key, such as ``order:42``, which may be
    personal data (False). Called again, it replaces what was given before.
    """
    uninstrument()
    made = _Instruments(
        trace.get_tracer(_NAME, tracer_provider=tracer_provider),
        metrics.get_meter(_NAME, meter_provider=meter_provider),
        with_keys=with_keys,
    )
    _active.append(made)
    for signal, receiver in made.receivers.items():
        signal.connect(receiver, weak=False, dispatch_uid=_RECEIVER)


def uninstrument() -> None:
    """Undo :func:`instrument`. A lock that is held by now gets no span."""
    while _active:
        for signal in _active.pop().receivers:
            signal.disconnect(dispatch_uid=_RECEIVER)


class _Hold(NamedTuple):
    """Since when a lock is held, on the monotonic clock, and the span under which it was taken."""

    since: float
    parent: SpanContext


class _Instruments:
    """Makes the spans and metrics.

    A span is made when it ends, with the time at which it began. So no span stays open, whatever
    becomes of a wait or a lock, and each may end in another thread than it began in.
    """

    def __init__(self, tracer: trace.Tracer, meter: metrics.Meter, *, with_keys: bool) -> None:
        self._tracer = tracer
        self._with_keys = with_keys
        # By key and fence. Without a lock of its own, which a fork could leave locked.
        self._holds: OrderedDict[tuple[str, int | None], _Hold] = OrderedDict()
        self._wait_duration = meter.create_histogram(
            "setnx_lock.wait.duration",
            unit="s",
            description="Time from asking for a lock until it was acquired, or given up.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._hold_duration = meter.create_histogram(
            "setnx_lock.hold.duration",
            unit="s",
            description="Time from acquiring a lock until it was released, or found to be lost.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._acquisitions = meter.create_counter(
            "setnx_lock.acquisitions",
            unit="{acquisition}",
            description="Callers that asked for a lock, by what came of it.",
        )
        self.receivers = {
            signals.lock_waited: self._on_waited,
            signals.lock_acquired: self._on_acquired,
            signals.lock_busy: self._on_busy,
            signals.lock_unavailable: self._on_unavailable,
            signals.lock_released: self._on_released,
            signals.lock_lost: self._on_lost,
        }

    def _on_waited(
        self,
        *,
        key: str,
        template: str,
        holder: Holder | None,
        waited: float,
        error: BaseException | None,
        **about: object,
    ) -> None:
        outcome = _outcome(error)
        attributes = {"setnx_lock.outcome": outcome, **_blocker(holder)}
        # A busy lock is an answer, and a caller that goes away no fault.
        fault = error if outcome in ("unavailable", "error") else None
        self._span("wait", key, template, waited, attributes, fault)
        if outcome in ("cancelled", "error"):
            # Of the others there is another signal.
            self._count(template, outcome, waited)

    def _on_acquired(
        self, *, key: str, template: str, fence: int | None, waited: float, **about: object
    ) -> None:
        parent = trace.get_current_span().get_span_context()
        self._holds[key, fence] = _Hold(time.monotonic(), parent)
        while len(self._holds) > _MOST_HOLDS:
            with suppress(KeyError):
                self._holds.popitem(last=False)
        self._count(template, "acquired", waited)

    def _on_busy(self, *, template: str, waited: float, **about: object) -> None:
        self._count(template, "busy", waited)

    def _on_unavailable(self, *, template: str, waited: float, **about: object) -> None:
        self._count(template, "unavailable", waited)

    def _on_released(self, **about: Any) -> None:
        self._end_hold("released", **about)

    def _on_lost(self, **about: Any) -> None:
        self._end_hold("lost", **about)

    def _end_hold(
        self,
        outcome: str,
        *,
        key: str,
        template: str,
        fence: int | None,
        held_for: float,
        error: BaseException | None = None,
        **about: object,
    ) -> None:
        self._hold_duration.record(held_for, _labels(template, outcome))
        hold = self._holds.pop((key, fence), None)
        if hold is not None:
            attributes: dict[str, str | int] = {"setnx_lock.outcome": outcome}
            if fence is not None:
                attributes["setnx_lock.fence"] = fence
            seconds = time.monotonic() - hold.since
            self._span("hold", key, template, seconds, attributes, error, hold.parent)

    def _count(self, template: str, outcome: str, waited: float) -> None:
        labels = _labels(template, outcome)
        self._wait_duration.record(waited, labels)
        self._acquisitions.add(1, labels)

    def _span(
        self,
        what: str,
        key: str,
        template: str,
        seconds: float,
        attributes: dict[str, str | int],
        error: BaseException | None,
        parent: SpanContext | None = None,
    ) -> None:
        """Make the span of the ``seconds`` that have ended now.

        ``error``: why it has failed. ``parent``: None for the current span.
        """
        end = time.time_ns()
        context, links = None, []
        if parent is not None:
            context = trace.set_span_in_context(NonRecordingSpan(parent))
            current = trace.get_current_span().get_span_context()
            if current.is_valid and current.span_id != parent.span_id:
                links.append(Link(current))
        attributes["setnx_lock.template"] = template or _OTHER
        if self._with_keys:
            attributes["setnx_lock.key"] = key
        if error is not None:
            attributes["error.type"] = type(error).__qualname__
        span = self._tracer.start_span(
            f"lock {what} {template}".rstrip(),
            context,
            attributes=attributes,
            links=links,
            start_time=end - round(seconds * 1e9),
        )
        if error is not None:
            # The message names the key.
            span.set_status(Status(StatusCode.ERROR, str(error) if self._with_keys else None))
        span.end(end)


def _outcome(error: BaseException | None) -> str:
    """Return what came of a wait that ``error`` has ended."""
    if error is None:
        return "acquired"
    if isinstance(error, LockBusy):
        return "busy"
    if isinstance(error, LockUnavailable):
        return "unavailable"
    # What is no Exception is a cancellation, Ctrl-C, or the end of a process or greenlet.
    return "error" if isinstance(error, Exception) else "cancelled"


def _labels(template: str, outcome: str) -> dict[str, str]:
    return {"setnx_lock.template": template or _OTHER, "setnx_lock.outcome": outcome}


def _blocker(holder: Holder | None) -> dict[str, str | int]:
    """Return what of the record of a ``holder`` names no person."""
    if holder is None:
        return {}
    found: dict[str, str | int]
    found = {"host": holder.host, "pid": holder.pid, "label": holder.label}
    return {f"setnx_lock.holder.{name}": value for name, value in found.items() if value}
