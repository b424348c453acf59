"""Letting go where our lock does otherwise than redis-py's: each test is a row of the docs."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import pytest
import redis
import redis.asyncio.lock
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import LockError, LockNotOwnedError

from django_setnx_lock import LockBusy, LockUnavailable
from django_setnx_lock.core import LockHandle
from tests.core.helpers import in_thread
from tests.core.redis_py import NAME, OURS, THEIRS, can_log_a_failed_release, differs
from tests.servers import FakeServer, RealServer


@differs("Redis cannot be asked")
def test_a_server_that_is_down_is_one_error() -> None:
    down = FakeServer()
    down.connected = False

    with pytest.raises(RedisConnectionError):
        THEIRS(down.client(), NAME).acquire()
    with pytest.raises(LockUnavailable) as caught:
        OURS(down.client(), NAME).acquire()

    assert isinstance(caught.value, LockError)
    assert not isinstance(caught.value, RedisConnectionError | LockBusy)


@differs("`release()` that could not be sent")
def test_a_release_that_failed_can_be_called_again() -> None:
    server = FakeServer()
    theirs, ours = THEIRS(server.client(), "lock:theirs"), OURS(server.client(), "lock:ours")
    theirs.acquire()
    ours.acquire()
    server.connected = False
    for lock, error in ((theirs, RedisConnectionError), (ours, LockUnavailable)):
        with pytest.raises(error):
            lock.release()
    server.connected = True

    with pytest.raises(LockError):
        theirs.release()
    ours.release()

    assert theirs.locked()
    assert not ours.locked()


@differs("what `with … as` gives")
def test_a_block_gives_a_handle(redis_client: redis.Redis) -> None:
    theirs, ours = THEIRS(redis_client, "lock:theirs"), OURS(redis_client, "lock:ours")

    with theirs as given:
        assert given is theirs
    with ours as given:
        assert isinstance(given, LockHandle)
        names = set(dir(given))

    assert names >= {"extend", "reacquire", "release", "owned", "locked", "name", "token", "fence"}
    assert "acquire" not in names


@differs("`release()` inside the block")
def test_a_block_may_release_before_its_end(redis_client: redis.Redis) -> None:
    with pytest.raises(LockError), THEIRS(redis_client, NAME) as held:
        held.release()

    with OURS(redis_client, NAME) as held:
        held.release()


@differs("a block of asyncio whose lock is lost")
def test_a_loss_ends_a_block_of_asyncio(real_server: RealServer) -> None:
    ended = []

    async def hold(library: Any, seconds: float) -> None:
        async with (
            redis.asyncio.Redis(port=real_server.port) as client,
            client.lock(NAME, timeout=0.05, lock_class=library),
        ):
            await asyncio.sleep(seconds)
            ended.append(library)

    for library, seconds in ((redis.asyncio.lock.Lock, 0.1), (OURS, 10)):
        with pytest.raises(LockNotOwnedError):
            asyncio.run(hold(library, seconds))

    assert ended == [redis.asyncio.lock.Lock]


@differs("a block that fails although its lock was lost")
def test_the_exception_of_a_block_is_not_replaced(redis_client: redis.Redis) -> None:
    def fail(lock: Any) -> None:
        with lock:
            redis_client.delete(NAME)
            raise ZeroDivisionError

    with pytest.raises(LockNotOwnedError):
        fail(THEIRS(redis_client, NAME))
    with pytest.raises(ZeroDivisionError):
        fail(OURS(redis_client, NAME))


@differs("`raise_on_release_error=False`")
@can_log_a_failed_release
def test_what_is_logged_where(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeServer()

    def leave(lock: Any, *, unreachable: bool) -> None:
        server.flush()
        with lock:
            server.client().delete(NAME)
            server.connected = not unreachable

    with caplog.at_level(logging.WARNING):
        for library in (THEIRS, OURS):
            leave(library(server.client(), NAME, raise_on_release_error=False), unreachable=False)
        with pytest.raises(RedisConnectionError):
            leave(THEIRS(server.client(), NAME, raise_on_release_error=False), unreachable=True)
        leave(OURS(server.client(), NAME, raise_on_release_error=False), unreachable=True)

    names = [record.name for record in caplog.records]
    assert names == ["redis.lock", "django_setnx_lock.lock", "django_setnx_lock.lock"]


@differs("a thread that holds nothing, with `thread_local=True`")
def test_a_thread_that_holds_nothing_is_told_so(redis_client: redis.Redis) -> None:
    theirs, ours = THEIRS(redis_client, "lock:theirs"), OURS(redis_client, "lock:ours")
    theirs.acquire()
    ours.acquire()

    for ask in (theirs.release, theirs.owned):
        with pytest.raises(AttributeError):
            in_thread(ask)
    with pytest.raises(LockError):
        in_thread(ours.release)

    assert in_thread(ours.owned) is False
    assert ours.owned()


@differs("a process forked from the holder")
def test_a_forked_process_owns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    client = FakeServer().client()
    theirs, ours = THEIRS(client, "lock:theirs"), OURS(client, "lock:ours")
    theirs.acquire()
    ours.acquire()
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 1)

        theirs.release()
        with pytest.raises(LockError):
            ours.release()

    assert not theirs.locked()
    assert ours.owned()
