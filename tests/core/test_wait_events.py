"""What listeners are told of waits."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockUnavailable
from django_setnx_lock.core import RedisLock, Redlock
from django_setnx_lock.core.events import ACQUIRED, BUSY, WAITED, WAITING
from tests.core.aio.helpers import run, until
from tests.core.helpers import queue_of
from tests.core.many.helpers import many
from tests.processes import eventually
from tests.servers import ONCE, FakeServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

EVENTS = (WAITING, WAITED, ACQUIRED, BUSY)
Told = list[tuple[str, dict[str, Any]]]


async def cancelled_waiting(lock: Any, told: Told) -> None:
    """Have a task wait for a lock, and cancel it."""
    task = asyncio.ensure_future(lock.atake(20))
    await until(lambda: told)
    task.cancel()
    await asyncio.wait([task])


@pytest.fixture
def told() -> Iterator[Told]:
    """Give what listeners are told, in order."""
    found: Told = []

    def listener(name: str) -> Any:
        return lambda **about: found.append((name, about))

    listeners = [(event, listener(event.name)) for event in EVENTS]
    for event, listen in listeners:
        event.listeners.append(listen)
    yield found
    for event, listen in listeners:
        event.listeners.remove(listen)


def names(told: Told) -> list[str]:
    return [name for name, _ in told]


def test_a_wait_is_told_when_it_begins_and_when_it_has_ended(
    redis_client: redis.Redis, told: Told
) -> None:
    holder = RedisLock(redis_client, "lock:a", label="view pay").take()
    told.clear()
    waiting = RedisLock(redis_client, "lock:a", key="a", template="<x>")

    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(waiting.take, 20)
        eventually(lambda: told)
        began = [*told]
        holder.release()
        taken.result(20)

    assert names(began) == ["lock_waiting"]
    assert names(told) == ["lock_waiting", "lock_waited", "lock_acquired"]
    first, then = told[0][1], told[1][1]
    assert first == {"key": "a", "template": "<x>", "holder": first["holder"]}
    assert first["holder"].label == "view pay"
    assert then == {**first, "waited": then["waited"], "error": None}
    assert 0 < then["waited"] < 20


def test_no_wait_is_told_of_a_lock_that_is_free(redis_client: redis.Redis, told: Told) -> None:
    with RedisLock(redis_client, "lock:a"):
        pass

    assert names(told) == ["lock_acquired"]


def test_no_wait_is_told_of_a_caller_that_does_not_wait(
    redis_client: redis.Redis, told: Told
) -> None:
    RedisLock(redis_client, "lock:a").take()
    told.clear()

    with pytest.raises(LockBusy):
        RedisLock(redis_client, "lock:a").take(0)

    assert names(told) == ["lock_busy"]


def test_a_wait_that_is_over_is_told_with_the_error(redis_client: redis.Redis, told: Told) -> None:
    RedisLock(redis_client, "lock:a").take()
    told.clear()

    with pytest.raises(LockBusy) as caught:
        RedisLock(redis_client, "lock:a").take(0.05)

    assert names(told) == ["lock_waiting", "lock_waited", "lock_busy"]
    assert told[1][1]["error"] is caught.value


def test_a_caller_that_asks_again_and_again_waits_once(
    redis_client: redis.Redis, told: Told
) -> None:
    redis_client.set("lock:a", "of somebody else", px=300)

    RedisLock(redis_client, "lock:a").take(20)

    assert names(told) == ["lock_waiting", "lock_waited", "lock_acquired"]
    assert told[0][1]["holder"] is None


@pytest.mark.usefixtures("fake_connections")
def test_a_cancellation_ends_a_wait_in_asyncio(redis_client: redis.Redis, told: Told) -> None:
    RedisLock(redis_client, "lock:a").take()
    told.clear()

    run(cancelled_waiting(RedisLock(redis_client, "lock:a"), told))

    assert names(told) == ["lock_waiting", "lock_waited"]
    assert isinstance(told[1][1]["error"], asyncio.CancelledError)
    assert not queue_of(redis_client)


def test_an_outage_ends_a_wait(real_server: RealServer, proxy: Proxy, told: Told) -> None:
    client = real_server.client()
    RedisLock(client, "lock:a").take()
    told.clear()

    with redis.Redis(port=proxy.port, retry=ONCE) as cut_off, ThreadPoolExecutor(1) as pool:
        taken = pool.submit(RedisLock(cut_off, "lock:a").take, 20)
        eventually(lambda: told)
        proxy.refuse()
        error = taken.exception(20)

    assert isinstance(error, LockUnavailable)
    assert names(told) == ["lock_waiting", "lock_waited"]
    assert told[1][1]["error"] is error


def test_of_several_keys_each_that_is_waited_for_is_told(
    redis_client: redis.Redis, told: Told
) -> None:
    first, second = (RedisLock(redis_client, f"lock:{key}", label=key).take() for key in "ac")
    told.clear()

    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(many(redis_client, "abc").take, 20)
        eventually(lambda: queue_of(redis_client, "lock:a"))
        first.release()
        eventually(lambda: queue_of(redis_client, "lock:c"))
        second.release()
        taken.result(20)

    waits = [(name, about["key"]) for name, about in told if name != "lock_acquired"]
    assert waits == [
        ("lock_waiting", "a"),
        ("lock_waited", "a"),
        ("lock_waiting", "c"),
        ("lock_waited", "c"),
    ]
    assert [about["holder"].label for name, about in told if name == "lock_waiting"] == ["a", "c"]
    assert names(told)[4:] == ["lock_acquired"] * 3


def test_a_wait_for_one_of_several_keys_ends_with_an_error_too(
    redis_client: redis.Redis, told: Told
) -> None:
    RedisLock(redis_client, "lock:b").take()
    told.clear()

    with pytest.raises(LockBusy) as caught:
        many(redis_client, "ab").take(0.05)

    assert [(name, about["key"]) for name, about in told] == [
        ("lock_waiting", "b"),
        ("lock_waited", "b"),
        ("lock_busy", "b"),
    ]
    assert told[1][1]["error"] is caught.value


@pytest.mark.usefixtures("fake_connections")
def test_a_cancellation_ends_a_wait_for_several_keys(redis_client: redis.Redis, told: Told) -> None:
    RedisLock(redis_client, "lock:a").take()
    told.clear()

    run(cancelled_waiting(many(redis_client, "ab"), told))

    assert names(told) == ["lock_waiting", "lock_waited"]
    assert isinstance(told[1][1]["error"], asyncio.CancelledError)


def test_a_wait_for_a_redlock_is_told_once(told: Told) -> None:
    clients = [FakeServer().client() for _ in range(3)]
    Redlock(clients, "lock:a", master_timeout=9, label="view pay").take()
    told.clear()

    with pytest.raises(LockBusy):
        Redlock(clients, "lock:a", master_timeout=9).take(0.3)

    assert names(told) == ["lock_waiting", "lock_waited", "lock_busy"]
    assert told[0][1]["holder"].label == "view pay"


def test_a_wait_tells_no_token(redis_client: redis.Redis, told: Told) -> None:
    held = RedisLock(redis_client, "lock:a").take()

    with pytest.raises(LockBusy):
        RedisLock(redis_client, "lock:a").take(0.05)

    assert held.token not in repr(told)
