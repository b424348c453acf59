"""Spans of locks for OpenTelemetry: ``instrument()``. :doc:`monitoring` lists them."""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, Status, StatusCode

from .. import signals
from ..core.errors import LockBusy, LockUnavailable
from ..core.holder import Holder

_NAME = "django_setnx_lock"
_RECEIVER = f"{_NAME}.contrib.opentelemetry"
_SIGNALS = (
    *(signals.lock_waited, signals.lock_acquired),
    *(signals.lock_released, signals.lock_lost),
)
# In the place of a template where nobody gave one: the word of the semantic conventions.
_OTHER = "_OTHER"
# What came of a wait, by what has ended it. What is no Exception is a cancellation, Ctrl-C, or the
# end of a process or greenlet.
_OUTCOMES: dict[type, str] = {
    type(None): "acquired",
    LockBusy: "busy",
    LockUnavailable: "unavailable",
    Exception: "error",
    BaseException: "cancelled",
}
# So many holds are known at the same time at most: a lock may be thrown away without a release.
_MOST_HOLDS = 10_000


def instrument(
    *,
    tracer_provider: trace.TracerProvider | None = None,
    with_keys: bool = False,
) -> None:
    """Make spans of the locks of this process from now on.

    ``tracer_provider``: what makes the spans (None: the global one, which may be set later).
    ``with_keys``: whether spans carry the key, such as ``order:42``, which may be personal data
    (False). Called again, it replaces what was given before.
    """
    uninstrument()
    spans = _Spans(trace.get_tracer(_NAME, tracer_provider=tracer_provider), with_keys)
    ends = (partial(spans.end_hold, outcome) for outcome in ("released", "lost"))
    for signal, receiver in zip(_SIGNALS, (spans.end_wait, spans.begin_hold, *ends), strict=True):
        signal.connect(receiver, weak=False, dispatch_uid=_RECEIVER)


def uninstrument() -> None:
    """Undo :func:`instrument`. A lock that is held by now gets no span."""
    for signal in _SIGNALS:
        signal.disconnect(dispatch_uid=_RECEIVER)


class _Spans:
    """Makes each span when it ends, with the time at which it began.

    So no span stays open, whatever becomes of a wait or a lock, and each may end in another thread
    than it began in.
    """

    def __init__(self, tracer: trace.Tracer, with_keys: bool) -> None:
        self._tracer = tracer
        self._with_keys = with_keys
        # By key and fence: since when a lock is held, and under which span it was taken. Without a
        # lock of its own, which a fork could leave locked.
        self._holds: OrderedDict[tuple[str, int | None], tuple[float, SpanContext]] = OrderedDict()

    def end_wait(
        self, *, holder: Holder | None, waited: float, error: BaseException | None, **about: Any
    ) -> None:
        outcome = next(name for kind, name in _OUTCOMES.items() if isinstance(error, kind))
        # What names no person.
        shown = {name: getattr(holder, name, None) for name in ("host", "pid", "label")}
        more = {f"setnx_lock.holder.{name}": value for name, value in shown.items() if value}
        # A busy lock is an answer, and a caller that goes away no fault.
        fault = error if outcome in ("unavailable", "error") else None
        self._span("wait", outcome, waited, _current(), more, fault, **about)

    def begin_hold(self, *, key: str, fence: int | None, **about: object) -> None:
        self._holds[key, fence] = time.monotonic(), _current()
        while len(self._holds) > _MOST_HOLDS:
            with suppress(KeyError):
                self._holds.popitem(last=False)

    def end_hold(
        self,
        outcome: str,
        *,
        key: str,
        fence: int | None,
        error: BaseException | None = None,
        **about: Any,
    ) -> None:
        if hold := self._holds.pop((key, fence), None):
            # Not since the lock was asked for, as held_for is.
            (since, parent), more = hold, {} if fence is None else {"setnx_lock.fence": fence}
            seconds = time.monotonic() - since
            self._span("hold", outcome, seconds, parent, more, error, key=key, **about)

    def _span(
        self,
        what: str,
        outcome: str,
        seconds: float,
        parent: SpanContext,
        attributes: dict[str, Any],
        error: BaseException | None,
        *,
        key: str,
        template: str,
        **about: object,
    ) -> None:
        """Make the span of the ``seconds`` that have ended now; ``error``: why it has failed."""
        end, current = time.time_ns(), _current()
        is_elsewhere = current.is_valid and current.span_id != parent.span_id
        attributes["setnx_lock.outcome"] = outcome
        attributes["setnx_lock.template"] = template or _OTHER
        if self._with_keys:
            attributes["setnx_lock.key"] = key
        if error is not None:
            attributes["error.type"] = type(error).__qualname__
        span = self._tracer.start_span(
            f"lock {what} {template}".rstrip(),
            trace.set_span_in_context(NonRecordingSpan(parent)),
            attributes=attributes,
            links=[Link(current)] if is_elsewhere else [],
            start_time=end - round(seconds * 1e9),
        )
        if error is not None:
            # The message names the key.
            span.set_status(Status(StatusCode.ERROR, str(error) if self._with_keys else None))
        span.end(end)


def _current() -> SpanContext:
    return trace.get_current_span().get_span_context()
