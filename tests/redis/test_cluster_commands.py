"""``manage.py locks check`` and ``locks doctor`` on a Redis Cluster, where there is no index."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import override_settings

from django_setnx_lock import inspector, lock
from tests.management.doctor import examine
from tests.processes import eventually
from tests.redis.test_cluster_cache import settings_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.redis.clusters import Cluster

# One process starts the servers.
pytestmark = pytest.mark.xdist_group("three primaries")


@pytest.fixture
def cluster(masters: Cluster) -> Iterator[Cluster]:
    """Give a cluster of three primaries that is the default cache."""
    with override_settings(**settings_for(masters.urls)):
        yield masters


def test_a_cluster_is_examined_at_each_of_its_primaries(cluster: Cluster) -> None:
    report = examine()

    assert [one.id for one in report.findings] == ["W002", "D008"]
    for node in cluster.nodes:
        assert f"127.0.0.1:{node.port}/0" in report.examined["default"]


def test_what_is_found_at_one_node_of_a_cluster_says_at_which(cluster: Cluster) -> None:
    node = cluster.nodes[1]
    node.client().config_set("maxmemory-policy", "allkeys-lru")
    try:
        finding = examine().by_id["D006"]
    finally:
        node.client().config_set("maxmemory-policy", "noeviction")

    assert finding.message.startswith(f"At 127.0.0.1:{node.port}/0: maxmemory-policy is")


def test_d001_no_node_of_a_cluster_is_there() -> None:
    with override_settings(**settings_for("redis://127.0.0.1:1/0")):
        assert [(one.id, one.level) for one in examine().findings] == [("D001", "error")]


def test_d004_replicas_are_asked_for_on_a_cluster(cluster: Cluster) -> None:
    with override_settings(SETNX_LOCK={"REPLICAS": 1}):
        finding = examine().by_id["D004"]

    assert finding.level == "error"
    assert "replicas= needs a client of one server" in finding.message


def test_the_command_ends_well_on_a_cluster(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("locks", "doctor")

    assert "Errors: 0." in capsys.readouterr().out


def result(*arguments: str) -> str | None:
    """Return what a check that is not OK says."""
    try:
        call_command("locks", "check", *arguments)
    except CommandError as error:
        return str(error)
    return None


@pytest.mark.usefixtures("cluster")
def test_the_locks_of_all_nodes_are_looked_at() -> None:
    for number in range(6):
        lock(f"k{number}", timeout=60).take(0)

    said = result("--state", "held")

    assert said is not None
    assert said.endswith("6 held (k0, k1, k2 and 3 more); 6 locks, 0 waiting")


@pytest.mark.usefixtures("cluster")
def test_the_first_in_a_queue_is_known() -> None:
    def wait() -> None:
        with lock("k", blocking_timeout=20):
            pass

    with ThreadPoolExecutor(1) as pool:
        with lock("k", timeout=60):
            waiter = pool.submit(wait)
            eventually(lambda: inspector().get("lock:k").waiting == 1)
            said = eventually(lambda: result("--max-wait", "0.1"))
        waiter.result(20)

    assert said is not None
    assert "1 waited for more than 0.1 s (k)" in said
