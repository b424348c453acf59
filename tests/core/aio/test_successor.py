"""A task's release grants the lock to the next task of its loop, in the same round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import clock
from django_setnx_lock.core.locks.listener import Listener
from django_setnx_lock.core.protocol import commands
from tests.core.aio.helpers import run, until
from tests.core.helpers import INDEX, called, listed, value_of
from tests.core.queueing import baton_of, holder, queued
from tests.faults.controls import take_out
from tests.faults.proxy import Proxy

if TYPE_CHECKING:
    import redis

    from django_setnx_lock.core import LockHandle
    from tests.servers import RealServer

# The fake tells of no commands that it ran, and of no one who is blocked.
pytestmark = pytest.mark.parametrize("server", ["valkey", "redis"], indirect=True)

Taking = Callable[[], Awaitable["LockHandle"]]


def scripts_run(client: redis.Redis) -> int:
    found: Any = client.info("commandstats")
    return int(found["cmdstat_evalsha"]["calls"])


def is_listening(client: redis.Redis) -> bool:
    """Whether the loop listens for a task, which is asleep then."""
    found: Any = client.info("clients")
    return bool(found["blocked_clients"])


async def load_scripts(client: redis.Redis) -> None:
    async with listed(client, "other"):
        pass


async def queue_behind(client: Any, take: Taking) -> tuple[LockHandle, asyncio.Task[LockHandle]]:
    """Return the handle of who holds the lock, and a task that sleeps until it is its turn."""
    await load_scripts(client)
    held = await listed(client, "a", timeout=60).atake(0)
    task: asyncio.Task[LockHandle] = asyncio.ensure_future(take())
    await until(lambda: queued(client) and is_listening(client))
    return held, task


def test_it_has_the_lock_without_asking_again(redis_client: redis.Redis) -> None:
    async def work() -> int:
        held, task = await queue_behind(redis_client, listed(redis_client, "a").atake)
        before = scripts_run(redis_client)
        await held.arelease()
        taken = await task
        after = scripts_run(redis_client)
        assert value_of(redis_client) == taken.token
        assert taken.fence > held.fence
        await taken.acheck()
        await taken.arelease()
        return after - before

    assert run(work()) == 1


def test_it_has_a_whole_lease(redis_client: redis.Redis) -> None:
    async def work() -> None:
        lock = listed(redis_client, "a", timeout=20)
        held, task = await queue_behind(redis_client, lock.atake)
        await held.arelease()
        taken = await task
        assert 15 < taken.remaining() <= 20
        assert 15_000 < redis_client.pttl("lock:a") <= 20_000
        await taken.arelease()

    run(work())


def test_it_leaves_no_more_than_one_that_had_asked(redis_client: redis.Redis) -> None:
    async def work() -> None:
        held, task = await queue_behind(redis_client, listed(redis_client, "a").atake)
        await held.arelease()
        await (await task).arelease()

    run(work())
    assert redis_client.keys("*a}*") == [b"{lock:a}:meta"]


def waits_elsewhere(client: redis.Redis) -> Any:
    """Return the attempt of one who waits in another process."""
    turn = listed(client, "a").attempt()
    called(turn.target, turn.request(waits=True))
    return turn


async def released_behind_another(client: redis.Redis) -> tuple[Any, asyncio.Task[LockHandle]]:
    await load_scripts(client)
    held = await listed(client, "a", timeout=60).atake(0)
    other = await asyncio.to_thread(waits_elsewhere, client)
    task = asyncio.ensure_future(listed(client, "a").atake(20))
    await until(lambda: len(queued(client)) == 2 and is_listening(client))
    await held.arelease()
    return other, task


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_it_overtakes_nobody_who_waits_elsewhere(redis_client: redis.Redis) -> None:
    async def work() -> None:
        other, task = await released_behind_another(redis_client)
        assert value_of(redis_client) == baton_of(other)
        assert not task.done()
        await cancel(task)

    run(work())


def test_without_looking_who_is_first_it_would_overtake(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch, "RELEASE", "first_waiter() == ARGV[6]", "first_waiter()")

    async def work() -> None:
        _, task = await released_behind_another(redis_client)
        assert value_of(redis_client) == (await task).token

    run(work())


def test_one_that_was_cancelled_is_not_granted_it(redis_client: redis.Redis) -> None:
    async def work() -> None:
        held, task = await queue_behind(redis_client, listed(redis_client, "a").atake)
        releasing = asyncio.ensure_future(held.arelease())
        await asyncio.sleep(0)
        await cancel(task)
        await releasing
        await until(lambda: value_of(redis_client) is None)

    run(work())
    assert queued(redis_client) == []


def test_one_that_wants_replicas_asks_itself(redis_client: redis.Redis) -> None:
    async def work() -> None:
        lock = listed(redis_client, "a", replicas=1, replica_timeout=0.01)
        held, task = await queue_behind(redis_client, lock.atake)
        await held.arelease()
        with pytest.raises(LockUnavailable) as caught:
            await task
        assert caught.value.cause == "replicas"

    run(work())


@pytest.fixture
def proxy(server: RealServer) -> Iterator[Proxy]:
    """Give a proxy before the server that ``redis_client`` is of."""
    with Proxy(server.port) as proxy:
        yield proxy


async def lost_reply(proxy: Proxy) -> LockHandle:
    """Have the reply to the release be lost, after which it is sent again."""
    held, task = await queue_behind(proxy.client(), listed(proxy.client(), "a").atake)
    proxy.drop_next_reply(b"once")
    await held.arelease()
    return await asyncio.wait_for(task, 2)


def test_when_the_reply_is_lost_it_asks(proxy: Proxy, redis_client: redis.Redis) -> None:
    async def work() -> None:
        taken = await lost_reply(proxy)
        assert value_of(redis_client) == taken.token
        await taken.acheck()
        await taken.arelease()

    run(work())


def test_without_being_woken_it_would_sleep_while_it_has_the_lock(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Listener, "wake", lambda *_: None)

    async def work() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await lost_reply(proxy)

    run(work())


def test_a_lease_that_ended_before_it_heard_of_it_is_not_believed(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, later = clock.now, [0.0]
    monkeypatch.setattr(clock, "now", lambda: now() + later[0])

    async def work() -> None:
        lock = listed(redis_client, "a", timeout=5)
        held, task = await queue_behind(redis_client, lock.atake)
        releasing = asyncio.ensure_future(held.arelease())
        # It is sent in the first step; the reply comes in a later one.
        await asyncio.sleep(0)
        later[0] = 6.0
        await releasing
        taken = await task
        assert taken.remaining() > 4
        assert not taken.lost

    run(work())


def asks_after_a_lease_it_has_not_heard_of(client: redis.Redis) -> Any:
    """Return the reply to a waiter that a release has granted the lock while it was asking."""
    run(load_scripts(client))
    held, turn = holder(client), waits_elsewhere(client)
    named = commands.Successor("lock:a", turn.token, 30_000, turn.record, 0)
    called(
        held.target, commands.SETNX.release(turn.target.keys, INDEX, held.token, successor=named)
    )
    assert value_of(client) == turn.token
    client.delete("lock:a")
    return called(turn.target, turn.request(waits=True))


def test_a_token_that_had_the_lock_unheard_does_not_wait_again(redis_client: redis.Redis) -> None:
    assert asks_after_a_lease_it_has_not_heard_of(redis_client) == [b"GONE"]


def test_control_without_that_rule_it_takes_the_lock_again(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch, "ACQUIRE", "if slice > 0 and owner == token and", "if false and")

    assert asks_after_a_lease_it_has_not_heard_of(redis_client)[0] == b"OK"
