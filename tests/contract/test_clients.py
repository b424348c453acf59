"""The clients of redis-py that a lock takes: what they decode, and those of redis.asyncio."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
import redis.asyncio

from django_setnx_lock import LockError, LockUnsupported
from django_setnx_lock.core import MultiLock, RedisLock
from tests.support.kinds import EXCLUSIVE, ONE_SERVER, SEVERAL
from tests.support.rows import on

if TYPE_CHECKING:
    from tests.support.world import World

NO_NAMES = [
    "lock:\udc80",
    "{lock:a}:meta",
    "{lock:a}:waiting",
    "{lock:a}:forced",
    "a}b",
]


@on(ONE_SERVER)
async def test_a_client_that_decodes_is_as_good(a: World) -> None:
    a.asks_at(a.server.client(decode_responses=True))
    async with a.lock(label="view pay").block() as held:
        await held.check()
        await held.extend(5)
        assert await a.rival().acquire(blocking_timeout=0.01) is False
    assert a.is_free()


@on(ONE_SERVER, real=True)
@pytest.mark.parametrize("protocol", [2, 3])
async def test_both_protocols_of_redis_are_as_good(a: World, protocol: int) -> None:
    a.asks_at(a.server.client(protocol=protocol))
    held = await a.rival().take(0)
    job = a.spawn(a.lock().take(20))
    await a.waiting(1)
    await held.release()
    await (await job.result()).release()


@on([EXCLUSIVE, SEVERAL], drivers=["asyncio"], real=True)
async def test_a_client_of_asyncio_has_the_methods_that_are_awaited(a: World) -> None:
    client = redis.asyncio.Redis(port=a.server.port)
    a.asks_at(client)
    rival = a.server.client()
    try:
        async with a.lock(timeout=10, renew=True).block() as held:
            await held.check()
            await held.extend(5)
            assert await RedisLock(rival, "lock:b").aacquire(blocking=False) is (
                a.kind is EXCLUSIVE
            )
        assert a.is_free() or a.kind is EXCLUSIVE
        with pytest.raises((LockError, TypeError, RuntimeError)):
            a.ask(lambda _: a.lock().raw.take(0))
    finally:
        await client.aclose()


@on([EXCLUSIVE, SEVERAL], drivers=["blocking"], real=True)
async def test_a_client_with_calls_of_its_own_is_refused_and_not_bypassed(a: World) -> None:
    class Prefixed(redis.Redis):
        def execute_command(self, *args: Any, **options: Any) -> Any:
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]  # redis-py's own

    client = Prefixed(port=a.server.port)
    try:
        with pytest.raises(LockUnsupported, match="execute_command"):
            a.kind.make([client]).take(0)
    finally:
        client.close()


@on([EXCLUSIVE], drivers=["blocking"])
async def test_a_name_that_is_like_a_key_beside_a_lock_is_refused(a: World) -> None:
    for name in NO_NAMES:
        with pytest.raises(ValueError, match="name"):
            RedisLock(a.client, name)


@on([EXCLUSIVE])
async def test_the_hash_tag_of_a_name_is_the_locks_own(a: World) -> None:
    async with a.lock("lock:{order}:42").block():
        assert await a.lock("lock:{order}:42").acquire(blocking_timeout=0.01) is False
    keys = a.direct.keys("*")
    assert keys
    assert all("{order}" in key for key in keys)


@on([EXCLUSIVE, SEVERAL])
async def test_without_thread_local_any_thread_or_task_may_release(a: World) -> None:
    lock = a.lock(thread_local=False)
    assert await lock.acquire()

    async def release() -> None:
        await lock.release()

    await a.spawn(release()).result()
    assert a.is_free()


@on([EXCLUSIVE], drivers=["blocking"])
async def test_a_blocking_call_in_a_loop_is_refused(a: World) -> None:
    async def work() -> None:
        with pytest.raises(Exception, match="prefix a"):
            a.lock().raw.acquire()

    asyncio.run(work())
    assert a.is_free()


@on([EXCLUSIVE], drivers=["blocking"])
async def test_a_ticket_is_good_for_its_lock_alone(a: World) -> None:
    ticket = a.lock().raw.take(0).give_away(within=5)
    with pytest.raises(ValueError, match="ticket"):
        a.lock("lock:z").raw.adopt(ticket)
    for nonsense in ("", "nonsense", ticket[:-3]):
        with pytest.raises(ValueError, match="ticket"):
            a.lock().raw.adopt(nonsense)
    assert 0 < a.direct.pttl("lock:a") <= 10_000
    taken: list[Any] = []
    thread = threading.Thread(target=lambda: taken.append(a.lock(renew=True).raw.adopt(ticket)))
    thread.start()
    thread.join(20)
    taken[0].release()
    assert a.is_free()


@on([SEVERAL], drivers=["blocking"])
async def test_several_keys_have_names_of_their_own_for_messages(a: World) -> None:
    locks = MultiLock(a.client, ["lock:a", "lock:a", "lock:b"], keys=["a", "a", "b"])
    assert locks.keys == ("a", "b")
    with locks as held:
        assert set(held) == {"a", "b"}
        assert "'a'" in held.key
