"""A lock on the primary that a Sentinel names, for its requests and for those who wait."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.sentinel import Sentinel

from django_setnx_lock.core import RedisLock
from example_project.server import TIED_TO_ITS_STARTER
from tests.processes import eventually, figure
from tests.servers import RealServer, free_port
from tests.support import seams
from tests.support.locks import command, listeners

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REAL = pytest.mark.real


def answers(port: int) -> bool:
    try:
        with redis.Redis(port=port) as client:
            return bool(client.ping())
    except redis.exceptions.ConnectionError:
        return False


@contextlib.contextmanager
def watched_over(server: RealServer, folder: Path) -> Iterator[redis.Redis]:
    """Give a client of a Sentinel that knows the server as ``shop``."""
    port = free_port()
    settings = folder / "sentinel.conf"
    settings.write_text(
        f"bind 127.0.0.1\nport {port}\nsentinel monitor shop 127.0.0.1 {server.port} 1\n"
    )
    tie = [sys.executable, "-ISc", TIED_TO_ITS_STARTER, str(os.getpid())]
    command = [*tie, server.binary, str(settings), "--sentinel"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: answers(port))
            with redis.Redis(port=port) as client:
                yield client
        finally:
            process.kill()


def client_of(sentinel: redis.Redis) -> redis.Redis:
    """Return a client of the primary of ``shop``."""
    address = ("127.0.0.1", sentinel.connection_pool.connection_kwargs["port"])
    found: redis.Redis = Sentinel([address]).master_for("shop")  # type: ignore[no-untyped-call]  # redis-py's own
    return found


@REAL
def test_a_lock_is_taken_waited_for_and_handed_on(server: RealServer, tmp_path: Path) -> None:
    with (
        watched_over(server, tmp_path) as sentinel,
        client_of(sentinel) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        with RedisLock(client, "lock:a") as held:
            held.reacquire()
            waiting = pool.submit(RedisLock(client, "lock:a").take, 20)
            eventually(lambda: listeners(server) == 1)
        following = waiting.result(10)

        assert server.client().get("lock:a") == following.token.encode()
        following.release()


@pytest.mark.parametrize("is_async", [False, True])
@REAL
def test_connections_are_kept_while_no_sentinel_answers(
    server: RealServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    seams.ask_sentinels_always(monkeypatch)

    def use(client: redis.Redis) -> None:
        RedisLock(client, "lock:a").take(0).release()

    async def use_twice(client: redis.Redis, end: contextlib.ExitStack) -> None:
        for _ in range(2):
            await (await RedisLock(client, "lock:a").atake(0)).arelease()
            end.close()

    with contextlib.ExitStack() as stack:
        client = client_of(stack.enter_context(watched_over(server, tmp_path)))
        if is_async:
            asyncio.run(use_twice(client, stack))
        else:
            use(client)
            stack.close()
            use(client)
    client.close()


def knows_a_replica(sentinel: redis.Redis) -> bool:
    known: Any = command(sentinel, "SENTINEL", "REPLICAS", "shop")
    return len(known) == 1


# It takes ten seconds for the Sentinel to know the replica well enough.
@pytest.mark.storm
@REAL
def test_a_wait_goes_on_at_the_new_primary_after_a_failover(
    server: RealServer, tmp_path: Path
) -> None:
    with (
        RealServer(server.binary) as old,
        RealServer(server.binary, "--replicaof", "127.0.0.1", str(old.port)) as new,
        watched_over(old, tmp_path) as sentinel,
        client_of(sentinel) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        eventually(lambda: knows_a_replica(sentinel), seconds=20)
        held = RedisLock(client, "lock:a", 60).take(0)
        waiting = pool.submit(RedisLock(client, "lock:a").take, 60)
        eventually(lambda: listeners(old) == 1)
        eventually(lambda: new.client().zcard("{lock:a}:waiters"))

        started = time.monotonic()
        eventually(lambda: ordered(sentinel), seconds=20)
        eventually(lambda: listeners(new) == 1, seconds=20)
        took = time.monotonic() - started
        held.release()

        following = waiting.result(10)
        assert new.client().get("lock:a") == following.token.encode()
        following.release()
    figure(f"waiting on at the new primary {took:.1f} s after the failover was ordered")


def ordered(sentinel: redis.Redis) -> bool:
    try:
        command(sentinel, "SENTINEL", "FAILOVER", "shop")
    except redis.exceptions.ResponseError:
        # It does not know enough of the replica as yet.
        return False
    return True
