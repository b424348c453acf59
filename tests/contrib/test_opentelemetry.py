from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import redis
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, Tracer

from django_setnx_lock import (
    KeyTemplate,
    LockBusy,
    LockLost,
    LockUnavailable,
    inspector,
    lock,
    signals,
)
from django_setnx_lock.contrib.opentelemetry import instrument, uninstrument
from django_setnx_lock.core import RedisLock, Redlock
from tests.processes import eventually, run, until
from tests.servers import ONCE, FakeServer
from tests.support.seams import any_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

SIGNALS = (
    signals.lock_waiting,
    signals.lock_waited,
    signals.lock_acquired,
    signals.lock_released,
    signals.lock_lost,
    signals.lock_busy,
)

pytestmark = pytest.mark.usefixtures("real_cache")


def an_x(value: str = "a") -> str:
    return KeyTemplate("<x>").format(x=value)


class Recorded:
    """What was exported of locks, and the tracer of a project that uses them."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = self.tracers.get_tracer("a project")

    def spans(self, name: str = "lock ") -> list[ReadableSpan]:
        """Return the spans whose names begin so, in the order in which they ended."""
        found = self._exporter.get_finished_spans()
        return [span for span in found if span.name.startswith(name)]

    def span(self, name: str) -> ReadableSpan:
        (found,) = self.spans(name)
        return found

    def all_that_was_said(self) -> str:
        return str([span.to_json() for span in self._exporter.get_finished_spans()])


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    """Give what locks export while they are instrumented."""
    found = Recorded()
    instrument(tracer_provider=found.tracers)
    yield found
    uninstrument()
    found.tracers.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def id_of(span: Any) -> int:
    return int(span.get_span_context().span_id)


@pytest.fixture
def waiting() -> Iterator[list[str]]:
    """Give the keys that somebody has begun to wait for."""
    keys: list[str] = []

    def note(*, key: str, **about: object) -> None:
        keys.append(key)

    signals.lock_waiting.connect(note)
    yield keys
    signals.lock_waiting.disconnect(note)


def test_a_lock_that_was_free_has_a_span_of_its_hold_and_none_of_a_wait(recorded: Recorded) -> None:
    with lock(an_x()) as held:
        pass

    (span,) = recorded.spans()
    assert span.name == "lock hold <x>"
    assert attributes(span) == {
        "setnx_lock.template": "<x>",
        "setnx_lock.outcome": "released",
        "setnx_lock.fence": held.fence,
    }
    assert span.status.status_code is StatusCode.UNSET


def test_a_wait_tells_whom_it_waited_for_and_ends_before_the_hold_in_the_same_span(
    recorded: Recorded, waiting: list[str]
) -> None:
    holder = lock(KeyTemplate("<first>").format(first="a"), label="view pay").take()
    record = inspector().get("lock:a").holder

    def work() -> int:
        with recorded.tracer.start_as_current_span("request") as request, lock(an_x()):
            return id_of(request)

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(work)
        eventually(lambda: waiting)
        holder.release()
        request = result.result(20)

    waited, held = recorded.span("lock wait <x>"), recorded.span("lock hold <x>")
    assert record is not None
    assert attributes(waited) == {
        "setnx_lock.template": "<x>",
        "setnx_lock.outcome": "acquired",
        "setnx_lock.holder.label": "view pay",
        "setnx_lock.holder.host": record.host,
        "setnx_lock.holder.pid": record.pid,
    }
    assert (parent_of(waited), parent_of(held)) == (request, request)
    assert (waited.start_time or 0) < (waited.end_time or 0)
    # The two are reckoned by two clocks.
    assert (held.start_time or 0) - (waited.end_time or 0) > -1_000_000


def test_each_task_has_its_own_parents(recorded: Recorded) -> None:
    async def work(name: str) -> int:
        with recorded.tracer.start_as_current_span(name) as request:
            async with lock(KeyTemplate(f"<{name}>").format(**{name: "a"})):
                await asyncio.sleep(0.01)
            return id_of(request)

    async def both() -> list[int]:
        return [*await asyncio.gather(work("x"), work("y"))]

    requests = run(both())

    found = [parent_of(recorded.span(f"lock hold <{name}>")) for name in "xy"]
    assert found == requests
    (waited,) = recorded.spans("lock wait")
    assert parent_of(waited) == requests[["<x>", "<y>"].index(waited.name.split()[-1])]


def test_a_lock_that_is_released_elsewhere_is_a_child_of_where_it_was_taken(
    recorded: Recorded,
) -> None:
    def release() -> int:
        with recorded.tracer.start_as_current_span("job") as job:
            held.release()
            return id_of(job)

    with recorded.tracer.start_as_current_span("request") as request:
        held = lock("a").take()
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(release).result(20)

    span = recorded.span("lock hold")
    assert parent_of(span) == id_of(request)
    assert [link.context.span_id for link in span.links] == [job]


@pytest.mark.parametrize("finds", ["the holder", "the renewal"])
def test_a_lock_that_is_lost_ends_its_span_with_an_error(
    recorded: Recorded, real_cache: RealServer, finds: str
) -> None:
    with recorded.tracer.start_as_current_span("request") as request:
        held = lock(an_x(), timeout=0.3 if finds == "the renewal" else 30).take()
    real_cache.client().delete("lock:a")

    if finds == "the holder":
        with pytest.raises(LockLost):
            held.check()
    else:
        eventually(lambda: recorded.spans("lock hold"))

    span = recorded.span("lock hold <x>")
    assert parent_of(span) == id_of(request)
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["setnx_lock.outcome"] == "lost"
    assert attributes(span)["error.type"] == "LockLost"


def give_up(waiting: list[str], proxy: Proxy) -> None:
    with pytest.raises(LockBusy):
        lock("a").take(0.05)


def cancel(waiting: list[str], proxy: Proxy) -> None:
    async def work() -> None:
        task = asyncio.ensure_future(lock("a").atake(20))
        await until(lambda: waiting)
        task.cancel()
        await asyncio.wait([task])

    run(work())


def cut_off(waiting: list[str], proxy: Proxy) -> None:
    with redis.Redis(port=proxy.port, retry=ONCE) as client, ThreadPoolExecutor(1) as pool:
        taken = pool.submit(RedisLock(client, "lock:a", key=an_x()).take, 20)
        eventually(lambda: waiting)
        proxy.refuse()
        assert isinstance(taken.exception(20), LockUnavailable)


@pytest.mark.parametrize(
    ("end", "outcome", "error"),
    [
        (give_up, "busy", None),
        (cancel, "cancelled", None),
        (cut_off, "unavailable", "LockUnavailable"),
    ],
)
def test_the_span_of_a_wait_tells_how_it_ended_and_an_outage_alone_is_an_error(
    recorded: Recorded,
    proxy: Proxy,
    waiting: list[str],
    end: Callable[[list[str], Proxy], None],
    outcome: str,
    error: str | None,
) -> None:
    with lock("a"):
        end(waiting, proxy)

    span = recorded.span("lock wait")
    assert attributes(span)["setnx_lock.outcome"] == outcome
    assert attributes(span).get("error.type") == error
    assert span.status.status_code is (StatusCode.ERROR if error else StatusCode.UNSET)


def test_each_of_several_keys_has_its_span(recorded: Recorded) -> None:
    with lock(an_x(), an_x("b")):
        pass

    assert [span.name for span in recorded.spans()] == ["lock hold <x>"] * 2


def test_a_holder_that_leaves_no_record_is_not_named(
    recorded: Recorded, real_cache: RealServer
) -> None:
    with real_cache.client() as client:
        client.set("lock:of no template", "of somebody else", px=200)

    lock("of no template").take(20).release()

    assert attributes(recorded.span("lock wait")) == {
        "setnx_lock.template": "_OTHER",
        "setnx_lock.outcome": "acquired",
    }


def test_a_redlock_has_a_span_without_a_fence(recorded: Recorded) -> None:
    clients = [FakeServer().client() for _ in range(3)]

    with recorded.tracer.start_as_current_span("request") as request:
        Redlock(clients, "lock:a", names=["x", "y", "z"], master_timeout=9).take().release()

    span = recorded.span("lock hold")
    assert parent_of(span) == id_of(request)
    assert "setnx_lock.fence" not in attributes(span)


def befall() -> list[str]:
    """Have locks waited for, held and lost; return their tokens."""
    of_bob = KeyTemplate("order:<pk>").format(pk="of-bob")
    holder = any_lock(of_bob, user="ann@example.org", note="of ann").take()
    with pytest.raises(LockBusy):
        lock(of_bob).take(0.05)
    fingerprint = inspector().get("lock:order:of-bob").fingerprint
    inspector().force_release("lock:order:of-bob", fingerprint, by="ann@example.org")
    with pytest.raises(LockLost):
        holder.check()
    with lock(of_bob) as held:
        return [holder.token, held.token]


@pytest.mark.parametrize("with_keys", [False, True])
def test_no_token_is_told_and_keys_and_persons_only_where_that_is_asked_for(
    recorded: Recorded, with_keys: bool
) -> None:
    instrument(tracer_provider=recorded.tracers, with_keys=with_keys)

    tokens = befall()

    said = recorded.all_that_was_said()
    keys = {attributes(span).get("setnx_lock.key") for span in recorded.spans()}
    assert keys == {"order:of-bob" if with_keys else None}
    assert "order:<pk>" in said
    # The text of an error names who has forced the lock.
    assert [text in said for text in ("of-bob", "ann@example.org")] == [with_keys] * 2
    assert [text for text in [*tokens, "of ann"] if text in said] == []


def test_it_counts_once_and_can_be_undone(recorded: Recorded) -> None:
    instrument(tracer_provider=recorded.tracers)
    with lock("a"):
        pass
    held = lock("a").take()
    uninstrument()

    held.release()
    with lock("b"):
        pass

    assert len(recorded.spans()) == 1
    assert not any(signal.has_listeners(RedisLock) for signal in SIGNALS)


GLOBAL = """
import django
from opentelemetry import metrics, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from django_setnx_lock.contrib.opentelemetry import instrument

instrument()
django.setup()
spans = InMemorySpanExporter()
tracers = TracerProvider()
tracers.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(tracers)

from django_setnx_lock import lock

with lock("a"):
    pass
print([span.name for span in spans.get_finished_spans()])
"""


@pytest.mark.matrix
def test_the_global_provider_may_be_set_later() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GLOBAL],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"},
    )

    assert done.stderr == ""
    assert done.stdout == "['lock hold']\n"


def test_a_lock_that_is_never_released_leaves_no_span_open(recorded: Recorded) -> None:
    started: list[object] = []
    processor = SpanProcessor()
    processor.on_start = lambda span, parent_context=None: started.append(span)  # type: ignore[method-assign]  # to see it
    recorded.tracers.add_span_processor(processor)

    held = lock("a").take()

    assert started == []
    held.release()
    assert len(started) == 1
