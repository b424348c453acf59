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
from tests.support.drivers import DEADLINE, DRIVERS, Driver, Face
from tests.support.renewals import end_of, is_longer

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
    before = end_of(held[0])
    eventually(lambda: is_longer(held[0], before), 30)
    with pytest.raises(LockBusy):
        RedisLock(client, names[0]).take(0)
    for one in held:
        one.release()
    with RedisLock(client, names[0]):
        pass


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_who_comes_back_at_once_is_sent_to_the_node_that_took_over(
    replicated: tuple[Cluster, RealServer], driver: Driver
) -> None:
    cluster, replica = replicated
    # A call takes as long as two tries have.
    client = cluster.client(socket_timeout=5)
    first = cluster.nodes[0]
    name = cluster.names()[0]
    own = cluster.id_of(replica)
    said: list[str] = []

    def knows(node: RealServer) -> bool:
        known = cluster.tell(node, "NODES").values()
        return any(one["node_id"] == own and one["slots"] for one in known)

    async def work() -> None:
        for number in range(3):
            if number == 1:
                first.pause()
                await driver.eventually(lambda: all(map(knows, cluster.nodes[1:])), 40)
            try:
                lock = RedisLock(client, name, blocking_timeout=5)
                async with Face(lock, driver).block():
                    said.append("in")
            except LockUnavailable as error:
                said.append(error.cause)

    driver.longest = 60
    try:
        driver.run(work())
    finally:
        driver.longest = DEADLINE
        first.resume()

    assert said in (["in", "timeout", "in"], ["in", "in", "in"])
