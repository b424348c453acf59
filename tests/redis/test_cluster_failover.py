"""A node of a cluster goes away, and its replica takes its place."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from django_setnx_lock import LockBusy, LockUnavailable
from django_setnx_lock.core import RedisLock
from tests.processes import eventually, figure
from tests.redis.clusters import Cluster
from tests.servers import RealServer, any_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.storm, pytest.mark.timeout(120)]


@pytest.fixture
def replicated() -> Iterator[tuple[Cluster, RealServer]]:
    """Give a cluster of three primaries, and a replica of the first."""
    binary = any_binary()
    with Cluster(binary) as cluster, cluster.replica_of(cluster.nodes[0]) as replica:
        yield cluster, replica


def test_locks_go_on_at_the_replica(replicated: tuple[Cluster, RealServer]) -> None:
    cluster, _ = replicated
    client = cluster.client(socket_timeout=1)
    names = cluster.names()
    held = [RedisLock(client, name, 20, renew=True).take(0) for name in names]
    # The replica is to have heard of it.
    assert cluster.teller(cluster.nodes[0]).wait(1, 5000) == 1

    cluster.nodes[0].kill()
    killed = time.monotonic()
    for one in held[1:]:
        one.check()

    def is_there() -> bool:
        try:
            held[0].check()
        except LockUnavailable:
            return False
        return True

    eventually(is_there, 30)
    figure(f"the lock was there again {time.monotonic() - killed:.1f} s after its node was killed")
    before = held[0].lease.end
    eventually(lambda: held[0].lease.end > before, 30)
    with pytest.raises(LockBusy):
        RedisLock(client, names[0]).take(0)
    for one in held:
        one.release()
    with RedisLock(client, names[0]):
        pass
