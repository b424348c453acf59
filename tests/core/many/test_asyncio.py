"""Several keys at once in asyncio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import redis

from django_setnx_lock import LockBusy, LockError, LockLost, LockUnavailable
from django_setnx_lock.core.protocol import scripts
from tests.core.aio.helpers import run, until
from tests.core.helpers import listed, queue_of
from tests.core.many.helpers import as_given, held_names, many
from tests.servers import ONCE

if TYPE_CHECKING:
    from django_setnx_lock.core import MultiLockHandle
    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

pytestmark = pytest.mark.usefixtures("fake_connections")


def test_all_are_held_in_the_block_and_none_after_it(redis_client: redis.Redis) -> None:
    async def work() -> None:
        async with many(redis_client, "cab") as held:
            assert list(held) == ["c", "a", "b"]
            assert held_names(redis_client) == "abc"
            await held.acheck()

    run(work())

    assert held_names(redis_client) == ""


def test_where_one_is_busy_none_is_taken(redis_client: redis.Redis) -> None:
    listed(redis_client, "b").acquire()

    async def work() -> None:
        await many(redis_client, "abc").atake(0.05)

    with pytest.raises(LockBusy) as caught:
        run(work())

    assert caught.value.key == "b"
    assert held_names(redis_client) == "b"


def test_what_was_acquired_is_looked_after_and_released(redis_client: redis.Redis) -> None:
    async def work() -> list[float]:
        lock = many(redis_client, "ab", timeout=10)
        assert await lock.aacquire(blocking=False)
        assert not await many(redis_client, "bc").aacquire(blocking=False)
        found = []
        await lock.aextend(10)
        found.append(lock.remaining())
        await lock.aextend(50, replace_ttl=True)
        found.append(lock.remaining())
        await lock.areacquire()
        found.append(lock.remaining())
        await lock.acheck()
        assert await lock.aowned()
        assert await many(redis_client, "cb").alocked()
        await lock.arelease()
        assert not await many(redis_client, "cb").alocked()
        return found

    assert run(work()) == pytest.approx([20, 50, 50], abs=1)


def test_tasks_that_give_the_keys_in_opposite_order_do_not_wait_for_each_other(
    redis_client: redis.Redis,
) -> None:
    assert run(crossing(redis_client, 15)) == [True, True]


def test_without_the_order_they_would_wait_for_each_other(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_given(monkeypatch)

    assert False in run(crossing(redis_client, 0.2))


async def crossing(client: redis.Redis, limit: float) -> list[bool]:
    """Have two wait for what the other would hold first, if they took keys as given."""
    first, second = await listed(client, "a").atake(), await listed(client, "b").atake()

    async def take(keys: str) -> bool:
        lock = many(client, keys, blocking_timeout=limit)
        is_taken = await lock.aacquire()
        if is_taken:
            await lock.arelease()
        return is_taken

    tasks = [asyncio.ensure_future(take(keys)) for keys in ("ab", "ba")]
    await until(lambda: len(queue_of(client, "lock:a")) + len(queue_of(client, "lock:b")) == 2)
    await first.arelease()
    await until(lambda: queue_of(client, "lock:b"))
    await second.arelease()
    return await asyncio.gather(*tasks)


def test_tasks_and_threads_exclude_one_another(redis_client: redis.Redis) -> None:
    async def work() -> bool:
        async with many(redis_client, "ab"):
            return await asyncio.to_thread(many(redis_client, "bc").acquire, blocking=False)

    assert run(work()) is False


@pytest.mark.parametrize("options", [{"renew": True, "timeout": 0.3}, {"timeout": 0.3}], ids=str)
def test_a_loss_of_one_cancels_the_block(
    redis_client: redis.Redis, options: dict[str, float]
) -> None:
    async def work() -> None:
        async with many(redis_client, "ab", **options):
            redis_client.delete("lock:b")
            await asyncio.sleep(20)

    with pytest.raises(LockLost):
        run(work())


def test_a_block_goes_on_when_one_was_let_go_in_it(redis_client: redis.Redis) -> None:
    async def work() -> None:
        async with many(redis_client, "ab", timeout=0.3) as held:
            await held["a"].arelease()
            await held["b"].aextend(20)
            await asyncio.sleep(0.4)

    run(work())

    assert held_names(redis_client) == ""


def test_all_are_let_go_although_one_was_lost(redis_client: redis.Redis) -> None:
    async def work() -> None:
        held = await many(redis_client, "abc").atake()
        redis_client.delete("lock:b")
        assert not await held.aowned()
        with pytest.raises(LockLost, match="'b'"):
            await held.arelease()
        assert held.lost

    run(work())

    assert held_names(redis_client) == ""


def test_what_the_task_holds_already_is_had_again(redis_client: redis.Redis) -> None:
    async def work() -> None:
        async with (
            listed(redis_client, "b", reentrant=True) as outer,
            many(redis_client, "ab", reentrant=True) as held,
        ):
            assert held["b"].token == outer.token

    run(work())

    assert held_names(redis_client) == ""


def test_on_lost_is_called_once_with_the_handle_of_all(redis_client: redis.Redis) -> None:
    told: list[MultiLockHandle] = []

    async def work() -> MultiLockHandle:
        held = await many(redis_client, "ab", on_lost=told.append).atake()
        redis_client.delete("lock:a", "lock:b")
        with pytest.raises(LockLost):
            await held.acheck()
        return held

    assert [run(work())] == told


def test_what_is_released_twice_is_an_error(redis_client: redis.Redis) -> None:
    async def work() -> None:
        held = await many(redis_client, "ab").atake()
        await held.arelease()
        await held.arelease()

    with pytest.raises(LockError, match="released already"):
        run(work())


def test_scripts_that_were_flushed_are_sent_again(redis_client: redis.Redis) -> None:
    async def work() -> None:
        async with many(redis_client, "ab") as held:
            redis_client.script_flush()
            await held.acheck()
            redis_client.script_flush()

    run(work())

    assert held_names(redis_client) == ""


def test_a_lost_connection_is_made_again(real_server: RealServer) -> None:
    client = real_server.client()

    async def work() -> None:
        async with many(client, "ab") as held:
            client.client_kill_filter(_type="normal", skipme=True)
            await held.acheck()

    run(work())

    assert held_names(client) == ""


def test_a_server_that_is_gone_is_unavailable(proxy: Proxy) -> None:
    async def work() -> None:
        held = await many(proxy.client(retry=ONCE), "ab").atake()
        await asyncio.to_thread(proxy.refuse)
        with pytest.raises(LockUnavailable, match="the locks are unavailable"):
            await held.arelease()
        await asyncio.to_thread(proxy.accept)
        await held.arelease()

    run(work())


def test_a_release_whose_reply_is_cut_off_is_a_success(
    proxy: Proxy, real_server: RealServer
) -> None:
    direct = real_server.client()
    dropped = []

    async def work() -> None:
        async with many(proxy.client(), "ab"):
            direct.script_load(scripts.RELEASE.source)
            dropped.append(proxy.drop_next_reply(scripts.RELEASE.sha.encode()))

    run(work())

    assert dropped[0].is_set()
    assert held_names(direct) == ""


def test_times_at_the_names_are_taken_one_after_the_other(redis_client: redis.Redis) -> None:
    async def work() -> None:
        async with many(redis_client, "ba", protocol="timestamp") as held:
            assert held.fences["a"] < held.fences["b"]
            await held.acheck()

    run(work())

    assert held_names(redis_client) == ""
