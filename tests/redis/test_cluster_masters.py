"""Locks on a cluster of three primaries: each is at one node, and all nodes are asked at once."""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest
import redis

from django_setnx_lock import LockBusy, LockUnavailable
from django_setnx_lock.core import Inspector, Outcome, RedisLock, State
from tests.faults.hanging import MORE, Timed
from tests.processes import Stopwatch, eventually, figure, in_thread, may_be_late
from tests.support.locks import text
from tests.support.renewals import end_of, is_longer
from tests.support.seams import release_each, take_each

if TYPE_CHECKING:
    from tests.redis.clusters import Cluster

# One process starts the servers.
pytestmark = pytest.mark.xdist_group("three primaries")


def test_all_keys_of_a_lock_keep_its_hash_tag(
    masters: Cluster, cluster_client: redis.RedisCluster
) -> None:
    name = "lock:{order}:42"
    home = masters.owner_of(masters.slot_of("{order}"))

    with ThreadPoolExecutor(1) as pool, RedisLock(cluster_client, name, renew=True):
        waiting = pool.submit(RedisLock(cluster_client, name).take, 20)
        eventually(lambda: cluster_client.zcard(f"{{order}}:{name}:waiters"))
        # All are there once it listens.
        eventually(lambda: masters.teller(home).keys("*:awake"))
        # Each node is looked at once: some keys come and go.
        found = {
            str(text(key)): node for node in masters.nodes for key in masters.teller(node).keys("*")
        }
    waiting.result(10).release()

    assert name in found
    assert {masters.slot_of(key) for key in found} == {masters.slot_of("{order}")}
    assert set(found.values()) == {home}


# Each of four would take 0.05 to 0.1 s if it polled.
@may_be_late(0.2)
def test_waiters_have_the_lock_soon_after_each_other(
    cluster_client: redis.RedisCluster, late: float
) -> None:
    def wait() -> None:
        RedisLock(cluster_client, "lock:a", renew=True).take(20).release()

    with ThreadPoolExecutor(4) as pool:
        with RedisLock(cluster_client, "lock:a"):
            waiting = [pool.submit(wait) for _ in range(4)]
            eventually(lambda: cluster_client.zcard("{lock:a}:waiters") == 4)
        with Stopwatch() as watch:
            for one in waiting:
                one.result(20)

    figure(f"on a cluster, from a release to the fourth in line: {watch.seconds:.3f} s")
    assert watch.seconds < late


def test_a_waiter_sends_nothing_while_it_waits(
    masters: Cluster, cluster_client: redis.RedisCluster
) -> None:
    home = masters.teller(masters.owner_of(masters.slot_of("lock:a")))

    def calls() -> int:
        stats: dict[str, Any] = home.info("commandstats")
        return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])

    with ThreadPoolExecutor(1) as pool:
        with RedisLock(cluster_client, "lock:a"):
            waiting = pool.submit(RedisLock(cluster_client, "lock:a").take, 20)
            eventually(lambda: cluster_client.zcard("{lock:a}:waiters"))
            # Of the first sleep the end is near.
            threading.Event().wait(0.6)
            before = calls()
            threading.Event().wait(0.5)
            after = calls()
        waiting.result(10).release()

    assert after == before


def test_locks_of_all_nodes_are_renewed(
    masters: Cluster, cluster_client: redis.RedisCluster
) -> None:
    held = [RedisLock(cluster_client, name, 3, renew=True).take(0) for name in masters.names()]
    ends = [end_of(one) for one in held]

    eventually(lambda: all(is_longer(one, end) for one, end in zip(held, ends, strict=True)))

    assert release_each(held) == []


