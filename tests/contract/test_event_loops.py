"""Threads, event loops and clients of either sort at one lock."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import redis.asyncio

from django_setnx_lock import LockUnavailable, LockUnsupported
from django_setnx_lock.core import Inspector
from tests.processes import run
from tests.servers import ONCE, RealServer, free_port
from tests.support.kinds import EXCLUSIVE, ONE_SERVER, QUEUED, SEVERAL
from tests.support.rows import on

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.world import World

FREED = "use the method with the prefix a"
LOOKS: dict[str, Callable[[Inspector], object]] = {
    "get": lambda inspector: inspector.get("lock:a"),
    "get_each": lambda inspector: inspector.get_each(["lock:a"]),
    "find": lambda inspector: inspector.find(),
    "force_release": lambda inspector: inspector.force_release("lock:a", ""),
}


@on(drivers=["asyncio"])
async def test_what_blocks_is_refused_in_an_event_loop_and_changes_nothing(a: World) -> None:
    lock = a.lock().raw
    for name in ("take", "acquire", "locked", "__enter__"):
        with pytest.raises(Exception, match=FREED):
            getattr(lock, name)()
    assert a.is_free()
    async with lock as held:
        for asked in (lock, held):
            for name in ("check", "reacquire", "release"):
                with pytest.raises(Exception, match=FREED):
                    getattr(asked, name)()
        await held.acheck()
    assert a.is_free()


@on([EXCLUSIVE], drivers=["blocking"], real=True)
async def test_a_loop_that_is_closed_by_hand_leaves_no_connection(a: World) -> None:
    async def wait_and_hold() -> None:
        held = await a.lock(renew=True).raw.atake(0)
        waiting = asyncio.create_task(a.lock().raw.atake(20))
        while a.info().waiting < 1 or not a.sleepers():  # noqa: ASYNC110 - that is what is waited for
            await asyncio.sleep(0.005)
        await held.arelease()
        await (await waiting).arelease()

    def connections() -> int:
        clients: Any = a.direct.client_list()
        return len(clients)

    # The operator has one of its own.
    assert a.info().waiting == 0
    before, loop = connections(), asyncio.new_event_loop()
    try:
        loop.run_until_complete(wait_and_hold())
        # As docs/code.md has it.
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    assert a.is_free()
    await a.eventually(lambda: connections() <= before, seconds=5)


@on([EXCLUSIVE], drivers=["asyncio"])
async def test_nobody_looks_at_locks_in_an_event_loop(a: World) -> None:
    for look in LOOKS.values():
        with pytest.raises(Exception, match="waits for Redis"):
            look(Inspector(a.client, "lock:"))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="no tasks begin at once before Python 3.12")
@on([EXCLUSIVE], drivers=["asyncio"], real=True)
async def test_a_server_that_comes_late_is_found_where_tasks_begin_at_once(
    a: World, tmp_path: Path
) -> None:
    path, loop = tmp_path / "late.sock", asyncio.get_running_loop()
    a.asks_at(redis.Redis(unix_socket_path=str(path)))
    loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]  # of Python 3.12
    try:
        with pytest.raises(LockUnavailable):
            await a.lock().take(0)
        path.symlink_to(a.server.directory / "redis.sock")

        held = await a.lock().take(0)
        await held.release()
    finally:
        loop.set_task_factory(None)
        a.client.close()


@on([EXCLUSIVE], drivers=["asyncio"], real=True)
async def test_tasks_of_a_loop_whose_connection_is_cut_again_and_again_wait_for_no_limit(
    a: World,
) -> None:
    # What is written just then is lost, and must not be written to another connection.
    is_over = False
    causes: set[str] = set()

    async def take_and_release(number: int) -> None:
        while not is_over:
            try:
                async with a.lock(f"lock:{number % 4}").block():
                    await asyncio.sleep(0)
            except LockUnavailable as error:
                # It was cut off twice.
                causes.add(error.cause)

    jobs = [a.spawn(take_and_release(number)) for number in range(20)]
    for _ in range(20):
        await a.sleep(0.05)
        await asyncio.to_thread(a.direct.client_kill_filter, _type="normal", skipme=True)
    is_over = True
    for job in jobs:
        await job.result()
    assert causes <= {"unreachable"}


@on(ONE_SERVER, drivers=["asyncio"])
async def test_a_handle_goes_to_a_thread_and_back(a: World) -> None:
    held = await a.lock(renew=True).raw.atake()
    await asyncio.to_thread(held.check)
    await asyncio.to_thread(held.release)
    assert a.is_free()
    held = await asyncio.to_thread(a.lock(renew=True).raw.take)
    await held.acheck()
    await held.arelease()
    assert a.is_free()


@on(QUEUED, drivers=["asyncio"])
async def test_threads_and_tasks_wait_in_one_queue(a: World) -> None:
    order: list[int] = []

    def in_a_thread(number: int) -> None:
        with a.rival(blocking_timeout=20).raw:
            order.append(number)

    async def in_a_task(number: int) -> None:
        async with a.rival(blocking_timeout=20).raw:
            order.append(number)

    held = await a.rival().take(0)
    jobs = []
    for number in range(6):
        work = in_a_task(number) if number % 2 else asyncio.to_thread(in_a_thread, number)
        jobs.append(asyncio.create_task(work))
        await a.waiting(number + 1)
    if isinstance(a.server, RealServer) and not a.kind.polls:
        # Each thread listens, and the loop.
        await a.eventually(lambda: a.sleepers() >= 3 + 1)
    await held.release()
    await asyncio.gather(*jobs)
    assert order == list(range(6))


@on(ONE_SERVER, drivers=["blocking"])
async def test_two_loops_in_two_threads_exclude_each_other(a: World) -> None:
    lock = a.rival().raw
    inside: list[int] = []
    overlaps: list[int] = []

    async def work() -> None:
        for _ in range(10):
            async with lock:
                inside.append(1)
                await asyncio.sleep(0)
                overlaps.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=run, args=[work()]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert overlaps == [1] * 20


@on([EXCLUSIVE], drivers=["asyncio"], real=True)
async def test_hundreds_of_tasks_wait_by_a_pool_of_two(a: World) -> None:
    a.asks_at(a.server.client(max_connections=2))
    inside: list[int] = []
    most: list[int] = []

    async def work(number: int) -> None:
        async with a.lock().raw:
            inside.append(number)
            await asyncio.sleep(0)
            most.append(len(inside))
            inside.remove(number)

    await asyncio.gather(*map(work, range(200)))
    assert most == [1] * 200


# Clients


@on(QUEUED, drivers=["asyncio"], real=True)
async def test_a_client_of_redis_asyncio_will_do(a: World) -> None:
    async with redis.asyncio.Redis(port=a.server.port) as client:
        a.asks_at(client)
        async with a.lock(renew=True).block() as held:
            await held.check()
            assert await a.rival().acquire(blocking=False) is False
            # Those of a synchronous client are in the same queue.
            a.asks_at(a.server.client())
            job = a.spawn(a.rival().take(20))
            await a.waiting(1)
        await (await job.result()).release()


@on([EXCLUSIVE], drivers=["blocking"])
async def test_a_client_of_redis_asyncio_will_not_do_where_nothing_is_awaited(a: World) -> None:
    a.asks_at(redis.asyncio.Redis(port=free_port()))
    with pytest.raises(TypeError, match="use async with"):
        a.lock().raw.take()


@on([EXCLUSIVE, SEVERAL])
async def test_a_client_without_a_pool_is_refused(a: World) -> None:
    a.asks_at(object())
    with pytest.raises(LockUnsupported, match="a client of one server"):
        await a.lock().take()


@on(ONE_SERVER)
async def test_a_server_that_nobody_listens_at_is_unavailable(a: World) -> None:
    a.asks_at(redis.Redis(port=free_port(), retry=ONCE))
    for name in ("take", "acquire", "locked"):
        with pytest.raises(LockUnavailable) as unavailable:
            await getattr(a.lock(), name)()
        assert unavailable.value.cause == "unreachable"


# What the package does with its own coroutines, which interrupts throw away, is none of theirs.
DROPS = """
from django_setnx_lock.core import RedisLock
exec("async def wait(): pass\\nwait()", {"__name__": "shop.views"})
"""


def test_a_coroutine_that_a_user_throws_away_is_told_of() -> None:
    command = [sys.executable, "-W", "always", "-c", DROPS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=40, check=True)
    assert "was never awaited" in done.stderr
