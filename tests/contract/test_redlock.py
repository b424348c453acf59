"""A lock on several masters: a majority grants it, and what is relied on is less than a lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio

from django_setnx_lock import LockBusy, LockLost, signals
from django_setnx_lock.core import Inspector, Outcome, Redlock
from tests.servers import free_port
from tests.support.kinds import REDLOCK
from tests.support.rows import on

if TYPE_CHECKING:
    from tests.support.world import World

NAME = "lock:a"


def left_on(a: World) -> list[int]:
    return [int(client.exists(NAME)) for client in a.clients]


def nowhere(count: int) -> list[Any]:
    return [redis.Redis(port=free_port()) for _ in range(count)]


@on([REDLOCK])
async def test_it_stands_at_all_masters_with_one_token_and_leaves_none(a: World) -> None:
    async with a.lock().block() as held:
        assert {client.get(NAME) for client in a.clients} == {held.token.encode()}
    assert left_on(a) == [0, 0, 0]


@on([REDLOCK])
async def test_it_is_had_where_somebody_else_has_a_minority(a: World) -> None:
    a.clients[0].set(NAME, "foreign", px=30_000)
    assert await a.lock().locked() is False
    async with a.lock().block() as held:
        await held.check()
        assert await a.lock().locked() is True
    assert left_on(a) == [1, 0, 0]


@on([REDLOCK])
async def test_who_gets_a_minority_gives_it_back(a: World) -> None:
    for client in a.clients[:2]:
        client.set(NAME, "foreign", px=30_000)
    with pytest.raises(LockBusy):
        await a.lock().take(0)
    assert left_on(a) == [1, 1, 0]


@on([REDLOCK])
async def test_the_drift_of_clocks_is_not_relied_on(a: World) -> None:
    async with a.lock(timeout=1000).block() as held:
        # A hundredth of the lease, and two milliseconds.
        assert 900 < held.remaining() <= 1000 - 10.002
        await held.extend(2000, replace_ttl=True)
        assert 1900 < held.remaining() <= 2000 - 20.002
        await held.extend(2000)
        assert held.remaining() > 2000


@on([REDLOCK])
async def test_it_is_lost_here_before_the_masters_forget_it(a: World) -> None:
    held = await a.lock(timeout=a.kind.brief).take(20)
    stood: list[bool] = []

    def is_lost() -> bool:
        # Looked at before: nobody else can have had it then.
        stood.append(sum(left_on(a)) >= 2)
        return bool(held.lost)

    await a.eventually(is_lost)
    assert all(stood[:-1])
    with pytest.raises(LockLost):
        await held.check()


@on([REDLOCK])
async def test_what_a_majority_no_longer_has_is_lost(a: World) -> None:
    held = await a.lock().take(0)
    a.clients[0].delete(NAME)
    await held.check()
    a.clients[1].delete(NAME)
    with pytest.raises(LockLost):
        await held.check()
    assert held.lost
    assert await held.owned() is False


@on([REDLOCK])
async def test_listeners_hear_of_it_without_a_fence(a: World) -> None:
    told: list[tuple[str, Any]] = []

    def listen(key: str, fence: Any, **_: Any) -> None:
        told.append((key, fence))

    for signal in (signals.lock_acquired, signals.lock_released):
        signal.connect(listen)
    try:
        async with a.lock(key="a").block():
            pass
    finally:
        for signal in (signals.lock_acquired, signals.lock_released):
            signal.disconnect(listen)
    assert told == [("a", None)] * 2


@on([REDLOCK])
async def test_a_request_to_stop_at_one_master_is_heard(a: World) -> None:
    async with a.lock().block() as held:

        def ask(inspector: Inspector) -> Outcome:
            return inspector.ask_to_stop(NAME, inspector.get(NAME).fingerprint, by="joe")

        assert a.ask(ask, server=1) is Outcome.ASKED
        await held.check()
        assert held.stop_requested.by == "joe"


# Which masters


@on([REDLOCK])
async def test_an_even_number_of_masters_will_do(a: World) -> None:
    a.clients += nowhere(1)
    async with a.lock(master_timeout=0.25).block() as held:
        await held.check()
    a.clients.pop()
    assert left_on(a) == [0, 0, 0]


def test_fewer_than_three_masters_are_refused() -> None:
    for count in range(3):
        with pytest.raises(ValueError, match=f"3 masters at least, better 5, not {count}"):
            Redlock(nowhere(count), NAME)


@pytest.mark.parametrize("database", [0, 1])
def test_two_masters_that_are_one_server_are_refused_without_their_passwords(
    database: int,
) -> None:
    urls = ["redis://user:s3cret@a", f"redis://a:6379/{database}", "redis://b"]
    clients = [redis.Redis.from_url(url) for url in urls]
    with pytest.raises(ValueError, match=r"'r1' and 'r2' of a Redlock are one server, .*a:6379"):
        Redlock(clients, NAME, names=["r1", "r2", "r3"])


def test_a_client_without_a_pool_is_refused() -> None:
    with pytest.raises(TypeError, match="one server"):
        Redlock([*nowhere(2), object()], NAME)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "1", True, None])
def test_a_master_timeout_that_is_no_time_is_refused(seconds: Any) -> None:
    with pytest.raises(ValueError, match="master_timeout"):
        Redlock(nowhere(3), NAME, master_timeout=seconds)
