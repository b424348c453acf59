"""A task that holds a lock has it again; nobody else does."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest

from django_setnx_lock import LockBusy, LockError, LockLost
from django_setnx_lock.core import RedisLock
from django_setnx_lock.core.connections import execute
from django_setnx_lock.core.locks import parent_process
from tests.core.aio.helpers import run
from tests.core.helpers import in_thread, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from tests.servers import RealServer

LONG = 15


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    parent_process.forget()
    yield
    parent_process.forget()


@pytest.fixture
def mine(redis_client: redis.Redis) -> Callable[..., RedisLock]:
    """Give what makes a reentrant lock that does not wait."""

    def mine(name: str = "lock:a", **options: Any) -> RedisLock:
        given = {"reentrant": True, "blocking": False, **options}
        return RedisLock(redis_client, name, **given)

    return mine


def test_the_outermost_block_lets_the_lock_go(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    async def work() -> tuple[int, int]:
        async with mine() as outer:
            async with mine() as inner:
                fences = (outer.fence, inner.fence)
            assert value_of(redis_client) == outer.token
            await outer.acheck()
        return fences

    outer, inner = run(work())

    assert outer == inner
    assert value_of(redis_client) is None


def test_one_object_is_entered_twice(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    async def work() -> None:
        lock = mine()
        async with lock, lock:
            assert await lock.aowned()
        assert not await lock.alocked()

    run(work())


def test_acquire_and_release_count(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    async def work() -> None:
        lock = mine()
        assert await lock.aacquire()
        assert await lock.aacquire()
        await lock.arelease()
        assert await lock.alocked()
        await lock.arelease()
        assert not await lock.alocked()
        with pytest.raises(LockError):
            await lock.arelease()

    run(work())


def test_without_reentrant_a_task_excludes_itself(mine: Callable[..., RedisLock]) -> None:
    async def work() -> None:
        async with mine():
            with pytest.raises(LockBusy):
                await mine(reentrant=False).atake()

    run(work())


def test_sibling_and_child_tasks_do_not_share(mine: Callable[..., RedisLock]) -> None:
    async def work() -> tuple[object, object]:
        async with mine():
            return await asyncio.gather(mine().atake(), mine().atake(), return_exceptions=True)

    assert [type(one) for one in run(work())] == [LockBusy, LockBusy]


def test_the_next_task_does_not_share_what_one_that_ended_left(
    mine: Callable[..., RedisLock],
) -> None:
    async def work() -> None:
        held = await asyncio.create_task(mine().atake())
        with pytest.raises(LockBusy):
            await mine().atake()
        await held.arelease()

    run(work())


def test_no_request_is_sent_for_a_share(
    mine: Callable[..., RedisLock], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    real_call: Any = execute.call

    async def call(*args: Any, **options: Any) -> Any:
        sent.append(args)
        return await real_call(*args, **options)

    monkeypatch.setattr(execute, "call", call)

    async def work() -> None:
        async with mine():
            before = len(sent)
            async with mine(), mine():
                pass
            assert len(sent) == before == 1
        assert len(sent) == 2

    run(work())


def test_a_longer_timeout_asks_for_more_time(mine: Callable[..., RedisLock]) -> None:
    async def work() -> float:
        async with mine(timeout=5), mine(timeout=60) as inner:
            return inner.remaining()

    assert run(work()) > 50


def test_a_lock_that_redis_gave_away_is_not_had_again(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    async def work() -> tuple[str, str]:
        outer = await mine(timeout=5).atake()
        redis_client.delete("lock:a")
        # That there is too little of the lease left makes it ask.
        inner = await mine(timeout=60).atake()
        await inner.arelease()
        assert outer.lost
        return outer.token, inner.token

    outer, inner = run(work())

    assert outer != inner


def test_who_chooses_a_token_takes_the_lock_anew(mine: Callable[..., RedisLock]) -> None:
    async def work() -> None:
        async with mine():
            assert not await mine().aacquire(token="mine")

    run(work())


@pytest.mark.parametrize("renew", [True, False])
def test_a_loss_cancels_the_task_once_and_is_told_by_the_outermost_block(
    redis_client: redis.Redis, mine: Callable[..., RedisLock], renew: bool
) -> None:
    seen: list[str] = []

    async def work() -> None:
        options: dict[str, Any] = {"timeout": 1.5, "renew": renew}
        with pytest.raises(LockLost):  # noqa: PT012 - a block is what is tested
            async with mine(**options):
                try:
                    async with mine(**options):
                        redis_client.delete("lock:a")
                        await asyncio.sleep(LONG)
                except BaseException as error:
                    seen.append(type(error).__name__)
                    # A second cancellation would come here.
                    await asyncio.sleep(0.05)
                    raise
        await asyncio.sleep(0)

    run(work())

    assert seen == ["CancelledError"]


def test_a_block_within_what_was_taken_without_one_is_cancelled(
    redis_client: redis.Redis, mine: Callable[..., RedisLock]
) -> None:
    async def work() -> None:
        held = await mine(timeout=2, renew=True).atake()
        with pytest.raises(LockLost):  # noqa: PT012 - as above
            async with mine():
                redis_client.delete("lock:a")
                await asyncio.sleep(LONG)
        assert held.lost

    run(work())


def test_it_has_again_what_is_held_around_its_process(
    real_server: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mine() -> RedisLock:
        return RedisLock(real_server.client(), "lock:a", blocking=False, reentrant=True)

    # Taken in a thread that is over: the one who holds it is another process.
    held = in_thread(mine().take)
    monkeypatch.setenv("SETNX_LOCK_HELD_TOKENS", parent_process.described(held.grant, os.environ))
    parent_process.forget()

    async def work() -> str:
        async with mine() as inner:
            return inner.token

    assert run(work()) == held.token
    assert value_of(real_server.client()) == held.token
    held.release()
