"""Two workers of gunicorn, and a Prometheus server that scrapes them."""

from __future__ import annotations

import importlib.util
import json
import sys
import urllib.parse
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import lock
from tests.contrib.expositions import Exposed
from tests.processes import eventually
from tests.servers import free_port, server_kinds
from tests.web_servers import WebServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import RealServer

pytestmark = pytest.mark.xdist_group("prometheus")
RULES = Path(__file__).parents[2] / "docs" / "monitoring" / "alerts.yml"
WORKERS = 2
PAID = {"outcome": "acquired", "template": "order:<pk>"}
IN_PROMETHEUS = pytest.mark.needs("prometheus")


class Site(WebServer):
    """The project of tests/served.py, served by several processes."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.pids: set[int] = set()

    def call(self, path: str, status: int = 200) -> None:
        """Get ``path``, and take note of which process has answered."""
        found, text = self.get(path)
        assert found == status, text[-2000:]
        if found == 200:
            self.pids.add(json.loads(text)["pid"])

    def exposed(self, path: str = "/metrics/") -> Exposed:
        status, text = self.get(path)
        assert status == 200, text[-2000:]
        return Exposed(text)


@contextmanager
def served(server: RealServer, **environment: str) -> Iterator[Site]:
    """Serve the project with its workers."""
    site = Site(free_port())
    command = [sys.executable, "-m", "gunicorn", "tests.served:application"]
    options = [f"--workers={WORKERS}", f"--bind=127.0.0.1:{site.port}", "--no-control-socket"]
    with site.started(command + options, TEST_SERVER_URL=server.url, **environment):
        yield site


@pytest.fixture(scope="module")
def whole_site(
    running_server: Callable[[str], RealServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """Give the project in the multiprocess mode of prometheus_client; it starts in seconds."""
    server = running_server(server_kinds()[0])
    folder = tmp_path_factory.mktemp("multiproc")
    with served(server, PROMETHEUS_MULTIPROC_DIR=str(folder)) as site:
        yield site


@pytest.fixture
def site(whole_site: Site, real_cache: RealServer) -> Site:
    """Give the project in that mode; it has the counts of other tests too."""
    return whole_site


@pytest.fixture(scope="module")
def parted_site(running_server: Callable[[str], RealServer]) -> Iterator[Site]:
    """Give the project without that mode: each worker has counts of its own."""
    with served(running_server(server_kinds()[0])) as site:
        yield site


def pay_everywhere(site: Site) -> int:
    """Have each worker take locks; return how many were taken."""
    paid = 0
    site.pids.clear()

    def everywhere() -> bool:
        nonlocal paid
        site.call(f"/pay/{paid}/")
        paid += 1
        return len(site.pids) == WORKERS

    eventually(everywhere)
    return paid


def test_a_scrape_of_several_workers_has_the_sums_of_all(site: Site) -> None:
    before = site.exposed()
    paid = pay_everywhere(site)
    for _ in range(3):
        site.call("/lose/1/")
    with lock("order:busy"):
        for _ in range(5):
            site.call("/pay/busy/", status=409)
        exposed = site.exposed()

    template = {"template": "order:<pk>"}

    def counted(name: str, **labels: str) -> float:
        after = exposed.get(f"setnx_lock_{name}", **labels, **template)
        return after - before.get(f"setnx_lock_{name}", **labels, **template)

    counts = {"acquired": paid + 3, "released": paid, "busy": 5, "lost": 3}
    for outcome, count in counts.items():
        assert counted("outcomes_total", outcome=outcome) == count
    assert counted("wait_seconds_count") == paid + 3 + 5
    assert counted("hold_seconds_count") == paid + 3
    assert counted("losses_total", reason="forced") == 3
    assert counted("losses_total", reason="expired") == 0
    # Any worker sees what stands in Redis, and no two of them are added up.
    assert exposed.get("setnx_lock_locks", state="held", **template) == 1
    assert exposed["setnx_lock_up"] == 1


@pytest.mark.matrix
@pytest.mark.usefixtures("real_cache")
def test_without_the_mode_for_several_processes_a_scrape_has_the_sum_of_one(
    parted_site: Site,
) -> None:
    paid = pay_everywhere(parted_site)
    exposed = parted_site.exposed()

    assert 0 < exposed.get("setnx_lock_outcomes_total", **PAID) < paid


NEEDS_ITS_VIEW = pytest.mark.skipif(
    importlib.util.find_spec("django_prometheus") is None,
    reason="django-prometheus has no release for this Django",
)


@NEEDS_ITS_VIEW
def test_the_view_of_django_prometheus_has_the_counts_of_all_workers(site: Site) -> None:
    before = site.exposed("/django-prometheus/").get("setnx_lock_outcomes_total", **PAID)
    paid = pay_everywhere(site)
    after = site.exposed("/django-prometheus/").get("setnx_lock_outcomes_total", **PAID)

    assert after - before == paid


@NEEDS_ITS_VIEW
@pytest.mark.matrix
@pytest.mark.usefixtures("real_cache", "listed_at_once")
def test_the_view_of_django_prometheus_has_the_gauges_of_one_process(parted_site: Site) -> None:
    with lock("order:1"):
        exposed = parted_site.exposed("/django-prometheus/")

    assert exposed["setnx_lock_listed_locks"] == 1


def test_a_scrape_goes_on_while_redis_is_away(site: Site, real_cache: RealServer) -> None:
    before = site.exposed().get("setnx_lock_outcomes_total", **PAID)
    paid = pay_everywhere(site)
    real_cache.kill()
    try:
        exposed = site.exposed()
    finally:
        real_cache.start()

    assert exposed["setnx_lock_up"] == 0
    assert exposed.get("setnx_lock_outcomes_total", **PAID) - before == paid


class PrometheusServer(WebServer):
    """Scrapes a site ten times a second, and evaluates the alert rules as often."""

    front = "/-/ready"

    def ask(self, path: str) -> Any:
        status, text = self.get(path)
        assert status == 200, text
        return json.loads(text)["data"]

    def value(self, query: str) -> float | None:
        found = self.ask(f"/api/v1/query?{urllib.parse.urlencode({'query': query})}")["result"]
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> set[str]:
        alerts = self.ask("/api/v1/alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}


@pytest.fixture
def prometheus(site: Site, tmp_path: Path) -> Iterator[PrometheusServer]:
    """Give a Prometheus server that scrapes the site."""
    config = tmp_path / "prometheus.yml"
    job = {
        "job_name": "site",
        "metrics_path": "/metrics/",
        "static_configs": [{"targets": [f"127.0.0.1:{site.port}"]}],
    }
    fast = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), "100ms")
    # JSON is YAML.
    config.write_text(
        json.dumps({"global": fast, "rule_files": [str(RULES)], "scrape_configs": [job]})
    )
    server = PrometheusServer(free_port())
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{server.port}",
        "--log.level=warn",
    ]
    with server.started(command):
        yield server


@pytest.mark.matrix
@IN_PROMETHEUS
def test_a_prometheus_server_has_the_numbers_and_raises_the_alarm(
    site: Site, prometheus: PrometheusServer
) -> None:
    before = site.exposed()
    paid = before.get("setnx_lock_outcomes_total", **PAID) + pay_everywhere(site)
    lost = before.get("setnx_lock_losses_total", reason="forced", template="order:<pk>")
    acquired = 'sum(setnx_lock_outcomes_total{outcome="acquired"})'
    eventually(lambda: prometheus.value(acquired) == paid)
    assert prometheus.value("sum(setnx_lock_hold_seconds_count)") == paid
    assert prometheus.value("setnx_lock_up") == 1
    assert "SetnxLockLost" not in prometheus.firing()

    site.call("/lose/1/")

    eventually(lambda: prometheus.value("sum(setnx_lock_losses_total)") == lost + 1)
    eventually(lambda: "SetnxLockLost" in prometheus.firing())
    assert prometheus.value(acquired) == paid + 1
