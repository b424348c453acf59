"""What locks leave in Redis: bounded by the number of names, not of attempts."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import redis.asyncio

from django_setnx_lock import LockBusy
from django_setnx_lock.core import MultiLock, RedisLock
from django_setnx_lock.core.protocol import scripts
from tests.wire.helpers import Meta, meta_of, write_meta

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.servers import RealServer

TIMES = 20
KINDS: list[dict[str, object]] = [{}, {"renew": True}, {"shared": True}, {"limit": 2}]


@pytest.fixture
def client(real_server: RealServer) -> redis.Redis:
    """Give a client of a server that knows the scripts."""
    client = real_server.client()
    for script in vars(scripts).values():
        if isinstance(script, scripts.Script):
            client.script_load(script.source)
    return client


def beside(client: redis.Redis) -> set[str]:
    return {str(key).rpartition("}:")[2].partition(":")[0] for key in client.keys("{*")}


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_cycles_leave_no_key_each(client: redis.Redis, options: dict[str, object]) -> None:
    for _ in range(TIMES):
        with RedisLock(client, "lock:a", index="{lock:}:index", **options):  # type: ignore[arg-type]
            pass

    assert client.keys("*") == [b"{lock:a}:meta"]
    assert 0 < client.pttl("{lock:a}:meta") <= 60_000


def test_cycles_of_several_keys_leave_one_for_each_name(client: redis.Redis) -> None:
    for _ in range(TIMES):
        with MultiLock(client, ["lock:a", "lock:b"]):
            pass

    assert sorted(client.keys("*")) == [b"{lock:a}:meta", b"{lock:b}:meta"]


def test_cycles_of_tasks_leave_no_key_each(client: redis.Redis, real_server: RealServer) -> None:
    async def cycles() -> None:
        own = redis.asyncio.Redis.from_url(real_server.url)
        for _ in range(TIMES):
            async with RedisLock(own, "lock:a"):
                pass
        await own.aclose()

    asyncio.run(cycles())

    assert client.keys("*") == [b"{lock:a}:meta"]


def refused(client: redis.Redis, options: dict[str, object]) -> None:
    with suppress(LockBusy):
        RedisLock(client, "lock:a", **options).take(0)  # type: ignore[arg-type]


def refused_after_waiting(client: redis.Redis, options: dict[str, object]) -> None:
    with suppress(LockBusy):
        RedisLock(client, "lock:a", **options).take(0.02)  # type: ignore[arg-type]


def refused_several(client: redis.Redis, options: dict[str, object]) -> None:
    with suppress(LockBusy):
        MultiLock(client, ["lock:0", "lock:a"]).take(0)


def cancelled(client: redis.Redis, options: dict[str, object]) -> None:
    url = "redis://127.0.0.1:{port}".format(**client.get_connection_kwargs())

    async def wait() -> None:
        own = redis.asyncio.Redis.from_url(url)
        waiting = asyncio.create_task(
            RedisLock(own, "lock:a", **options).atake(None)  # type: ignore[arg-type]
        )
        while not client.zcard("{lock:a}:waiters"):  # noqa: ASYNC110 - only Redis tells
            await asyncio.sleep(0.001)
        # It sleeps in its mailbox, and nothing is to be answered but that.
        await asyncio.sleep(0.02)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        await own.aclose()

    asyncio.run(wait())


@pytest.mark.parametrize("options", KINDS, ids=str)
@pytest.mark.parametrize("ask", [refused, refused_after_waiting, refused_several, cancelled])
def test_who_does_not_get_it_leaves_nothing(
    client: redis.Redis,
    ask: Callable[[redis.Redis, dict[str, object]], None],
    options: dict[str, object],
) -> None:
    with RedisLock(client, "lock:a"):
        for _ in range(3):
            ask(client, options)

    assert "gone" not in beside(client)


def test_a_name_leaves_less_than_400_bytes_for_a_minute(client: redis.Redis) -> None:
    for number in range(TIMES):
        with RedisLock(client, f"lock:order:{number}", index="{lock:}:index"):
            pass

    keys = client.keys("*")
    assert len(keys) == TIMES
    assert max(client.memory_usage(key) or 0 for key in keys) < 400
    assert max(map(client.pttl, keys)) <= 60_000


def test_what_was_sent_twice_is_remembered(client: redis.Redis) -> None:
    held = RedisLock(client, "lock:a").take()
    held.grant.in_doubt = True

    held.release()

    assert client.get("{lock:a}:gone:" + held.token) == b"released"


def test_a_fence_grows_though_the_clock_of_the_server_stepped_back(client: redis.Redis) -> None:
    ahead = 9_000_000_000_000_000
    write_meta(client, Meta(ahead, "x", "{}"))

    fences = []
    for _ in range(2):
        with RedisLock(client, "lock:a") as held:
            fences.append(held.fence)

    assert fences == [ahead + 1, ahead + 2]


def test_what_stands_beside_a_name_outlives_the_lease_by_a_minute(client: redis.Redis) -> None:
    with RedisLock(client, "lock:a", 5) as held:
        assert 64_000 < client.pttl("{lock:a}:meta") <= 65_000
        held.extend(600)
        assert 664_000 < client.pttl("{lock:a}:meta") <= 665_000
        found = meta_of(client)

    assert found.token == held.token
    assert found.fence == held.fence
