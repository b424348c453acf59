"""``manage.py locks doctor`` on a Redis Cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.core.management import call_command
from django.test import override_settings

from tests.management.doctor import examine
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
