"""What works on a Redis Cluster, and what says that it does not."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.crc import key_slot
from redis.exceptions import RedisError

from django_setnx_lock import LockBusy, LockUnavailable
from django_setnx_lock.core import Inspector, MultiLock, RedisLock, State
from tests.processes import eventually
from tests.servers import RealServer, server_binaries
from tests.support import seams
from tests.support.locks import INDEX, command, listed
from tests.support.seams import process_key

if TYPE_CHECKING:
    from collections.abc import Iterator

# One process starts the servers.
pytestmark = [pytest.mark.xdist_group("one node"), pytest.mark.real]


def is_up(client: redis.Redis) -> bool:
    try:
        return bool(client.set("up", 1))
    except RedisError:
        return False


@pytest.fixture(scope="module")
def cluster(server_kind: str) -> Iterator[redis.RedisCluster]:
    """Give a client of a cluster of one node."""
    with RealServer(server_binaries()[server_kind], "--cluster-enabled", "yes") as server:
        client = server.client()
        command(client, "CLUSTER", "ADDSLOTS", *range(16384))
        eventually(lambda: is_up(client))
        with redis.RedisCluster(host="127.0.0.1", port=server.port) as cluster:
            yield cluster


@pytest.mark.matrix
def test_a_process_says_that_it_lives_and_is_asked_about(cluster: redis.RedisCluster) -> None:
    inspector = Inspector(cluster, "lock:")
    processes = process_key("lock:")
    names = ["lock:a", "lock:b", "lock:c"]
    held = [RedisLock(cluster, name, timeout=300, index=INDEX).take(0) for name in names]
    try:
        (key,) = eventually(lambda: cluster.keys(f"{processes}*"))
        for name in names:
            meta = f"{{{name}}}:meta"
            fence, rest = bytes(cluster.get(meta) or b"").split(b" ", 1)  # type: ignore[arg-type]  # bytes
            cluster.set(meta, b"%d %s" % (int(fence) - 60_000_000, rest), keepttl=True)

        assert [one.state for one in inspector.get_each(names)] == [State.HELD] * 3
        seams.reset()
        cluster.delete(key)
        assert [one.state for one in inspector.get_each(names)] == [State.GONE] * 3
    finally:
        for one in held:
            one.release()


@pytest.mark.parametrize("name", ["lock:a", "lock:{shop}:a"])
def test_a_lock_is_taken_looked_at_and_released(cluster: redis.RedisCluster, name: str) -> None:
    inspector = Inspector(cluster, "lock:")
    with RedisLock(cluster, name) as held:
        held.check()
        held.reacquire()
        with pytest.raises(LockBusy):
            RedisLock(cluster, name).take(0)
        assert inspector.get(name).state is State.HELD

    assert inspector.get(name).state is State.FREE


def test_there_is_no_index_on_a_cluster(cluster: redis.RedisCluster) -> None:
    with listed(cluster, "b"):
        assert not cluster.exists(INDEX)


def test_keys_of_several_slots_are_all_taken_or_none(cluster: redis.RedisCluster) -> None:
    cluster.flushall()
    names = [f"lock:{key}" for key in "abc"]
    assert len({command(cluster, "CLUSTER", "KEYSLOT", name) for name in names}) == 3
    with RedisLock(cluster, "lock:b"), pytest.raises(LockBusy, match="'lock:b'"):
        MultiLock(cluster, names).take(0)
    left = [name for name in names if cluster.exists(name)]

    with MultiLock(cluster, names, renew=True) as held:
        held.check()
        held.reacquire()
        held.extend(5)
        assert MultiLock(cluster, ["lock:z", "lock:a"]).locked()

    assert left == []
    assert not any(cluster.exists(name) for name in names)


def test_who_waits_for_one_of_several_sends_no_request_for_all_of_them(
    cluster: redis.RedisCluster,
) -> None:
    command(cluster, "CONFIG", "RESETSTAT")
    names = [f"lock:{key}" for key in "abc"]
    held = RedisLock(cluster, "lock:b").take(0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(MultiLock(cluster, names).take, 20)
        eventually(lambda: cluster.zcard("{lock:b}:waiters"))
        held.release()
        waiting.result(10).release()

    (node,) = cluster.get_primaries()  # type: ignore[no-untyped-call]  # redis-py's
    stats: Any = cluster.get_redis_connection(node).info("errorstats")
    assert "errorstat_CROSSSLOT" not in stats


@pytest.mark.parametrize("is_async", [False, True])
def test_a_cluster_that_is_down_cannot_be_reached(
    cluster: redis.RedisCluster, is_async: bool
) -> None:
    (node,) = cluster.get_primaries()  # type: ignore[no-untyped-call]  # redis-py's
    one = RedisLock(cluster, "lock:a")
    other = (key_slot(b"lock:a") + 1) % 16384
    # Not by the client of the node, which the client of the cluster closes meanwhile.
    with redis.Redis(port=node.port) as teller:
        command(teller, "CLUSTER", "DELSLOTS", other)
        try:
            eventually(lambda: not is_up(teller))
            with pytest.raises(LockUnavailable) as caught:
                asyncio.run(one.atake(0)) if is_async else one.take(0)
        finally:
            command(teller, "CLUSTER", "ADDSLOTS", other)
            eventually(lambda: is_up(teller))

    assert caught.value.cause == "unreachable"
