"""The one connection on which the waiting tasks of an event loop are woken."""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockUnavailable
from django_setnx_lock.core import RedisLock, RWLock
from django_setnx_lock.core.locks import listener as listening
from django_setnx_lock.core.locks.listener import Listener
from django_setnx_lock.core.protocol import commands
from tests.core.aio.helpers import run, until
from tests.core.helpers import INDEX, called, command, listed
from tests.core.queueing import handed_on, holder, listeners, queued
from tests.support.seams import mutate

if TYPE_CHECKING:
    import redis

    from tests.servers import RealServer


def is_queued(client: redis.Redis, key: str, count: int) -> bool:
    return len(queued(client, key)) == count


def asleep(client: redis.Redis) -> set[str]:
    """Return the connections that are listened on."""
    found: Any = client.client_list()
    return {one["id"] for one in found if "b" in one["flags"]}


async def take_turns(client: Any, key: str, done: list[str]) -> None:
    async with listed(client, key):
        done.append(key)


async def waiting(
    client: redis.Redis, keys: list[str], done: list[str]
) -> tuple[list[Any], list[asyncio.Task[None]]]:
    """Return what holds each of ``keys``, and a task for each that waits for it, in order."""
    held = {key: await listed(client, key).atake(0) for key in dict.fromkeys(keys)}
    tasks = []
    for key in keys:
        following = len(queued(client, key)) + 1
        tasks.append(asyncio.create_task(take_turns(client, key, done)))
        await until(functools.partial(is_queued, client, key, following))
    return list(held.values()), tasks


async def release_all(held: list[Any], tasks: list[asyncio.Task[None]]) -> None:
    for one in held:
        await one.arelease()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("keys", [["a"] * 20, [str(number) for number in range(20)]])
def test_all_that_wait_in_a_loop_listen_on_one_connection(
    real_server: RealServer, keys: list[str]
) -> None:
    client, done = real_server.client(), list[str]()

    async def work() -> int:
        held, tasks = await waiting(client, keys, done)
        await until(lambda: listeners(real_server))
        found = listeners(real_server)
        await release_all(held, tasks)
        return found

    assert run(work()) == 1
    assert sorted(done) == sorted(keys)


def test_each_loop_has_its_own(real_server: RealServer) -> None:
    client, done = real_server.client(), list[str]()
    held = listed(client, "a").take(0)

    with ThreadPoolExecutor(3) as pool:
        loops = [pool.submit(lambda: run(take_turns(client, "a", done))) for _ in range(3)]
        run(until(lambda: listeners(real_server) == 3))
        held.release()
        for one in loops:
            one.result(20)

    assert done == ["a"] * 3


def test_without_an_index_there_is_one_for_each_lock(real_server: RealServer) -> None:
    client = real_server.client()

    async def take(name: str) -> None:
        async with RedisLock(client, name, 60):
            pass

    async def work() -> None:
        names = ["lock:a", "lock:b"]
        held = [await RedisLock(client, name, 60).atake(0) for name in names]
        tasks = [asyncio.create_task(take(name)) for name in names * 3]
        await until(lambda: len(queued(client, "a") + queued(client, "b")) == 6)
        await until(lambda: listeners(real_server) == 2)
        await release_all(held, tasks)

    run(work())


def test_one_that_is_cancelled_leaves_the_others_listening(real_server: RealServer) -> None:
    client, done = real_server.client(), list[str]()

    async def work() -> None:
        held, (first, *others) = await waiting(client, ["a"] * 3, done)
        await until(lambda: asleep(client))
        before = asleep(client)
        first.cancel()
        await until(lambda: len(queued(client)) == 2)
        assert asleep(client) == before
        await release_all(held, others)

    run(work())
    assert done == ["a"] * 2


def test_when_nobody_waits_it_listens_no_longer(real_server: RealServer) -> None:
    client = real_server.client()

    async def work() -> None:
        held, (task,) = await waiting(client, ["a"], [])
        await until(lambda: listeners(real_server) == 1)
        task.cancel()
        await until(lambda: listeners(real_server) == 0)
        await held[0].arelease()

    run(work())


def test_its_connection_is_used_again(real_server: RealServer) -> None:
    client, seen = real_server.client(), set[str]()

    async def work() -> None:
        for _ in range(5):
            held, tasks = await waiting(client, ["a"], [])
            await until(lambda: asleep(client))
            seen.update(asleep(client))
            await release_all(held, tasks)

    run(work())
    assert len(seen) == 1


