"""A task that does nothing but take a lock, as before Python 3.12 that of ``wait_for``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import redis

from django_setnx_lock import LockBusy, LockError
from django_setnx_lock.core import MultiLock, RedisLock
from tests.core.aio.helpers import DEADLINE, is_renewed, run

if TYPE_CHECKING:
    from collections.abc import Coroutine

LEASE = 3.0


async def waited_for(taking: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.wait_for(taking, DEADLINE)


async def in_a_task(taking: Coroutine[Any, Any, Any]) -> Any:
    return await asyncio.create_task(taking)


@pytest.fixture(params=[waited_for, in_a_task])
def how(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=[RedisLock, MultiLock])
def lock(request: pytest.FixtureRequest, redis_client: redis.Redis) -> Any:
    name = "lock:a" if request.param is RedisLock else ["lock:a", "lock:b"]
    return request.param(redis_client, name, LEASE, renew=True, reentrant=True, blocking=False)


def test_it_is_renewed_and_released_by_whoever_awaits_it(lock: Any, how: Any) -> None:
    async def work() -> tuple[bool, bool, bool]:
        assert await how(lock.aacquire()) is True
        held = lock.held
        await is_renewed(held)
        before = (held.lost, await held.aowned())
        await lock.arelease()
        return (*before, await lock.alocked())

    assert run(work()) == (False, True, False)


def test_its_handle_is_renewed_for_whoever_has_it(lock: Any, how: Any) -> None:
    async def work() -> bool:
        held = await how(lock.atake())
        await is_renewed(held)
        owned = await held.aowned()
        await held.arelease()
        return bool(owned)

    assert run(work())


def test_another_such_task_does_not_have_it_again(redis_client: redis.Redis) -> None:
    def mine() -> RedisLock:
        return RedisLock(redis_client, "lock:a", reentrant=True, blocking=False)

    async def work() -> list[Any]:
        # At once, and one after the other.
        at_once = await asyncio.gather(mine().atake(), mine().atake(), return_exceptions=True)
        return [*at_once, *await asyncio.gather(mine().atake(), return_exceptions=True)]

    kinds = sorted(type(one).__name__ for one in run(work()))

    assert kinds == [LockBusy.__name__, LockBusy.__name__, "LockHandle"]


def test_of_several_a_lock_object_releases_none(redis_client: redis.Redis) -> None:
    lock = RedisLock(redis_client, "lock:a", limit=2, blocking=False)

    async def work() -> bool:
        assert all(await asyncio.gather(lock.aacquire(), lock.aacquire()))
        with pytest.raises(LockError, match="not held here"):
            await lock.arelease()
        return await lock.aacquire()

    assert not run(work())
