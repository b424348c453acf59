"""Locks on a cluster of three primaries: each is at one node, and all nodes are asked at once."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest
import redis
import redis.asyncio

from django_setnx_lock import LockBusy, LockUnavailable, LockUnsupported
from django_setnx_lock.core import Inspector, MultiLock, RedisLock, State
from tests.faults.hanging import MORE, Timed
from tests.processes import eventually, figure, run
from tests.support import seams
from tests.support.drivers import growth
from tests.support.locks import INDEX, listed, meet
from tests.support.seams import process_key, release_each, take_each
from tests.support.world import DUE

if TYPE_CHECKING:
    from tests.redis.clusters import Cluster

# One process starts the servers.
pytestmark = pytest.mark.xdist_group("three primaries")


def test_there_is_no_index_on_a_cluster(masters: Cluster) -> None:
    with listed(masters.usual, "b"):
        meet(masters.usual, "b")
        assert not masters.usual.exists(INDEX)


def test_keys_of_several_slots_are_all_taken_or_none(masters: Cluster) -> None:
    names = masters.names()
    with masters.lock(names[1]), pytest.raises(LockBusy, match=names[1]):
        MultiLock(masters.usual, names).take(0)
    assert not any(masters.usual.exists(name) for name in names)

    with MultiLock(masters.usual, names, renew=True) as held:
        held.check()
        held.reacquire()
        held.extend(5)
        assert MultiLock(masters.usual, ["lock:z", names[0]]).locked()

    assert not any(masters.usual.exists(name) for name in names)


def test_who_waits_for_one_of_several_sends_no_request_for_all_of_them(masters: Cluster) -> None:
    for node in masters.nodes:
        masters.teller(node).config_resetstat()
    names = masters.names()
    held = masters.lock(names[1]).take(0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(MultiLock(masters.usual, names).take, 20)
        eventually(lambda: masters.usual.zcard(f"{{{names[1]}}}:waiters"))
        held.release()
        waiting.result(10).release()

    for node in masters.nodes:
        stats: dict[str, Any] = masters.teller(node).info("errorstats")
        assert "errorstat_CROSSSLOT" not in stats


def test_a_process_says_at_one_of_the_nodes_that_it_lives(masters: Cluster) -> None:
    inspector, names = masters.inspector(), ["lock:a", "lock:b", "lock:c"]
    held = [masters.lock(name, timeout=300, index=INDEX).take(0) for name in names]
    home = masters.teller(masters.owner_of(masters.slot_of(INDEX)))
    seams.pass_time(DUE)
    (key,) = eventually(lambda: home.keys(f"{process_key('lock:')}*"))
    for name in names:
        # As if they had been held for a minute.
        meta = f"{{{name}}}:meta"
        fence, rest = bytes(masters.usual.get(meta) or b"").split(b" ", 1)  # type: ignore[arg-type]  # bytes
        masters.usual.set(meta, b"%d %s" % (int(fence) - 60_000_000, rest), keepttl=True)

    assert [one.state for one in inspector.get_each(names)] == [State.HELD] * 3
    seams.reset()
    masters.usual.delete(key)
    assert [one.state for one in inspector.get_each(names)] == [State.GONE] * 3
    for one in held:
        one.release()


def test_a_cluster_client_of_asyncio_is_refused(masters: Cluster) -> None:
    async def work() -> None:
        client = redis.asyncio.RedisCluster.from_url(masters.urls[0])
        try:
            with pytest.raises(LockUnsupported, match=r"redis\.RedisCluster"):
                await RedisLock(client, "lock:a").atake(0)
        finally:
            await client.aclose()

    run(work())


def test_a_node_that_hangs_does_not_keep_the_renewal_of_the_others(masters: Cluster) -> None:
    # Who waited for the node that hangs would do so for longer than a test waits.
    client = masters.client(socket_timeout=120)
    locks = [RedisLock(client, name, 120, renew=True) for name in masters.names()]
    first, *others = [lock.take(0) for lock in locks]
    hanging = masters.nodes[0]
    # The others do not call the cluster down for it meanwhile.
    tellers = [masters.teller(node) for node in masters.nodes]
    usual = str(tellers[0].config_get("cluster-node-timeout")["cluster-node-timeout"])
    for teller in tellers:
        teller.config_set("cluster-node-timeout", 60_000)
    hanging.pause()
    try:
        for _ in range(3):
            have_grown = growth(*others, after=4 * DUE)
            seams.pass_time(4 * DUE)
            eventually(have_grown)
        assert first.lost
    finally:
        hanging.resume()
        for teller in tellers:
            teller.config_set("cluster-node-timeout", usual)
    for one in others:
        one.release()


@pytest.mark.parametrize("count", [2000, pytest.param(10_000, marks=pytest.mark.storm)])
def test_thousands_of_locks_over_all_slots_are_taken_listed_and_released(
    masters: Cluster, count: int
) -> None:
    locks = [masters.lock(f"lock:{number}", 60) for number in range(count)]
    began = time.monotonic()
    held = [one.held for one in take_each(locks)]
    taken = time.monotonic()

    page = masters.inspector().find(limit=count)
    listed = time.monotonic()
    errors = release_each([one for one in held if one is not None])
    released = time.monotonic()

    figure(
        f"{count} locks on three masters: taken in {taken - began:.1f} s, listed in "
        f"{listed - taken:.1f} s, released in {released - listed:.1f} s"
    )
    assert page.total == len(page.locks) == count
    assert {lock.state for lock in page.locks} == {State.HELD}
    assert len({masters.slot_of(lock.name) for lock in page.locks}) > 0.7 * count
    assert errors == []
    assert masters.inspector().find().total == 0


def test_a_client_that_nobody_uses_any_more_is_not_kept(masters: Cluster) -> None:
    def use() -> ref[redis.RedisCluster]:
        client = redis.RedisCluster(host="127.0.0.1", port=masters.nodes[0].port)
        with RedisLock(client, "lock:a"), pytest.raises(LockBusy):
            RedisLock(client, "lock:a").take(0.05)
        return ref(client)

    gone = use()
    gc.collect()

    assert gone() is None


def test_a_node_that_hangs_keeps_nobody_beyond_the_timeout_and_leaves_no_key(
    masters: Cluster,
) -> None:
    client, name = masters.client(socket_timeout=0.5), masters.names()[0]
    # In the same slot, so that there is a connection for it.
    other = f"{{{name}}}:other"
    with RedisLock(client, other):
        held = RedisLock(client, name).take(0)
    hanging = masters.nodes[0]
    hanging.pause()
    try:
        taken = Timed(lambda: RedisLock(client, other).take(0))
        back = [taken.is_back_within(0.5 + MORE)]
        released = Timed(held.release)
        back.append(released.is_back_within(0.5 + MORE))
    finally:
        hanging.resume()

    assert back == [True, True]
    assert (released.cause, taken.cause) == ("timeout", "timeout")
    # By a client of its own: the other closes connections as it finds its nodes anew.
    looking = masters.client()
    eventually(lambda: not looking.exists(other))


def test_what_cannot_be_asked_for_is_told_and_the_rest_is_taken(masters: Cluster) -> None:
    client, names = masters.client(socket_timeout=0.5), masters.names()
    hanging = masters.nodes[0]
    hanging.pause()
    try:
        taken = take_each([RedisLock(client, name) for name in names])
    finally:
        hanging.resume()

    assert [type(one.error) for one in taken] == [LockUnavailable, type(None), type(None)]
    assert release_each([one.held for one in taken if one.held]) == []
    # What the node did when it went on was asked to be undone.
    eventually(lambda: Inspector(client, "lock:").get(names[0]).state is State.FREE)


def test_locks_of_scripts_that_no_node_knows_are_taken_all_the_same(masters: Cluster) -> None:
    for node in masters.nodes:
        masters.teller(node).script_flush()

    taken = take_each([masters.lock(f"lock:{number}") for number in range(30)])

    assert not [one.error for one in taken if one.error]
    assert release_each([one.held for one in taken if one.held]) == []
