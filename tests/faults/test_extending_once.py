"""What ``extend()`` adds is added once, however often the request for it arrives."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_setnx_lock.core import Inspector, LockHandle, MultiLock, RedisLock
from tests.core.aio.helpers import run
from tests.core.helpers import ask, send
from tests.faults.controls import take_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.proxy import Proxy
    from tests.servers import RealServer

ADDED = 100.0
KINDS: dict[str, dict[str, Any]] = {
    "setnx": {},
    "polling": {"polling": True},
    "readers": {"shared": True},
    "permits": {"limit": 2},
    "timestamp": {"protocol": "timestamp"},
}
# What sends a request again, if anything: redis-py itself, or else the lock.
CLIENTS = {"by redis-py": Retry(NoBackoff(), 3), "by the lock": Retry(NoBackoff(), 0)}
kinds = pytest.mark.parametrize("kind", KINDS)
RULE = "if string.find(noted, id, 1, true) then"
RENEWING = {
    "setnx": "RENEW",
    "polling": "POLLING_RENEW",
    "readers": "SHARED_RENEW",
    "permits": "SHARED_RENEW",
    "timestamp": "TIMESTAMP_RENEW",
}


def taken(client: Any, kind: str) -> LockHandle:
    """Take the lock; the server knows the script that adds to its lease."""
    held = RedisLock(client, "lock:a", 20, **KINDS[kind]).take(0)
    held.extend(1)
    return held


def left_at(server: RealServer) -> float:
    """Return for how many seconds Redis has the lock held."""
    left = Inspector(server.client(), "lock:", use_index=False).get("lock:a").remaining
    assert left is not None
    return left


@pytest.fixture
def twice(proxy: Proxy) -> Iterator[Any]:
    """Give what has the next request arrive twice, as its answer is cut off."""
    dropped = []
    yield lambda: dropped.append(proxy.drop_next_reply(b"EVALSHA"))
    assert [one.is_set() for one in dropped] == [True]


@kinds
@pytest.mark.parametrize("again", CLIENTS)
def test_an_extension_whose_reply_was_cut_off_adds_once(
    proxy: Proxy, real_server: RealServer, twice: Any, kind: str, again: str
) -> None:
    held = taken(proxy.client(retry=CLIENTS[again]), kind)
    began, before = time.monotonic(), left_at(real_server)
    twice()

    held.extend(ADDED)

    there, believed, passed = left_at(real_server), held.remaining(), time.monotonic() - began
    assert before + ADDED - passed - 0.01 <= there <= before + ADDED + 0.01
    # It counts from before the request was sent.
    assert before + ADDED - 2 * passed - 0.01 <= believed <= there + 0.01


@kinds
def test_without_knowing_its_copies_it_would_add_twice(
    proxy: Proxy,
    real_server: RealServer,
    twice: Any,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    take_out(monkeypatch, RENEWING[kind], RULE, "if false then")
    held = taken(proxy.client(retry=Retry(NoBackoff(), 0)), kind)
    twice()

    held.extend(ADDED)

    assert left_at(real_server) > 2 * ADDED


def test_one_of_several_keys_whose_reply_was_cut_off_adds_once(
    proxy: Proxy, real_server: RealServer, twice: Any
) -> None:
    client = proxy.client(retry=Retry(NoBackoff(), 0))
    with MultiLock(client, ["lock:a", "lock:b"], 20) as held:
        held.extend(1)
        began, before = time.monotonic(), left_at(real_server)
        twice()

        held.extend(ADDED)

        there, passed = left_at(real_server), time.monotonic() - began
        assert before + ADDED - passed - 0.01 <= there <= before + ADDED + 0.01
        assert held.remaining() >= before + ADDED - 2 * passed - 0.01


@kinds
def test_an_extension_in_asyncio_whose_reply_was_cut_off_adds_once(
    proxy: Proxy, real_server: RealServer, twice: Any, kind: str
) -> None:
    async def extend() -> tuple[float, float, float]:
        client = proxy.client(retry=Retry(NoBackoff(), 0))
        held = await RedisLock(client, "lock:a", 20, **KINDS[kind]).atake(0)
        await held.aextend(1)
        began, before = time.monotonic(), await asyncio.to_thread(left_at, real_server)
        twice()
        await held.aextend(ADDED)
        there = await asyncio.to_thread(left_at, real_server)
        return before, there, time.monotonic() - began

    before, there, passed = run(extend())

    assert before + ADDED - passed - 0.01 <= there <= before + ADDED + 0.01


@kinds
def test_a_copy_that_arrives_after_further_extensions_adds_nothing(
    real_server: RealServer, kind: str
) -> None:
    client = real_server.client()
    held = taken(client, kind)
    late = held.grant.renewing(int(ADDED * 1000), "add")
    send(client, late)
    for _ in range(3):
        held.extend(1)
        held.reacquire()
    before = left_at(real_server)

    send(client, late)

    assert before - 5 <= left_at(real_server) <= before + 0.01


@kinds
def test_extensions_by_two_threads_that_cross_add_up(real_server: RealServer, kind: str) -> None:
    client = real_server.client()
    held = taken(client, kind)
    one, other = (held.grant.renewing(int(ADDED * 1000), "add") for _ in range(2))
    before = left_at(real_server)

    for request in (other, one, other, one):
        send(client, request)

    there = left_at(real_server)
    assert before + 2 * ADDED - 5 <= there <= before + 2 * ADDED + 0.01


@kinds
def test_a_copy_adds_nothing_although_one_of_the_acquire_came_between(
    real_server: RealServer, kind: str
) -> None:
    client = real_server.client()
    turn = RedisLock(client, "lock:a", 20, **KINDS[kind]).attempt()
    taking = turn.request(waits=False)
    held = ask(turn, waits=False)
    assert isinstance(held, LockHandle)
    adding = held.grant.renewing(int(ADDED * 1000), "add")
    send(client, adding)
    send(client, taking)

    send(client, adding)

    assert left_at(real_server) <= 20 + ADDED + 0.01
