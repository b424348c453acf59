"""Metrics of locks: what a process counts, and what a scrape reads from Redis."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from django.apps import AppConfig
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.registry import Collector

from django_setnx_lock import (
    KeyTemplate,
    LockBusy,
    LockLost,
    LockUnavailable,
    inspector,
    lock,
    locked,
    rwlock,
    signals,
)
from django_setnx_lock.contrib import prometheus
from django_setnx_lock.contrib.prometheus import LockCollector, LockMetrics
from tests.contrib.expositions import Exposed
from tests.processes import Stopwatch, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import FakeServer, RealServer

pytestmark = pytest.mark.usefixtures("listed_at_once")
COUNTED = (
    *(signals.lock_acquired, signals.lock_released, signals.lock_lost),
    *(signals.lock_renewed_late, signals.lock_busy, signals.lock_unavailable),
)


@contextmanager
def counting(registry: CollectorRegistry) -> Iterator[LockMetrics]:
    metrics = LockMetrics(registry)
    metrics.connect()
    try:
        yield metrics
    finally:
        metrics.disconnect()


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    """Give a registry that counts the locks of the test."""
    registry = CollectorRegistry()
    KeyTemplate("a")
    with counting(registry):
        yield registry


def seen(**options: object) -> Exposed:
    """Return what a scrape finds in Redis."""
    KeyTemplate("metered:<pk>")
    return Exposed(LockCollector(**options))  # type: ignore[arg-type]  # the same


@locked("bill:<pk>")
def send(pk: int) -> None:
    pass


def test_a_cycle_is_counted_by_template(registry: CollectorRegistry) -> None:
    with lock(KeyTemplate("metered:<pk:int>").format(pk=8)):
        began = time.monotonic()
        eventually(lambda: time.monotonic() - began > 0.06)

    exposed = Exposed(registry)
    metered = {"template": "metered:<pk>"}
    for outcome, times in {"acquired": 1, "released": 1, "busy": 0, "lost": 0}.items():
        assert exposed.get("setnx_lock_outcomes_total", outcome=outcome, **metered) == times
    # A counter is there before it first rises.
    losses = [(one["reason"], value) for one, value in exposed.samples["setnx_lock_losses_total"]]
    assert sorted(losses) == [("expired", 0.0), ("forced", 0.0)]
    assert exposed.get("setnx_lock_wait_seconds_count", **metered) == 1
    assert exposed.get("setnx_lock_hold_seconds_count", **metered) == 1
    assert 0.05 < exposed.get("setnx_lock_hold_seconds_sum", **metered) < 20
    assert exposed.get("setnx_lock_hold_seconds_bucket", le="0.05", **metered) == 0


def test_no_key_is_in_what_is_exposed(registry: CollectorRegistry) -> None:
    registry.register(LockCollector())
    with lock("secret 8"):
        exposed = Exposed(registry)

    assert "secret" not in str(exposed.samples)
    assert exposed.get("setnx_lock_locks", template="other", state="held") == 1


def test_the_time_waited_is_counted_for_a_caller_that_gives_up(registry: CollectorRegistry) -> None:
    with lock("a"), pytest.raises(LockBusy):
        lock("a").take(0.2)

    exposed = Exposed(registry)
    assert exposed.get("setnx_lock_outcomes_total", template="a", outcome="busy") == 1
    assert exposed.get("setnx_lock_wait_seconds_sum", template="a") >= 0.2
    assert exposed.get("setnx_lock_wait_seconds_bucket", template="a", le="0.1") == 1
    assert exposed.get("setnx_lock_wait_seconds_bucket", template="a", le="+Inf") == 2


def test_a_caller_that_redis_does_not_answer_is_counted(
    registry: CollectorRegistry, fake_server: FakeServer
) -> None:
    fake_server.connected = False
    with pytest.raises(LockUnavailable):
        lock("a").take(0)

    exposed = Exposed(registry)
    assert exposed.get("setnx_lock_outcomes_total", template="a", outcome="unavailable") == 1
    assert exposed.get("setnx_lock_wait_seconds_count", template="a") == 1


def test_a_late_renewal_is_counted(registry: CollectorRegistry) -> None:
    signals.lock_renewed_late.send(None, key="a", template="a", fence=1, late=12.0)

    assert Exposed(registry).get("setnx_lock_late_renewals_total", template="a") == 1


@pytest.mark.parametrize(("by", "reason"), [("anna", "forced"), ("", "expired")])
def test_a_loss_is_counted_by_its_reason(
    registry: CollectorRegistry, fake_server: FakeServer, by: str, reason: str
) -> None:
    held = lock("a").take()
    if by:
        fingerprint = inspector().get(held.name).fingerprint
        inspector().force_release(held.name, fingerprint, by=by)
    else:
        fake_server.client().delete(held.name)
    with pytest.raises(LockLost):
        held.check()

    exposed = Exposed(registry)
    losses = {
        one: exposed.get("setnx_lock_losses_total", template="a", reason=one)
        for one in ("forced", "expired")
    }
    assert losses == {"forced": 0, "expired": 0, reason: 1}
    assert exposed.get("setnx_lock_outcomes_total", template="a", outcome="lost") == 1
    assert exposed.get("setnx_lock_hold_seconds_count", template="a") == 1


def test_templates_that_are_too_many_count_as_other() -> None:
    registry = CollectorRegistry()
    with counting(registry):
        for number in range(203):
            with lock(KeyTemplate(f"a:{number}").format()):
                pass

    exposed = Exposed(registry)
    labels = {"other", *(f"a:{number}" for number in range(200))}
    assert exposed.values("setnx_lock_wait_seconds_count", "template") == labels
    assert exposed.get("setnx_lock_wait_seconds_count", template="other") == 3


def test_nothing_listens_to_locks_before_and_after() -> None:
    registry = CollectorRegistry()
    with counting(registry):
        assert all(signal.has_listeners() for signal in COUNTED)

    assert not any(signal.has_listeners() for signal in COUNTED)


def test_an_app_that_is_made_ready_again_counts_once() -> None:
    configs: list[Any] = [AppConfig.create(prometheus.__name__) for _ in range(2)]
    for config in configs:
        config.ready()
    try:
        with lock(KeyTemplate("ready-again").format()):
            exposed = Exposed(REGISTRY)
    finally:
        configs[0].metrics.disconnect()

    assert exposed.get("setnx_lock_wait_seconds_count", template="ready-again") == 1
    assert exposed["setnx_lock_listed_locks"] == 1


def test_a_scrape_tells_locks_by_template_and_state() -> None:
    with (
        lock("metered:1"),
        lock("metered:2"),
        lock("bill:3"),
        rwlock("metered:4").read(),
        lock("metered:not ours"),
    ):
        exposed = seen()

    assert exposed.get("setnx_lock_locks", template="metered:<pk>", state="held") == 2
    assert exposed.get("setnx_lock_locks", template="metered:<pk>", state="read") == 1
    # Of a decorated function, which nobody needs to name.
    assert exposed.get("setnx_lock_locks", template="bill:<pk>", state="held") == 1
    assert exposed.get("setnx_lock_locks", template="other", state="held") == 1
    assert exposed["setnx_lock_listed_locks"] == 5
    assert (exposed["setnx_lock_up"], exposed["setnx_lock_truncated"]) == (1, 0)


def test_the_template_with_most_text_of_its_own_is_taken() -> None:
    keys = {"x": "<a>", "metered:1": "metered:<a>", "metered:1:paid": "metered:<a>:paid"}
    for template in keys.values():
        KeyTemplate(template)
    with lock("x"), lock("metered:1"), lock("metered:1:paid"):
        exposed = Exposed(LockCollector())

    for template in keys.values():
        assert exposed.get("setnx_lock_locks", template=template, state="held") == 1


@pytest.mark.usefixtures("real_cache")
def test_a_scrape_tells_of_holders_and_waiters_how_long_they_have() -> None:
    def wait() -> None:
        with lock("metered:1", blocking_timeout=20):
            pass

    held = {"template": "metered:<pk>"}

    def both_wait() -> Exposed | None:
        found = seen()
        longest = found.get("setnx_lock_longest_wait_seconds", **held)
        return found if found.get("setnx_lock_waiters", **held) == 2 and longest > 0.1 else None

    with ThreadPoolExecutor(2) as pool:
        with lock("metered:1"):
            waiters = [pool.submit(wait) for _ in range(2)]
            exposed = eventually(both_wait)
        for waiter in waiters:
            waiter.result(20)

    assert exposed is not None
    assert 0.1 < exposed.get("setnx_lock_longest_wait_seconds", **held) < 20
    assert 0.1 < exposed.get("setnx_lock_oldest_hold_seconds", **held) < 20


def test_a_scrape_looks_at_so_many_locks_that_end_first_and_says_that_there_are_more() -> None:
    with lock("metered:1"), lock("the first", timeout=20), lock("metered:3"):
        cut, whole = seen(limit=1), seen(limit=3)

    assert (cut["setnx_lock_truncated"], cut["setnx_lock_listed_locks"]) == (1, 3)
    assert cut.get("setnx_lock_locks", template="other", state="held") == 1
    assert cut.get("setnx_lock_locks", template="metered:<pk>", state="held") == 0
    assert (whole["setnx_lock_truncated"], whole["setnx_lock_listed_locks"]) == (0, 3)
    assert whole.get("setnx_lock_locks", template="metered:<pk>", state="held") == 2


def commands_of_a_scrape(server: RealServer, count: int, **options: object) -> tuple[int, Exposed]:
    """Return how many commands the server has run for a scrape with ``count`` names listed."""
    with server.client() as client:
        client.zadd("{lock:}:index", {f"lock:more:{number}": 1e15 for number in range(count)})
        # The server learns the script.
        seen()
        client.config_resetstat()
        exposed = seen(**options)
        return sum(one["calls"] for one in client.info("commandstats").values()), exposed


def test_what_a_scrape_asks_does_not_grow_with_the_locks(real_cache: RealServer) -> None:
    few, exposed = commands_of_a_scrape(real_cache, 1_000)
    many, cut = commands_of_a_scrape(real_cache, 20_000)

    assert (exposed["setnx_lock_truncated"], cut["setnx_lock_truncated"]) == (0, 1)
    assert many == few


def test_a_scrape_says_that_a_cache_is_away_and_hides_no_other(fake_server: FakeServer) -> None:
    with lock("metered:1"):
        exposed = seen(caches=["default", "missing"])
    fake_server.connected = False
    away = seen()

    up = {labels["cache"]: value for labels, value in exposed.samples["setnx_lock_up"]}
    assert up == {"default": 1, "missing": 0}
    assert exposed.get("setnx_lock_locks", template="metered:<pk>", state="held") == 1
    assert away["setnx_lock_up"] == 0
    assert {"setnx_lock_listed_locks", "setnx_lock_locks"} & away.samples.keys() == set()


def test_a_scrape_of_a_server_that_hangs_ends_in_time(real_cache: RealServer) -> None:
    real_cache.pause()
    try:
        with Stopwatch() as watch:
            exposed = seen()
    finally:
        real_cache.resume()

    assert exposed["setnx_lock_up"] == 0
    assert watch.seconds < 8


def test_what_others_wrote_to_the_index_breaks_no_scrape(fake_server: FakeServer) -> None:
    with lock("metered:1"):
        fake_server.client().zadd("{lock:}:index", {b"lock:\xff": 1, b"": 2, b"lock:}{": 3})
        exposed = seen()

    assert exposed["setnx_lock_up"] == 1
    assert exposed.get("setnx_lock_locks", template="metered:<pk>", state="held") == 1


def test_registering_the_gauges_asks_no_server(fake_server: FakeServer) -> None:
    fake_server.connected = False
    registry = CollectorRegistry(auto_describe=True)

    collector: Collector = LockCollector(caches=["missing"])
    registry.register(collector)

    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(LockCollector())