def test_a_node_that_hangs_does_not_keep_the_renewal_of_the_others(
    masters: Cluster, cluster_client: redis.RedisCluster
) -> None:
    first, *others = [
        RedisLock(cluster_client, name, 3, renew=True).take(0) for name in masters.names()
    ]
    hanging = masters.nodes[0]
    # The others do not call the cluster down for it meanwhile.
    tellers = [masters.teller(node) for node in masters.nodes]
    usual = str(tellers[0].config_get("cluster-node-timeout")["cluster-node-timeout"])
    for teller in tellers:
        teller.config_set("cluster-node-timeout", 60_000)
    hanging.pause()
    try:
        eventually(lambda: first.loss)
        # The others were renewed until then, and are so still.
        ends = [end_of(one) for one in others]
        eventually(lambda: all(is_longer(one, end) for one, end in zip(others, ends, strict=True)))
    finally:
        hanging.resume()
        for teller in tellers:
            teller.config_set("cluster-node-timeout", usual)
    for one in others:
        one.release()


def test_a_lock_is_force_released_as_it_was_seen(cluster_client: redis.RedisCluster) -> None:
    inspector = Inspector(cluster_client, "lock:")
    held = RedisLock(cluster_client, "lock:a").take(0)
    seen = inspector.get("lock:a")

    assert inspector.force_release("lock:a", "another") is Outcome.CHANGED_HANDS
    assert inspector.force_release("lock:a", seen.fingerprint, by="Eve") is Outcome.RELEASED

    assert not held.owned()
    assert held.loss is not None
    assert "Eve" in str(held.loss)


def test_a_page_lists_the_locks_of_all_nodes(
    masters: Cluster, cluster_client: redis.RedisCluster
) -> None:
    held = [RedisLock(cluster_client, name).take(0) for name in [*masters.names(), "lock:{a}:1"]]

    found = Inspector(cluster_client, "lock:").all()

    assert [lock.name for lock in found] == sorted(one.name for one in held)
    assert {lock.state for lock in found} == {State.HELD}
    assert {lock.holder.pid for lock in found if lock.holder} != set()


@pytest.mark.parametrize("count", [2000, pytest.param(10_000, marks=pytest.mark.storm)])
def test_thousands_of_locks_over_all_slots_are_taken_listed_and_released(
    masters: Cluster, cluster_client: redis.RedisCluster, count: int
) -> None:
    locks = [RedisLock(cluster_client, f"lock:{number}", 60) for number in range(count)]
    began = time.monotonic()
    held = [one.held for one in take_each(locks)]
    taken = time.monotonic()

    page = Inspector(cluster_client, "lock:").find(limit=count)
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
    assert Inspector(cluster_client, "lock:").find().total == 0


def test_a_client_that_nobody_uses_any_more_is_not_kept(masters: Cluster) -> None:
    def use() -> ref[redis.RedisCluster]:
        client = redis.RedisCluster(host="127.0.0.1", port=masters.nodes[0].port)
        with RedisLock(client, "lock:a"), pytest.raises(LockBusy):
            RedisLock(client, "lock:a").take(0.05)
        return ref(client)

    gone = use()
    gc.collect()

    assert gone() is None


def test_a_node_that_hangs_keeps_nobody_for_longer_than_a_timeout_and_leaves_no_key(
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


def test_those_that_are_busy_are_told_from_those_that_are_taken(
    masters: Cluster, cluster_client: redis.RedisCluster
) -> None:
    names = masters.names()
    theirs = in_thread(RedisLock(cluster_client, names[1]).take)

    taken = take_each([RedisLock(cluster_client, name) for name in names])

    assert [type(one.error) for one in taken] == [type(None), LockBusy, type(None)]
    assert release_each([one.held for one in taken if one.held]) == []
    theirs.release()


def test_what_cannot_be_asked_for_is_told_and_the_rest_is_taken(
    masters: Cluster,
) -> None:
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


def test_locks_of_scripts_that_no_node_knows_are_taken_all_the_same(
    masters: Cluster, cluster_client: redis.RedisCluster
) -> None:
    for node in masters.nodes:
        masters.teller(node).script_flush()

    taken = take_each([RedisLock(cluster_client, f"lock:{number}") for number in range(30)])

    assert not [one.error for one in taken if one.error]
    assert release_each([one.held for one in taken if one.held]) == []
