"""``manage.py locks check`` on a Redis Cluster, where there is no index."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import override_settings

from django_setnx_lock import inspector, lock
from tests.processes import eventually
from tests.redis.test_cluster_cache import settings_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.redis.clusters import Cluster

# One process starts the servers.
pytestmark = pytest.mark.xdist_group("three primaries")


@pytest.fixture(autouse=True)
def cluster(masters: Cluster) -> Iterator[None]:
    """Have a cluster of three primaries be the default cache."""
    with override_settings(**settings_for(masters.urls)):
        yield


def result(*arguments: str) -> str | None:
    """Return what a check that is not OK says."""
    try:
        call_command("locks", "check", *arguments)
    except CommandError as error:
        return str(error)
    return None


def test_the_locks_of_all_nodes_are_looked_at() -> None:
    for number in range(6):
        lock(f"k{number}", timeout=60).take(0)

    said = result("--state", "held")

    assert said is not None
    assert said.endswith("6 held (k0, k1, k2 and 3 more); 6 locks, 0 waiting")


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