def test_all_go_on_after_it_was_cut_off(real_server: RealServer) -> None:
    client, done = real_server.client(), list[str]()

    async def work() -> None:
        held, tasks = await waiting(client, ["a"] * 10, done)
        await until(lambda: listeners(real_server) == 1)
        command(client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await until(lambda: listeners(real_server) == 1)
        await release_all(held, tasks)

    run(work())
    assert done == ["a"] * 10


def test_without_taking_note_of_a_cut_they_would_sleep_on(
    real_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_no_note(listener: Listener, *_: object) -> None:
        listener._fetching = SimpleNamespace(done=lambda: False, cancel=lambda: True)

    # By a private name, as nothing else leaves them asleep.
    monkeypatch.setattr(Listener, "_cut_off", take_no_note)
    client, done = real_server.client(), list[str]()

    async def work() -> None:
        held, tasks = await waiting(client, ["a"] * 3, done)
        await until(lambda: listeners(real_server) == 1)
        command(client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await until(lambda: listeners(real_server) == 0)
        # Not by the handle, which would see to it that the next one has it.
        await asyncio.to_thread(called, held[0].target, held[0].grant.releasing())
        # It was left to each of them in turn, for the claim time.
        await until(lambda: not client.exists("lock:a"))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(work())
    assert done == []


def test_one_that_cannot_listen_is_told_why(real_server: RealServer) -> None:
    client = real_server.client()
    admin = real_server.client()
    command(admin, "ACL", "SETUSER", "deaf", "on", "nopass", "~*", "+@all", "-bzpopmin")
    deaf = real_server.client(username="deaf", password="any")

    async def work() -> None:
        await listed(client, "a").atake(0)
        with pytest.raises(LockUnavailable) as caught:
            await listed(deaf, "a").atake(20)
        assert caught.value.cause == "denied"

    run(work())


def test_readers_and_holders_of_permits_are_woken_by_it_too(real_server: RealServer) -> None:
    client, done = real_server.client(), list[str]()

    async def enter(one: RedisLock) -> None:
        async with one:
            done.append(one.key)

    async def work() -> None:
        rows = RWLock(client, "lock:rows", timeout=60, index=INDEX, key="rows")
        seats = [listed(client, "seats", limit=2) for _ in range(4)]
        held = [await rows.write().atake(0), *[await one.atake(0) for one in seats[:2]]]
        tasks = [asyncio.create_task(enter(one)) for one in (rows.read(), rows.read(), *seats[2:])]
        await until(lambda: len(queued(client, "rows")) + len(queued(client, "seats")) == 4)
        await until(lambda: listeners(real_server) == 1)
        await release_all(held, tasks)

    run(work())
    assert sorted(done) == ["rows"] * 2 + ["seats"] * 2


def test_one_that_was_woken_before_it_slept_does_not_sleep(redis_client: redis.Redis) -> None:
    # Only here is it known when the mail is fetched: by a loop in which another task waits.
    listener = Listener("{lock:}:mail:1")

    async def work() -> None:
        other = asyncio.create_task(listener.wait(redis_client, "other", 60))
        redis_client.zadd(listener.box, {"early": 1})
        await until(lambda: not redis_client.exists(listener.box))
        await listener.wait(redis_client, "early", 60)
        other.cancel()

    run(work())


def test_mail_that_would_have_expired_wakes_nobody(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, now = Listener("{lock:}:mail:1"), [100.0]
    monkeypatch.setattr(listening, "clock", SimpleNamespace(now=lambda: now[0]))

    async def work() -> bool:
        other = asyncio.create_task(listener.wait(redis_client, "other", 60))
        redis_client.zadd(listener.box, {"early": 1})
        await until(lambda: not redis_client.exists(listener.box))
        now[0] += 2
        late = asyncio.create_task(listener.wait(redis_client, "early", 60))
        await asyncio.sleep(0)
        is_woken = late.done()
        late.cancel()
        other.cancel()
        return is_woken

    assert not run(work())


def dead_waiter(client: redis.Redis) -> tuple[Any, Any]:
    """Return two that wait in loops, of which nothing fetches the mail."""
    turns = []
    for number in range(2):
        turn = listed(client, "a").attempt()
        turn.token = commands.SETNX.new_token(f"{{lock:}}:mail:{number}")
        called(turn.target, turn.request(waits=True))
        turns.append(turn)
    return turns[0], turns[1]


def test_what_is_left_to_a_loop_that_is_gone_goes_to_the_next_at_once(
    redis_client: redis.Redis,
) -> None:
    held = holder(redis_client)
    first, second = dead_waiter(redis_client)
    held.release()

    assert handed_on(first, looked_after(first)) == second.token


def looked_after(turn: Any) -> Any:
    return commands.SETNX.check_handoff(turn.target.keys, turn.token)


def test_without_minding_the_mailbox_it_would_stay_there_for_the_claim_time(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch, "LOOK", "return redis.call('ZSCORE', box, token)", "return false")
    held = holder(redis_client)
    first, _ = dead_waiter(redis_client)
    held.release()

    assert handed_on(first, looked_after(first)) == first.token


def test_mail_that_was_fetched_is_not_taken_for_unread(redis_client: redis.Redis) -> None:
    held = holder(redis_client)
    first, _ = dead_waiter(redis_client)
    held.release()
    redis_client.zpopmin("{lock:}:mail:0")

    assert handed_on(first, looked_after(first)) == first.token


@pytest.mark.parametrize("box", ["celery", "{lock:}:index", "{lock:}:mail:", "x{lock:}:mail:1"])
def test_a_token_leads_to_no_key_but_a_mailbox(redis_client: redis.Redis, box: str) -> None:
    held = holder(redis_client)
    turn = listed(redis_client, "a").attempt()
    turn.token = f"token@{box}"
    called(turn.target, turn.request(waits=True))

    held.release()

    assert not redis_client.exists("celery", "{lock:}:mail:", "x{lock:}:mail:1")
    assert redis_client.exists(turn.target.keys.wake(turn.token))


def test_what_is_given_up_leaves_no_mail(redis_client: redis.Redis) -> None:
    held = holder(redis_client)
    first, _ = dead_waiter(redis_client)
    held.release()
    assert redis_client.exists("{lock:}:mail:0")

    called(first.target, first.cancelling())

    assert not redis_client.exists("{lock:}:mail:0")


def test_mail_that_nobody_fetches_is_gone_with_the_claim(redis_client: redis.Redis) -> None:
    held = holder(redis_client)
    dead_waiter(redis_client)
    held.release()

    assert 0 < redis_client.pttl("{lock:}:mail:0") <= commands.CLAIM_MS * 10
