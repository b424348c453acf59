"""Connections of an event loop end with the client that the lock was made with."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio
from redis.sentinel import Sentinel

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import RedisLock
from tests.processes import run, until
from tests.servers import ONCE, RealServer
from tests.support.locks import queue_of

if TYPE_CHECKING:
    from collections.abc import Callable


async def take_and_wait(client: Any, watch: redis.Redis) -> None:
    held = await RedisLock(client, "lock:a", renew=True).atake(0)
    waiting = asyncio.create_task(RedisLock(client, "lock:a").atake())
    await until(lambda: queue_of(watch))
    await held.arelease()
    await (await waiting).arelease()


async def thrown_away(kind: Callable[..., Any], port: int) -> int:
    """Use clients of a ``kind`` and throw them away; return how many connections they leave."""
    with redis.Redis(port=port) as watch:

        def left() -> int:
            gc.collect()
            return sum(one["name"] == "tenant" for one in clients_of(watch))

        for _ in range(50):
            await take_and_wait(kind(port=port, client_name="tenant"), watch)
        # What renews keeps the connections of the last servers that it asked for 5 s.
        deadline = time.monotonic() + 10
        # Each look collects garbage: seldom enough to keep no processor busy.
        while (found := left()) and time.monotonic() < deadline:  # noqa: ASYNC110 - as until()
            await asyncio.sleep(0.25)
        return found


def clients_of(watch: redis.Redis) -> list[dict[str, str]]:
    found: Any = watch.client_list()
    return list(found)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(redis.Redis, id="redis", marks=pytest.mark.matrix),
        pytest.param(redis.asyncio.Redis, id="redis.asyncio"),
    ],
)
def test_clients_that_are_thrown_away_leave_no_connection_while_the_loop_runs(
    real_server: RealServer, kind: Callable[..., Any]
) -> None:
    assert run(thrown_away(kind, real_server.port), 50) == 0


def test_where_no_sentinel_answers_the_lock_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kind: Any = Sentinel
        sentinel = kind([silent.getsockname()], socket_timeout=0.1)
        client = sentinel.master_for("shop", socket_timeout=0.2, retry=ONCE)
        with pytest.raises(LockUnavailable):
            run(RedisLock(client, "lock:a").atake(0))
