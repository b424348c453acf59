"""Locks of asyncio on a cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import redis.asyncio
from django.test import override_settings

from django_setnx_lock import LockBusy, LockUnavailable, LockUnsupported, lock
from django_setnx_lock.core import RedisLock
from tests.processes import Stopwatch, figure, may_be_late, run, until
from tests.redis.test_cluster_cache import settings_for
from tests.servers import free_port

if TYPE_CHECKING:
    from tests.redis.clusters import Cluster

# One process starts the servers.
pytestmark = pytest.mark.xdist_group("three primaries")

NAME = "lock:a"


def test_a_lock_of_a_cache_is_taken_in_asyncio(masters: Cluster) -> None:
    async def work() -> None:
        for number in range(10):
            async with lock(f"{{order}}:{number}", timeout=10) as held:
                await held.acheck()
                await held.aextend(5)
                assert await lock(f"{{order}}:{number}").alocked()
            assert not await lock(f"{{order}}:{number}").alocked()

    with override_settings(**settings_for(masters.urls[0])):
        run(work())


def test_a_cluster_that_is_not_there_is_told(masters: Cluster) -> None:
    async def work() -> None:
        with pytest.raises(LockUnavailable) as caught:
            await lock("order:42").atake(0)
        assert caught.value.cause == "unreachable"

    with override_settings(**settings_for(f"redis://127.0.0.1:{free_port()}/0")):
        run(work())


@may_be_late(0.2)
def test_a_task_that_waits_is_woken(cluster_client: redis.RedisCluster, late: float) -> None:
    async def work() -> float:
        held = await RedisLock(cluster_client, NAME).atake(0)
        with pytest.raises(LockBusy):
            await RedisLock(cluster_client, NAME).atake(0)
        waiting = asyncio.create_task(RedisLock(cluster_client, NAME).atake(20))
        await until(lambda: cluster_client.zcard(f"{{{NAME}}}:waiters"))
        with Stopwatch() as watch:
            await held.arelease()
            await (await waiting).arelease()
        return watch.seconds

    seconds = run(work())

    figure(f"on a cluster in asyncio, from a release to the next: {seconds:.3f} s")
    assert seconds < late


def test_a_task_that_is_cancelled_leaves_nothing(cluster_client: redis.RedisCluster) -> None:
    async def work() -> None:
        async with RedisLock(cluster_client, NAME):
            waiting = asyncio.create_task(RedisLock(cluster_client, NAME).atake(20))
            await until(lambda: cluster_client.zcard(f"{{{NAME}}}:waiters"))
            waiting.cancel()
            await asyncio.wait([waiting])
            assert not cluster_client.zcard(f"{{{NAME}}}:waiters")

    run(work())

    assert not cluster_client.exists(NAME)


async def outlive_a_slow_move(masters: Cluster, client: redis.RedisCluster, seconds: float) -> None:
    slot = masters.slot_of(NAME)
    source = masters.owner_of(slot)
    new = masters.nodes[masters.nodes.index(source) - 1]
    held = await RedisLock(client, NAME, 1.0, renew=True).atake(0)
    masters.begin_move(slot, source, new)
    try:
        await asyncio.sleep(seconds)
        masters.move_keys(slot, source, new)
        await asyncio.sleep(seconds)
    finally:
        masters.move_keys(slot, source, new)
        masters.end_move(slot, new)
    await held.acheck()
    await held.arelease()


@pytest.mark.storm
def test_a_lock_is_renewed_however_long_its_slot_moves(
    masters: Cluster, cluster_client: redis.RedisCluster
) -> None:
    run(outlive_a_slow_move(masters, cluster_client, 1.2))

    assert not cluster_client.exists(NAME)


def test_tasks_and_threads_exclude_each_other_while_the_slot_moves(
    masters: Cluster, cluster_client: redis.RedisCluster
) -> None:
    counted = {"number": 0, "added": 0}

    async def add(over: asyncio.Event) -> None:
        while not over.is_set():
            async with RedisLock(cluster_client, NAME, 2.0, blocking_timeout=30, renew=True):
                seen = counted["number"]
                await asyncio.sleep(0.001)
                counted["number"] = seen + 1
                counted["added"] += 1

    async def work() -> None:
        over = asyncio.Event()
        tasks = [asyncio.create_task(add(over)) for _ in range(5)]
        for _ in range(3):
            await asyncio.to_thread(masters.move, masters.slot_of(NAME), pause=0.03)
            await asyncio.sleep(0.3)
        over.set()
        await asyncio.gather(*tasks)

    run(work())

    figure(f"{counted['added']} additions by 5 tasks during 3 moves of the slot")
    assert counted["number"] == counted["added"] > 10


def test_a_cluster_client_of_asyncio_is_refused(masters: Cluster) -> None:
    async def work() -> None:
        client = redis.asyncio.RedisCluster.from_url(masters.urls[0])
        try:
            with pytest.raises(LockUnsupported, match=r"redis\.RedisCluster"):
                await RedisLock(client, NAME).atake(0)
        finally:
            await client.aclose()

    run(work())
